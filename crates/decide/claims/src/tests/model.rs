//! Any order of what users, Pods and controllers do, over caches that lag and with processes that are killed.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    /// A user makes the claim, of one of the classes, naming a static volume or a source or neither.
    Claim(u8, u8, u8),
    Volume(u8, u8),
    Snapshot(u8, u8),
    Delete(Kind, u8),
    /// A Pod that uses the claim runs on a node, or it ends.
    Pod(u8),
    PodEnds(u8),
    Select(u8),
    Grow(u8),
    /// A pass over the nth object, on a cache that is so many writes late, killed after so many actions.
    Pass {
        nth: u8,
        late: u8,
        crash: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![Just(Kind::Claim), Just(Kind::Volume), Just(Kind::Snapshot), Just(Kind::Content)];
    prop_oneof![
        3 => (0..3u8, 0..5u8, 0..4u8).prop_map(|(name, class, from)| Op::Claim(name, class, from)),
        1 => (0..2u8, 0..3u8).prop_map(|(name, change)| Op::Volume(name, change)),
        1 => (0..2u8, 0..3u8).prop_map(|(name, of)| Op::Snapshot(name, of)),
        2 => (kind, 0..4u8).prop_map(|(kind, nth)| Op::Delete(kind, nth)),
        2 => (0..3u8).prop_map(Op::Pod),
        2 => (0..3u8).prop_map(Op::PodEnds),
        1 => (0..3u8).prop_map(Op::Select),
        1 => (0..3u8).prop_map(Op::Grow),
        20 => (any::<u8>(), 0..4u8, prop_oneof![4 => Just(9u8), 1 => 0..4u8])
            .prop_map(|(nth, late, crash)| Op::Pass { nth, late, crash }),
    ]
}

const CLASSES: [&str; 5] = ["now", "later", "kept", "", "disks"];

/// The cluster with the caches of the past, newest last.
struct Run {
    cluster: Cluster,
    past: Vec<Objects>,
    /// What of it the controller has seen, for each kind.
    views: BTreeMap<Kind, usize>,
    /// Content whose object was deleted while its policy was to keep it.
    kept: Vec<String>,
}

/// What the caches show: one kind lags by so many writes, and none ever goes back.
fn look(past: &[Objects], views: &mut BTreeMap<Kind, usize>, lagging: usize, late: usize) -> Objects {
    let newest = past.len() - 1;
    let mut seen = Objects { objects: BTreeMap::new(), ..past[newest].clone() };
    for (number, kind) in [Kind::Claim, Kind::Volume, Kind::Snapshot, Kind::Content].into_iter().enumerate() {
        let view = views.entry(kind).or_default();
        *view = (*view).max(newest.saturating_sub(if lagging % 4 == number { late } else { 0 }));
        let of_kind = past[*view].objects.iter().filter(|((of, _), _)| *of == kind);
        seen.objects.extend(of_kind.map(|(key, object)| (key.clone(), object.clone())));
    }
    seen
}

impl Run {
    fn note_kept(&mut self) {
        for volume in self.cluster.objects.all::<PersistentVolume>(Kind::Volume) {
            let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
            if let Some(handle) = crate::handle(&volume).filter(|_| policy == Some("Retain")) {
                self.kept.push(handle.to_owned());
            }
        }
    }

