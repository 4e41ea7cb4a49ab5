//! Any order of requests, with any repeats: what is decided agrees with a model that fits on a page, and a request that
//! has been carried out changes nothing when it comes again.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use volumeplan::create::{self, Origin, Seen};
use volumeplan::{
    Access, AccessMode, Capability, Code, Expansion, Kind, Lookup, NodeName, Parameters, PoolId, Publication, Publish,
    Range, Reach, Removal, Requirement, Snapshot, SnapshotId, Source, Time, Users, Volume, VolumeId, snapshot,
};

const PAGE: i64 = 4096;
const FREE: u64 = 6 * PAGE as u64;

#[derive(Clone, Debug)]
enum From {
    Nothing,
    Volume(usize),
    Snapshot(usize),
}

/// Requests about few objects, so that they meet. Sizes are in pages.
#[derive(Clone, Debug)]
enum Request {
    Create { name: usize, kind: Kind, pages: i64, exactly: bool, from: From },
    Delete { name: usize },
    Snapshot { name: usize, of: usize },
    DeleteSnapshot { name: usize },
    Grow { name: usize, pages: i64 },
    Publish { name: usize, node: usize, target: usize, read_only: bool, mode: AccessMode },
    Unpublish { name: usize, node: usize, target: usize },
    Hold { name: usize, holder: usize },
    Release { name: usize, holder: usize },
}

/// What a request led to: the object's size in pages, if it has one.
type Outcome = Result<Option<u64>, Code>;

/// The pool, changed only as decided.
#[derive(Clone, Debug, Default, PartialEq)]
struct Pool {
    volumes: BTreeMap<VolumeId, Volume>,
    snapshots: BTreeMap<SnapshotId, Snapshot>,
    users: BTreeMap<VolumeId, Users>,
}

fn volume_id(name: usize) -> String {
    VolumeId::derive(&volumeplan::RequestName::parse(&format!("name-{name}")).unwrap(), &Reach::Shared).to_string()
}

fn snapshot_id(name: usize) -> String {
    SnapshotId::derive(&volumeplan::RequestName::parse(&format!("name-{name}")).unwrap(), &Reach::Shared).to_string()
}

fn node_name(node: usize) -> NodeName {
    NodeName::parse(&format!("node-{node}")).unwrap()
}

fn capability(kind: Kind, mode: AccessMode) -> Capability {
    let access = match kind {
        Kind::Block => Access::Block,
        Kind::Filesystem => Access::Mount { fs_type: String::new(), flags: vec![] },
    };
    Capability { access: Some(access), mode: Some(mode) }
}

fn pages(bytes: u64) -> Option<u64> {
    Some(bytes / PAGE as u64)
}

impl Pool {
    fn apply(&mut self, request: &Request) -> Outcome {
        self.carry_out(request).map_err(|refusal| refusal.code)
    }

