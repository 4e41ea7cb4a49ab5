//! Storage in detail: claims that bind, volumes that nodes mount for Pods, disks that guests have open.
//!
//! Only the simulation knows who really uses a volume ([`Disks`]). Whether a node may mount it, and whether it may be
//! deleted, is the decision that the volume engine ships (`volumeplan`); the rest are models: the provisioner, the
//! protection of claims that Pods use, the kubelet's mounts, and virt-handler, which brings disks to guests. They are
//! correct but slow, and fail as the script says. A lost race is that of two Pods for one volume.

use std::collections::BTreeMap;
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VolumePhase};
use informer::Key;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use machinery::meta::{has_finalizer, is_deleting, remove_finalizer};
use virt_controller::api::Part;
use volumeplan::{
    Access, AccessMode, Capability, Kind as Form, NodeName, PoolId as _, Publish, Reach, RequestName, Users, Volume,
    VolumeId,
};

use super::build::{IMMEDIATE, PROTECTION, STANDARD};
use super::{build, claims_of, has_ended, node_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, uid};
use crate::plant::Plant;
use crate::script::{ClaimFate, EjectFate, Fault, MountFate, vm_name, volume_name};
use crate::server::{Change, Verb, Writer};

/// How often what has failed is tried again.
const RETRY: Duration = Duration::from_secs(4);
/// A mount that takes no longer is written before the guest gets the disk.
const FIRST_WRITTEN: Duration = Duration::from_secs(3);

/// What the actors have in hand.
#[derive(Default)]
pub(crate) struct Work {
    claims: u64,
    /// By the claim's UID: how much later than usual it is bound, if ever.
    late: BTreeMap<String, Option<Duration>>,
    /// By the UIDs of Pod and claim.
    mounts: BTreeMap<(String, String), Mount>,
    ejects: u64,
    /// By the VMI's UID and the volume's name.
    asked: BTreeMap<(String, String), Asked>,
    /// Disks that virt-handler has given to guests, and when it writes so.
    unwritten: BTreeMap<(String, String), Duration>,
}

/// A volume that a node is to mount for a Pod.
#[derive(Clone, Copy)]
struct Mount {
    since: Duration,
    fate: Option<MountFate>,
}

/// A disk that a guest has been asked to let go.
#[derive(Clone, Copy)]
struct Asked {
    /// When it does; never, if it ignores the request.
    until: Option<Duration>,
}

/// Who really uses which volume. Volumes are known by the UIDs of their claims.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    volumes: BTreeMap<String, Stored>,
    /// By the VMI's UID and the volume's name.
    open: BTreeMap<(String, String), Open>,
}

#[derive(Debug)]
struct Stored {
    claim: Key,
    volume: Volume,
    mode: AccessMode,
    users: Users,
}

/// A disk that a guest has open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    /// The claim's UID.
    pub(crate) claim: String,
    pub(crate) node: String,
}

impl Disks {
    fn provision(&mut self, claim: &PersistentVolumeClaim) {
        let own = uid(&claim.metadata);
        let name = RequestName::parse(own).expect("a UID is a name");
        let shared =
            claim.spec.iter().flat_map(|spec| spec.access_modes.iter().flatten()).any(|mode| mode == "ReadWriteMany");
        let id = VolumeId::derive(&name, &Reach::Shared);
        let volume = Volume { id, name: own.to_owned(), capacity: 1 << 30, kind: Form::Filesystem, source: None };
        let mode = if shared { AccessMode::MultiNodeMultiWriter } else { AccessMode::SingleNodeWriter };
        let stored = Stored { claim: crate::kinds::key(&claim.metadata), volume, mode, users: Users::default() };
        self.volumes.entry(own.to_owned()).or_insert(stored);
    }

    /// Mounts the volume of a claim for a Pod, if the volume engine allows it.
    fn publish(&mut self, claim: &str, node: &str, pod: &str) -> Result<(), String> {
        let stored = self.volumes.get_mut(claim).ok_or("the claim is not bound")?;
        let access = Access::Mount { fs_type: String::new(), flags: vec![] };
        let capability = Capability { access: Some(access), mode: Some(stored.mode) };
        let request = Publish { target: pod.to_owned(), read_only: false, capability };
        let node = NodeName::parse(node).map_err(|refusal| refusal.message)?;
        let made = volumeplan::publish(&stored.volume, &stored.users, &node, &Reach::Shared, &request);
        let made = made.map_err(|refusal| refusal.message)?;
        if !made.recorded {
            stored.users.publications.push(made.publication);
        }
        Ok(())
    }