    fn step(&mut self, op: &Op) {
        let cluster = &mut self.cluster;
        let (claim, volume, snapshot) = (|n: u8| format!("c{n}"), |n: u8| format!("v{n}"), |n: u8| format!("s{n}"));
        match *op {
            Op::Claim(name, class, from) if cluster.objects.get(Kind::Claim, &claim(name)).is_none() => {
                let spec = match from {
                    0 => json!({"volumeName": volume(0)}),
                    1 => json!({"dataSourceRef": {"kind": "PersistentVolumeClaim", "name": claim((name + 1) % 3)}}),
                    2 => json!({"dataSourceRef": {
                        "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": snapshot(0),
                    }}),
                    _ => json!({}),
                };
                cluster.claim(&claim(name), CLASSES[usize::from(class)], spec);
            }
            Op::Volume(name, change) if cluster.objects.get(Kind::Volume, &volume(name)).is_none() => {
                let spec = match change {
                    0 => json!({}),
                    1 => json!({"claimRef": {"namespace": NAMESPACE, "name": claim(0)}}),
                    _ => json!({"storageClassName": "disks"}),
                };
                cluster.static_volume(&volume(name), "2Gi", spec);
            }
            Op::Snapshot(name, of) if cluster.objects.get(Kind::Snapshot, &snapshot(name)).is_none() => {
                cluster.snapshot(&snapshot(name), &claim(of));
            }
            Op::Delete(kind, nth) => {
                let of_kind: Vec<_> = cluster.keys().into_iter().filter(|(of, _)| *of == kind).collect();
                if let Some((kind, name)) = of_kind.get(usize::from(nth)) {
                    cluster.delete(*kind, name);
                }
            }
            Op::Pod(name) => {
                // A Pod is placed only if its claim is bound and stays, and then its node mounts the volume.
                let Some(found) = cluster.objects.typed::<PersistentVolumeClaim>(Kind::Claim, &claim(name)) else {
                    return;
                };
                let bound = found.status.iter().any(|status| status.phase.as_deref() == Some("Bound"));
                if bound && found.metadata.deletion_timestamp.is_none() {
                    cluster.pod(&claim(name), &claim(name), Some("n1"));
                    let volume = volume_name(&found).and_then(|name| cluster.objects.typed(Kind::Volume, name));
                    cluster.in_use.extend(volume.as_deref().and_then(crate::handle).map(str::to_owned));
                }
            }
            Op::PodEnds(name) => {
                let Some(found) = cluster.objects.typed::<PersistentVolumeClaim>(Kind::Claim, &claim(name)) else {
                    return;
                };
                if cluster.objects.pods.remove(&claim(name)).is_some() {
                    let volume = volume_name(&found).and_then(|name| cluster.objects.typed(Kind::Volume, name));
                    let handle = volume.as_deref().and_then(crate::handle).map(str::to_owned);
                    cluster.in_use.retain(|used| Some(used) != handle.as_ref());
                }
            }
            Op::Select(name) => cluster.select(&claim(name)),
            Op::Grow(name) => {
                let bound = cluster.at(Kind::Claim, &claim(name), "status.phase") == "Bound";
                if bound {
                    let size = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
                    cluster.change(Kind::Claim, &claim(name), &size);
                }
            }
            Op::Pass { nth, late, crash } => {
                let cache = look(&self.past, &mut self.views, usize::from(nth), usize::from(late));
                let keys: Vec<_> = cache.objects.keys().cloned().collect();
                if !keys.is_empty() {
                    let (kind, name) = &keys[usize::from(nth) % keys.len()];
                    cluster.pass(&cache, *kind, name, usize::from(crash));
                }
            }
            Op::Claim(..) | Op::Volume(..) | Op::Snapshot(..) => {}
        }
        if self.past.last() != Some(&self.cluster.objects) {
            self.past.push(self.cluster.objects.clone());
        }
        self.check();
    }

    /// What holds at any time.
    fn check(&self) {
        let cluster = &self.cluster;
        let claims = cluster.objects.all::<PersistentVolumeClaim>(Kind::Claim);
        let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
        for claim in claims.iter().filter(|claim| crate::claim_phase(claim).as_str() == "Bound") {
            let (name, uid) = (volume_name(claim).unwrap(), claim.metadata.uid.as_deref().unwrap());
            let other = owners.insert(name, uid);
            assert!(other.is_none(), "{name} is bound to {other:?} and {uid}");
        }
        for handle in &cluster.in_use {
            assert!(cluster.volumes.contains_key(handle), "{handle} is in use and was removed");
        }
        // A claim that a Pod uses is there, with its volume and its content.
        for pod in cluster.objects.pods.keys() {
            let claim = cluster.objects.typed::<PersistentVolumeClaim>(Kind::Claim, pod);
            let claim = claim.unwrap_or_else(|| panic!("claim {pod} is in use and gone"));
            let name = volume_name(&claim).unwrap();
            let volume = cluster.objects.typed::<PersistentVolume>(Kind::Volume, name);
            let volume = volume.unwrap_or_else(|| panic!("{name} is in use and gone"));
            if let Some(handle) = crate::handle(&volume) {
                assert!(cluster.volumes.contains_key(handle), "{handle} is in use and gone");
            }
        }
    }