    fn carry_out(&mut self, request: &Request) -> volumeplan::Result<Option<u64>> {
        match *request {
            Request::Create { name, kind, pages, exactly, ref from } => self.create(name, kind, pages, exactly, from),
            Request::Delete { name } => {
                let Some(id) = Removal::of_volume(&volume_id(name), &Reach::Shared)? else { return Ok(None) };
                let users = self.users.get(&id).cloned().unwrap_or_default();
                if volumeplan::delete_volume(self.volumes.get(&id), &users)? == Removal::Remove {
                    self.volumes.remove(&id);
                }
                Ok(None)
            }
            Request::Snapshot { name, of } => {
                let wanted = snapshot::Request {
                    name: format!("name-{name}"),
                    source: volume_id(of),
                    parameters: Parameters::default(),
                };
                let wanted = snapshot::admit(&wanted, &Reach::Shared)?;
                let now = Time { seconds: 1, nanos: 0 };
                let existing = self.snapshots.get(&wanted.id);
                let hold = self.users.get(&wanted.source).and_then(|users| users.hold.as_ref());
                let source = self.volumes.get(&wanted.source).map(|volume| (volume, hold));
                let (snapshot::Creation::Exists(made) | snapshot::Creation::Make(made)) =
                    snapshot::decide(&wanted, existing, source, now)?;
                let size = made.size;
                self.snapshots.insert(made.id.clone(), made);
                Ok(pages(size))
            }
            Request::DeleteSnapshot { name } => {
                let Some(id) = Removal::of_snapshot(&snapshot_id(name), &Reach::Shared)? else { return Ok(None) };
                if volumeplan::delete_snapshot(self.snapshots.contains_key(&id)) == Removal::Remove {
                    self.snapshots.remove(&id);
                }
                Ok(None)
            }
            Request::Grow { name, pages: wanted } => {
                let volume = self.volume(name)?;
                let grown = volumeplan::expand(&volume, Range { required: wanted * PAGE, limit: 0 }, FREE)?;
                if let Expansion::Grow { capacity } = grown {
                    self.volumes.insert(volume.id.clone(), Volume { capacity, ..volume });
                }
                Ok(pages(grown.capacity()))
            }
            Request::Publish { name, node, target, read_only, mode } => {
                let volume = self.volume(name)?;
                let wanted =
                    Publish { target: format!("/{target}"), read_only, capability: capability(volume.kind, mode) };
                let users = self.users.entry(volume.id.clone()).or_default();
                let made = volumeplan::publish(&volume, users, &node_name(node), &Reach::Shared, &wanted)?;
                if !made.recorded {
                    users.publications.push(made.publication);
                }
                Ok(None)
            }
            Request::Unpublish { name, node, target } => {
                let id = VolumeId::find(&volume_id(name), &Reach::Shared)?;
                let at = |other: &Publication| other.node == node_name(node) && other.target == format!("/{target}");
                self.users.entry(id).or_default().publications.retain(|other| !at(other));
                Ok(None)
            }
            Request::Hold { name, holder } => {
                let volume = self.volume(name)?;
                let users = self.users.entry(volume.id.clone()).or_default();
                users.hold = Some(volumeplan::hold(&volume, users, &format!("holder {holder}"))?.hold);
                Ok(None)
            }
            Request::Release { name, holder } => {
                let id = VolumeId::find(&volume_id(name), &Reach::Shared)?;
                let users = self.users.entry(id).or_default();
                if volumeplan::release_hold(users, &format!("holder {holder}"))? {
                    users.hold = None;
                }
                Ok(None)
            }
        }
    }