    fn unpublish(&mut self, pod: &str) {
        for stored in self.volumes.values_mut() {
            stored.users.publications.retain(|publication| publication.target != pod);
        }
    }

    /// Deletes the volume of a claim, if the volume engine allows it.
    fn delete(&mut self, claim: &str) -> Result<(), String> {
        let stored = self.volumes.get(claim);
        let (volume, none) = (stored.map(|stored| &stored.volume), Users::default());
        let users = stored.map_or(&none, |stored| &stored.users);
        volumeplan::delete_volume(volume, users).map_err(|refusal| refusal.message)?;
        self.volumes.remove(claim);
        Ok(())
    }

    /// The UID of the claim of this name that is mounted for a Pod.
    fn mounted(&self, pod: &str, claim: &str) -> Option<&str> {
        let here = |stored: &Stored| stored.users.publications.iter().any(|publication| publication.target == pod);
        let mut all = self.volumes.iter();
        all.find(|(_, stored)| stored.claim.name == claim && here(stored)).map(|(uid, _)| uid.as_str())
    }

    /// The guest opens a disk, unless another guest has it.
    fn open(&mut self, vmi: &str, volume: &str, claim: &str, node: &str) -> bool {
        let taken = self.open.iter().any(|((other, _), open)| open.claim == claim && other != vmi);
        if !taken {
            let open = Open { claim: claim.to_owned(), node: node.to_owned() };
            self.open.insert((vmi.to_owned(), volume.to_owned()), open);
        }
        !taken
    }

    /// A guest that starts opens what its launcher Pod has.
    pub(super) fn open_all(&mut self, vmi: &str, pod: &Pod) {
        let (own, node) = (uid(&pod.metadata), node_of(pod).unwrap_or_default());
        for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
            let Some(source) = &volume.persistent_volume_claim else { continue };
            if let Some(claim) = self.mounted(own, &source.claim_name).map(str::to_owned) {
                self.open(vmi, &volume.name, &claim, node);
            }
        }
    }

    fn close(&mut self, vmi: &str, volume: &str) {
        self.open.remove(&(vmi.to_owned(), volume.to_owned()));
    }

    pub(super) fn close_all(&mut self, vmi: &str) {
        self.open.retain(|(of, _), _| of != vmi);
    }

    pub(crate) fn has_open(&self, vmi: &str, volume: &str) -> bool {
        self.open.contains_key(&(vmi.to_owned(), volume.to_owned()))
    }

    /// The disks that guests have open: VMI, volume, and what it is.
    pub(crate) fn all_open(&self) -> impl Iterator<Item = (&str, &str, &Open)> {
        self.open.iter().map(|((vmi, volume), open)| (vmi.as_str(), volume.as_str(), open))
    }

    pub(crate) fn exists(&self, claim: &str) -> bool {
        self.volumes.contains_key(claim)
    }

    /// Whether a Pod of the node has the volume.
    pub(crate) fn is_on(&self, claim: &str, node: &str) -> bool {
        let stored = self.volumes.get(claim);
        stored.is_some_and(|stored| stored.users.publications.iter().any(|at| at.node.as_str() == node))
    }

    /// The Pods that have a volume, by UID, with the volume's claim.
    pub(crate) fn users(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.volumes.values();
        all.flat_map(|stored| {
            stored.users.publications.iter().map(|at| (at.target.as_str(), stored.claim.name.as_str()))
        })
    }
}