    /// What holds when everybody has done everything.
    fn check_settled(&self) {
        let cluster = &self.cluster;
        let volumes = cluster.objects.all::<PersistentVolume>(Kind::Volume);
        let claims = cluster.objects.all::<PersistentVolumeClaim>(Kind::Claim);
        for volume in &volumes {
            if let Some(handle) = crate::handle(volume) {
                assert!(cluster.volumes.contains_key(handle), "{handle} has an object and no content");
            }
            if let Some((_, name, uid)) = crate::claim_of(volume).filter(|(.., uid)| !uid.is_empty()) {
                let claim = claims.iter().find(|claim| claim.metadata.name.as_deref() == Some(name));
                let owned = claim.is_some_and(|claim| claim.metadata.uid.as_deref() == Some(uid));
                let phase = crate::volume_phase(volume).as_str();
                assert_eq!(owned, phase == "Bound", "{:?} is {phase}", volume.metadata.name);
            }
        }
        for claim in &claims {
            if crate::claim_phase(claim).as_str() == "Bound" {
                let name = volume_name(claim).unwrap();
                let volume = volumes.iter().find(|volume| volume.metadata.name.as_deref() == Some(name));
                assert_eq!(crate::claim_of(volume.unwrap()).map(|(.., uid)| uid), claim.metadata.uid.as_deref());
            }
        }
        // What is kept on purpose has no object; nothing else is in the storage that no object knows of.
        let known = |handle: &String| {
            volumes.iter().any(|volume| crate::handle(volume) == Some(handle))
                || claims.iter().any(|claim| {
                    handle.ends_with(claim.metadata.uid.as_deref().unwrap())
                        && claim.metadata.finalizers.iter().flatten().any(|name| name == crate::PROVISIONING_FINALIZER)
                })
        };
        let contents = cluster.objects.all::<VolumeSnapshotContent>(Kind::Content);
        for handle in cluster.volumes.keys() {
            assert!(known(handle) || self.kept.contains(handle), "{handle} is in the storage and nobody knows it");
        }
        for handle in cluster.snapshots.keys() {
            let of = |content: &Arc<VolumeSnapshotContent>| {
                let uid = content.spec.volume_snapshot_ref.uid.as_deref().unwrap_or_default();
                handle.ends_with(&format!("-{uid}"))
            };
            assert!(contents.iter().any(of), "{handle} is in the storage and nobody knows it");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_volume_is_given_away_twice_or_lost_while_in_use(ops in prop::collection::vec(op(), 1..120)) {
        let cluster = Cluster::new();
        let mut run = Run { past: vec![cluster.objects.clone()], views: BTreeMap::new(), cluster, kept: vec![] };
        for op in &ops {
            run.step(op);
            run.note_kept();
        }
        for _ in 0..3 {
            prop_assert!(run.cluster.settle(), "it does not come to rest");
            run.note_kept();
            run.past.push(run.cluster.objects.clone());
        }
        run.check();
        run.check_settled();
        // At rest, another look writes nothing.
        let before = run.cluster.clone();
        for (kind, name) in before.keys() {
            let writes = before.objects.decide(kind, &name).into_iter().filter(|action| {
                matches!(action, Action::Patch { .. } | Action::CreateVolume(_) | Action::CreateContent(_) | Action::Delete(_))
            });
            prop_assert_eq!(writes.collect::<Vec<_>>(), vec![], "{} {}", format!("{kind:?}"), name);
        }
    }
}