    fn volume(&self, name: usize) -> volumeplan::Result<Volume> {
        match VolumeId::look_up(&volume_id(name), &Reach::Shared)? {
            Lookup::Here(id) => {
                self.volumes.get(&id).cloned().ok_or_else(|| volumeplan::no_such::<VolumeId>(id.as_str()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn create(
        &mut self,
        name: usize,
        kind: Kind,
        wanted: i64,
        exactly: bool,
        from: &From,
    ) -> volumeplan::Result<Option<u64>> {
        let request = create::Request {
            name: format!("name-{name}"),
            range: Range { required: wanted * PAGE, limit: if exactly { wanted * PAGE } else { 0 } },
            capabilities: vec![capability(kind, AccessMode::SingleNodeWriter)],
            parameters: Parameters::default(),
            from: match from {
                From::Nothing => None,
                From::Volume(name) => Some(create::From::Volume(volume_id(*name))),
                From::Snapshot(name) => Some(create::From::Snapshot(snapshot_id(*name))),
            },
            topology: Requirement::default(),
        };
        let wanted = create::admit(&request, &Reach::Shared)?;
        let origin = match &wanted.source {
            None => None,
            Some(Source::Volume(id)) => {
                let hold = self.users.get(id).and_then(|users| users.hold.clone());
                self.volumes.get(id).map(|volume| Origin { kind: volume.kind, size: volume.capacity, hold })
            }
            Some(Source::Snapshot(id)) => {
                self.snapshots.get(id).map(|snapshot| Origin { kind: snapshot.kind, size: snapshot.size, hold: None })
            }
        };
        let seen = Seen { existing: self.volumes.get(&wanted.id).cloned(), origin, free: FREE };
        let (create::Creation::Exists(made) | create::Creation::Make(made)) = create::decide(&wanted, &seen)?;
        let capacity = made.capacity;
        self.volumes.insert(made.id.clone(), made);
        Ok(pages(capacity))
    }
}

/// The same by name, without IDs, records and messages.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Kind, size, and what it was made from.
    volumes: BTreeMap<usize, (Kind, i64, String)>,
    /// Kind, size, volume.
    snapshots: BTreeMap<usize, (Kind, i64, usize)>,
    /// Volume, node, target, whether it only reads, mode.
    users: Vec<(usize, usize, usize, bool, AccessMode)>,
    /// Volume to holder.
    holds: BTreeMap<usize, usize>,
}

impl Model {
    fn apply(&mut self, request: &Request) -> Outcome {
        match *request {
            Request::Create { name, kind, pages, exactly, ref from } => {
                let source = format!("{from:?}");
                if let Some((old_kind, size, old_source)) = self.volumes.get(&name) {
                    let same = *old_kind == kind && *old_source == source && *size >= pages;
                    let same = same && (!exactly || *size == pages);
                    return if same { Ok(Some(*size as u64)) } else { Err(Code::AlreadyExists) };
                }
                let origin = match from {
                    From::Nothing => None,
                    From::Volume(name) => Some(self.volumes.get(name).map(|(kind, size, _)| (*kind, *size))),
                    From::Snapshot(name) => Some(self.snapshots.get(name).map(|(kind, size, _)| (*kind, *size))),
                };
                match origin {
                    Some(None) => return Err(Code::NotFound),
                    Some(Some((other, _))) if other != kind => return Err(Code::InvalidArgument),
                    Some(Some(_)) if matches!(from, From::Volume(of) if self.holds.contains_key(of)) => {
                        return Err(Code::FailedPrecondition);
                    }
                    Some(Some((_, size))) if size > pages => return Err(Code::OutOfRange),
                    _ if pages * PAGE > FREE as i64 => return Err(Code::ResourceExhausted),
                    _ => {}
                }
                self.volumes.insert(name, (kind, pages, source));
                Ok(Some(pages as u64))
            }
            Request::Delete { name } => {
                let used = self.users.iter().any(|user| user.0 == name) || self.holds.contains_key(&name);
                if self.volumes.contains_key(&name) && used {
                    return Err(Code::FailedPrecondition);
                }
                self.volumes.remove(&name);
                Ok(None)
            }
            Request::Snapshot { name, of } => {
                let made = match (self.snapshots.get(&name), self.volumes.get(&of)) {
                    (Some(old), _) if old.2 == of => *old,
                    (Some(_), _) => return Err(Code::AlreadyExists),
                    (None, None) => return Err(Code::NotFound),
                    (None, Some(_)) if self.holds.contains_key(&of) => return Err(Code::FailedPrecondition),
                    (None, Some((kind, size, _))) => (*kind, *size, of),
                };
                self.snapshots.insert(name, made);
                Ok(Some(made.1 as u64))
            }
            Request::DeleteSnapshot { name } => {
                self.snapshots.remove(&name);
                Ok(None)
            }
            Request::Grow { name, pages } => {
                let (_, size, _) = self.volumes.get_mut(&name).ok_or(Code::NotFound)?;
                if pages > *size {
                    if (pages - *size) * PAGE > FREE as i64 {
                        return Err(Code::OutOfRange);
                    }
                    *size = pages;
                }
                Ok(Some(*size as u64))
            }
            Request::Publish { name, node, target, read_only, mode } => {
                if !self.volumes.contains_key(&name) {
                    return Err(Code::NotFound);
                }
                if self.holds.contains_key(&name) {
                    return Err(Code::FailedPrecondition);
                }
                let new = (name, node, target, read_only || mode.only_reads(), mode);
                let users: Vec<_> = self.users.iter().filter(|user| user.0 == name).copied().collect();
                // The order of the records decides which refusal comes first, and both are final.
                for old in users {
                    if (old.1, old.2) == (node, target) {
                        if old == new {
                            continue;
                        }
                        return Err(Code::AlreadyExists);
                    }
                    let exclusive = [old.4, mode].contains(&AccessMode::SingleNodeSingleWriter);
                    let elsewhere = old.1 != node;
                    let one_node = !old.4.many_nodes() || !mode.many_nodes();
                    let one_writer = [old.4, mode].contains(&AccessMode::MultiNodeSingleWriter) && !old.3 && !new.3;
                    if exclusive || (elsewhere && (one_node || one_writer)) {
                        return Err(Code::FailedPrecondition);
                    }
                }
                if !self.users.contains(&new) {
                    self.users.push(new);
                }
                Ok(None)
            }
            Request::Unpublish { name, node, target } => {
                self.users.retain(|user| (user.0, user.1, user.2) != (name, node, target));
                Ok(None)
            }
            Request::Hold { name, holder } => {
                if !self.volumes.contains_key(&name) {
                    return Err(Code::NotFound);
                }
                let other = self.holds.get(&name).is_some_and(|other| *other != holder);
                if other || self.users.iter().any(|user| user.0 == name) {
                    return Err(Code::FailedPrecondition);
                }
                self.holds.insert(name, holder);
                Ok(None)
            }
            Request::Release { name, holder } => {
                if self.holds.get(&name) == Some(&holder) {
                    self.holds.remove(&name);
                }
                Ok(None)
            }
        }
    }
}

fn requests() -> impl Strategy<Value = Request> {
    use AccessMode::*;
    let name = || 0..4_usize;
    let kind = prop_oneof![3 => Just(Kind::Block), 1 => Just(Kind::Filesystem)];
    let from = prop_oneof![Just(From::Nothing), name().prop_map(From::Volume), name().prop_map(From::Snapshot)];
    let mode = prop_oneof![
        Just(SingleNodeWriter),
        Just(SingleNodeReaderOnly),
        Just(MultiNodeReaderOnly),
        Just(MultiNodeSingleWriter),
        Just(MultiNodeMultiWriter),
        Just(SingleNodeSingleWriter),
        Just(SingleNodeMultiWriter),
    ];
    prop_oneof![
        4 => (name(), kind, 1..9_i64, any::<bool>(), from)
            .prop_map(|(name, kind, pages, exactly, from)| Request::Create { name, kind, pages, exactly, from }),
        2 => name().prop_map(|name| Request::Delete { name }),
        2 => (name(), name()).prop_map(|(name, of)| Request::Snapshot { name, of }),
        1 => name().prop_map(|name| Request::DeleteSnapshot { name }),
        1 => (name(), 1..20_i64).prop_map(|(name, pages)| Request::Grow { name, pages }),
        4 => (name(), 0..2_usize, 0..3_usize, any::<bool>(), mode).prop_map(|(name, node, target, read_only, mode)| {
            Request::Publish { name, node, target, read_only, mode }
        }),
        2 => (name(), 0..2_usize, 0..3_usize)
            .prop_map(|(name, node, target)| Request::Unpublish { name, node, target }),
        2 => (name(), 0..2_usize).prop_map(|(name, holder)| Request::Hold { name, holder }),
        2 => (name(), 0..2_usize).prop_map(|(name, holder)| Request::Release { name, holder }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decisions_agree_with_the_model_and_repeats_change_nothing(story in prop::collection::vec(requests(), 1..40)) {
        let (mut pool, mut model) = (Pool::default(), Model::default());
        for request in &story {
            let before = pool.clone();
            let outcome = pool.apply(request);
            prop_assert_eq!(outcome, model.apply(request), "{:?}", request);
            if outcome.is_err() {
                prop_assert_eq!(settled(&pool), settled(&before), "a refusal changed something: {:?}", request);
            }
            let after = pool.clone();
            prop_assert_eq!(pool.apply(request), outcome, "again: {:?}", request);
            prop_assert_eq!(settled(&pool), settled(&after), "a repeat changed something: {:?}", request);
            let lost = after.users.iter().find(|(id, users)| **users != Users::default() && !after.volumes.contains_key(id));
            prop_assert!(lost.is_none(), "a volume in use was deleted: {:?}", lost);
            let both = after.users.values().find(|users| users.hold.is_some() && !users.publications.is_empty());
            prop_assert!(both.is_none(), "a volume is filled and used at once: {:?}", both);
        }
    }
}

/// Without empty lists, which mean nothing.
fn settled(pool: &Pool) -> Pool {
    let mut pool = pool.clone();
    pool.users.retain(|_, users| *users != Users::default());
    pool
}