/// Whether Pods with the claim are bound to nodes.
pub(super) fn schedulable(claim: &PersistentVolumeClaim) -> Result<(), String> {
    let name = claim.metadata.name.as_deref().unwrap_or_default();
    if is_deleting(&claim.metadata) {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    if class == Some(IMMEDIATE) && !is_bound(claim) {
        return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
    }
    Ok(())
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
}

impl Sim {
    /// The claim that a user plugs, as it is created. With storage in detail, one is everybody's.
    pub(super) fn claim_to_plug(&self, vm: u8, volume: u8) -> PersistentVolumeClaim {
        let own = format!("{}-{}", vm_name(vm), volume_name(volume));
        match (self.script.storage, volume) {
            (false, _) => build::claim(&own),
            (true, 0) => build::unbound_claim(&own, STANDARD),
            (true, 1) => build::unbound_claim(&own, IMMEDIATE),
            (true, _) => build::unbound_claim(&format!("common-{}", volume_name(volume)), STANDARD),
        }
    }

    pub(super) fn notice_claim(&mut self, change: &Change, claim: &PersistentVolumeClaim) {
        let object = &change.last;
        if change.is.is_none() {
            let after = self.some_ms(100, 5_000);
            return self.act_after(after, Actor::Reclaimer, object);
        }
        if is_bound(claim) {
            self.judge.guests.disks.provision(claim);
        }
        let was_going = change.was.as_ref().is_some_and(|was| is_deleting(was.meta()));
        if is_deleting(&claim.metadata) && !was_going {
            let after = self.some_ms(50, 3_000);
            self.act_after(after, Actor::Protector, object);
        }
        if change.was.is_some() || claim.status.is_some() {
            return;
        }
        let number = self.world.storage.claims;
        self.world.storage.claims += 1;
        let late = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Claim { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        let late = match late {
            None => Some(Duration::ZERO),
            Some(ClaimFate::BindsLate(by)) => Some(by),
            Some(ClaimFate::NeverBinds) => None,
        };
        self.world.storage.late.insert(object.uid().to_owned(), late);
        let at_once = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some(IMMEDIATE);
        if let Some(late) = late.filter(|_| at_once) {
            let after = self.some_ms(100, 4_000);
            self.act_after(after + late, Actor::Binder, object);
        }
    }

    /// How much later than usual the claim is bound, if ever.
    pub(super) fn delay_of_binding(&self, claim: &Object) -> Option<Duration> {
        self.world.storage.late.get(claim.uid()).copied().unwrap_or(Some(Duration::ZERO))
    }

    /// A claim that is being deleted goes once no Pod uses it.
    pub(super) fn release_claim(&mut self, at: &Key, claim_uid: &str) {
        let Some(claim) = self.live::<PersistentVolumeClaim>(at, claim_uid) else { return };
        let used = {
            let hub = lock(&self.hub);
            let mut pods = hub.server.tables.pods.all();
            pods.any(|pod| {
                let here = pod.metadata.namespace.as_deref() == Some(&at.namespace);
                here && !has_ended(pod) && claims_of(pod).any(|name| name == at.name)
            })
        };
        if used || !has_finalizer(&claim.metadata, PROTECTION) {
            return self.act_after(RETRY, Actor::Protector, &Object::Claim(claim));
        }
        let mut free = (*claim).clone();
        remove_finalizer(&mut free.metadata, PROTECTION);
        lock(&self.hub).server.write_whole(Writer::Cdi, Verb::Update, free);
    }

    /// The claim is gone, and its volume goes, too.
    pub(super) fn reclaim(&mut self, at: &Key, claim_uid: &str) {
        if let Err(why) = self.judge.guests.disks.delete(claim_uid) {
            self.timeline.line(self.now, "storage", &format!("keeps the volume of {at}: {why}"));
            let event =
                crate::engine::Event::Act { actor: Actor::Reclaimer, key: at.clone(), uid: claim_uid.to_owned() };
            return self.schedule(RETRY, event);
        }
        self.timeline.line(self.now, "storage", &format!("deletes the volume of {at}"));
        self.disks_changed();
    }

    fn disks_changed(&mut self) {
        let server = &lock(&self.hub).server;
        self.judge.guest_changed(server);
    }

    /// The node mounts the Pod's volumes. Returns whether all are there; if not, the kubelet looks again.
    pub(super) fn mount(&mut self, pod: &Pod) -> bool {
        let node = node_of(pod).unwrap_or_default().to_owned();
        let mut missing = false;
        for name in claims_of(pod) {
            let at = Key::new(pod.metadata.namespace.clone().unwrap_or_default(), name);
            let claim = lock(&self.hub).server.lookup::<PersistentVolumeClaim>(&at);
            let mounted = match claim {
                Some(claim) => self.mount_one(&claim, &node, uid(&pod.metadata)),
                None => Err(format!("persistentvolumeclaim {name:?} not found")),
            };
            if let Err(why) = mounted {
                let own = pod.metadata.name.as_deref().unwrap_or_default();
                self.timeline.line(self.now, "kubelet", &format!("pod/{own} waits for {name}: {why}"));
                missing = true;
            }
        }
        if missing {
            self.act_after(RETRY, Actor::Kubelet, &Object::Pod(pod.clone().into()));
        }
        !missing
    }

    fn mount_one(&mut self, claim: &PersistentVolumeClaim, node: &str, pod: &str) -> Result<(), String> {
        let (now, script) = (self.now, self.script.clone());
        let claim = uid(&claim.metadata);
        let mounts = &mut self.world.storage.mounts;
        let number = mounts.len() as u64;
        let mount = *mounts.entry((pod.to_owned(), claim.to_owned())).or_insert_with(|| {
            let fate = script.faults.iter().find_map(|fault| match fault {
                Fault::Mount { nth, fate } if *nth == number => Some(*fate),
                _ => None,
            });
            Mount { since: now, fate }
        });
        match mount.fate {
            Some(MountFate::Slow(lasts)) if now < mount.since + lasts => {
                return Err("it is still being mounted".to_owned());
            }
            Some(MountFate::Fails(lasts)) if now < mount.since + lasts => return Err("the storage fails".to_owned()),
            _ => {}
        }
        self.judge.guests.disks.publish(claim, node, pod)
    }

    /// A Pod that may have volumes has ended or is gone.
    pub(super) fn notice_end_of_user(&mut self, pod: &Pod) {
        if !self.script.storage || claims_of(pod).next().is_none() {
            return;
        }
        let own = uid(&pod.metadata);
        let fates = self.world.storage.mounts.iter().filter(|((pod, _), _)| pod == own).map(|(_, mount)| mount.fate);
        let lingers = fates.map(|fate| match fate {
            Some(MountFate::Lingers(lasts)) => lasts,
            _ => Duration::ZERO,
        });
        let lingers = lingers.max().unwrap_or_default();
        let after = self.some_ms(50, 3_000);
        self.act_after(after + lingers, Actor::Unmounts, &Object::Pod(pod.clone().into()));
    }

    /// The node unmounts the volumes of a Pod that has ended. One that does not answer does so later, or is gone.
    pub(super) fn unmount(&mut self, at: &Key, pod: &str) {
        let users = self.judge.guests.disks.volumes.values().flat_map(|stored| &stored.users.publications);
        let node = users.into_iter().find(|user| user.target == pod).map(|user| user.node.as_str().to_owned());
        let Some(node) = node else { return };
        let known = lock(&self.hub).server.lookup::<Node>(&Key::new("", &node)).is_some();
        if known && !self.answers(&node) {
            let event = crate::engine::Event::Act { actor: Actor::Unmounts, key: at.clone(), uid: pod.to_owned() };
            return self.schedule(RETRY, event);
        }
        self.timeline.line(self.now, "kubelet", &format!("unmounts the volumes of pod/{}", at.name));
        self.judge.guests.disks.unpublish(pod);
        self.disks_changed();
    }

    /// virt-handler brings plugged disks to the guest, and asks it to let those go that left the spec.
    pub(super) fn attend_disks(&mut self, vmi: &VirtualMachineInstance) {
        let mut new = vmi.clone();
        let mut again: Option<Duration> = None;
        let node = vmi.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
        for entry in &mut new.status_mut().volume_status {
            let Some(plugged) = &entry.hotplug_volume else { continue };
            let claim = claim_of(vmi, &entry.name);
            let pod = plugged.attach_pod_uid.as_deref().unwrap_or_default();
            let held = claim.and_then(|claim| self.judge.guests.disks.mounted(pod, claim)).map(str::to_owned);
            let step = self.step(uid(&vmi.metadata), &node, &entry.name, entry.phase.as_ref(), claim.is_some(), held);
            match step {
                Step::None => continue,
                Step::Later(wait) => again = Some(again.map_or(wait, |known| known.min(wait))),
                Step::To(phase) => {
                    entry.target = if phase == VolumePhase::Ready { "sda".to_owned() } else { String::new() };
                    entry.phase = Some(phase);
                }
            }
        }
        self.disks_changed();
        let object = Object::Vmi(vmi.clone().into());
        if new != *vmi {
            let stored = lock(&self.hub).server.update(Writer::NodeAgent, Part::Object, new);
            stored.expect("written right after it was read");
            let after = self.some_ms(100, 2_000);
            return self.act_after(after, Actor::NodeAgent, &object);
        }
        if let Some(wait) = again {
            self.act_after(wait, Actor::NodeAgent, &object);
        }
    }

    /// One volume: whether it is wanted, and the claim that its attachment Pod has mounted.
    fn step(
        &mut self,
        vmi: &str,
        node: &str,
        volume: &str,
        phase: Option<&VolumePhase>,
        wanted: bool,
        held: Option<String>,
    ) -> Step {
        let key = (vmi.to_owned(), volume.to_owned());
        let open = self.judge.guests.disks.has_open(vmi, volume);
        // A guest that was asked lets go, whatever is wanted by now.
        if let Some(asked) = self.world.storage.asked.get(&key).copied().filter(|_| open) {
            match asked.until {
                Some(until) if until <= self.now => {
                    self.world.storage.asked.remove(&key);
                    self.judge.guests.disks.close(vmi, volume);
                    return Step::To(if wanted { VolumePhase::MountedToPod } else { VolumePhase::UnMountedFromPod });
                }
                Some(until) => return Step::Later(until - self.now),
                None => return Step::None,
            }
        }
        if let Some(writes) = self.world.storage.unwritten.get(&key).copied() {
            if writes > self.now {
                return Step::Later(writes - self.now);
            }
            self.world.storage.unwritten.remove(&key);
        }
        match (phase, wanted) {
            (Some(VolumePhase::Ready | VolumePhase::MountedToPod | VolumePhase::AttachedToNode), false) if open => {
                let until = self.ask_guest(key);
                if lock(&self.hub).plant == Some(Plant::EagerEject) {
                    return Step::To(VolumePhase::UnMountedFromPod);
                }
                until.map_or(Step::None, |until| Step::Later(until - self.now))
            }
            (Some(VolumePhase::Ready | VolumePhase::MountedToPod | VolumePhase::AttachedToNode), false) => {
                Step::To(VolumePhase::UnMountedFromPod)
            }
            (Some(VolumePhase::AttachedToNode), true) if open => Step::To(VolumePhase::Ready),
            (Some(VolumePhase::AttachedToNode), true) => match held {
                // Mounted, plugged, and only then written: that can take a while.
                Some(claim) => {
                    let late = self.some_ms(0, 6_000);
                    let first = late > FIRST_WRITTEN && self.judge.guests.disks.open(vmi, volume, &claim, node);
                    if !first {
                        return Step::To(VolumePhase::MountedToPod);
                    }
                    self.world.storage.unwritten.insert(key, self.now + late);
                    Step::Later(late)
                }
                None => Step::None,
            },
            (Some(VolumePhase::MountedToPod), true) => match held {
                Some(claim) if self.judge.guests.disks.open(vmi, volume, &claim, node) => Step::To(VolumePhase::Ready),
                Some(_) => Step::Later(RETRY), // QEMU finds it locked
                None => Step::None,
            },
            _ => Step::None,
        }
    }

    /// Asks the guest to let a disk go. Returns when it does.
    fn ask_guest(&mut self, key: (String, String)) -> Option<Duration> {
        let number = self.world.storage.ejects;
        self.world.storage.ejects += 1;
        let fate = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Eject { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        let usual = self.some_ms(50, 3_000);
        let until = match fate {
            None => Some(self.now + usual),
            Some(EjectFate::Slow(by)) => Some(self.now + usual + by),
            Some(EjectFate::Ignored) => None,
        };
        self.world.storage.asked.insert(key, Asked { until });
        until
    }
}

/// What virt-handler does about a volume.
enum Step {
    None,
    To(VolumePhase),
    /// It looks again after this time.
    Later(Duration),
}

/// The claim of a volume that is wanted.
fn claim_of<'a>(vmi: &'a VirtualMachineInstance, volume: &str) -> Option<&'a str> {
    let ours = vmi.spec.utility_volumes.iter().find(|ours| ours.name == volume).map(|ours| ours.claim_name.as_str());
    let own = vmi.spec.volumes.iter().find(|own| own.name == volume).and_then(|own| own.source().claim_name());
    own.or(ours)
}
