//! All actors but the controllers: scheduler, kubelet, virt-handler, CDI, garbage collector, user.
//!
//! Each is notified of changes at once, decides when to act on them, and then acts on the state at that time. They are
//! correct but slow; their failures are in the script.

mod between;
mod build;
mod cdi;
mod collector;
mod guests;
mod journey;
mod kubelet;
mod movers;
mod node_agent;
mod nodes;
mod scheduler;
mod state;
mod storage;
mod user;
mod utility;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use api::{annotations, labels};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::{annotation, controller_of, is_controlled_by, is_deleting, label};

use crate::engine::{Actor, Event, Sim};
use crate::hub::lock;
use crate::kinds::{Object, key, uid};
use crate::script::{Fault, GuestFate, PodFate, VolumeFate};
use crate::server::{Change, Server, Writer};

pub(crate) use build::furniture;
pub(crate) use guests::Guests;
pub(crate) use machinery::pod::has_ended;
pub(crate) use state::answer_job;
pub(crate) use user::ask_to_leave;

/// State of the actors besides the API.
#[derive(Default)]
pub(crate) struct World {
    /// Nodes that do not respond.
    pub(crate) silent: BTreeSet<String>,
    launchers: u64,
    attended: BTreeSet<String>,
    guests: u64,
    volumes: u64,
    jobs: u64,
    pod_fates: BTreeMap<String, PodFate>,
    guest_fates: BTreeMap<String, GuestFate>,
    volume_fates: BTreeMap<String, VolumeFate>,
    /// Jobs that end without a result, by UID, and how.
    mute: BTreeMap<String, &'static str>,
    /// By the migration's UID.
    journeys: BTreeMap<String, journey::Journey>,
    storage: storage::Work,
}

impl World {
    /// Guests that migrated to another node.
    pub(crate) fn arrivals(&self) -> u64 {
        self.journeys.values().filter(|journey| journey.stage == journey::Stage::Arrived).count() as u64
    }
}

/// Whether the Pod is a launcher Pod.
pub(crate) fn is_launcher(pod: &Pod) -> bool {
    label(&pod.metadata, labels::APP) == Some(labels::app::LAUNCHER) && !is_ephemeral(pod)
}

/// Whether the Pod only makes storage bind.
pub(crate) fn is_ephemeral(pod: &Pod) -> bool {
    annotation(&pod.metadata, annotations::EPHEMERAL_PROVISIONING).is_some()
}

/// Whether the Pod is a migration target.
pub(crate) fn is_target(pod: &Pod) -> bool {
    is_launcher(pod) && label(&pod.metadata, labels::MIGRATION_JOB_UID).is_some()
}

pub(crate) fn is_attachment(pod: &Pod) -> bool {
    label(&pod.metadata, labels::APP) == Some(labels::app::HOTPLUG_DISK) && !is_ephemeral(pod)
}

pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())
}

pub(crate) fn phase_of(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The names of the claims that the Pod uses.
pub(crate) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()).map(|source| source.claim_name.as_str())
}

/// The existing launcher Pods of a VMI, oldest first.
pub(crate) fn launchers_of<'a>(server: &'a Server, vmi_uid: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
    server.tables.pods.all().filter(move |pod| is_controlled_by(&pod.metadata, vmi_uid) && is_launcher(pod))
}

impl Sim {
    /// Creates the initial cluster.
    pub(crate) fn furnish(&mut self) {
        furniture(&mut lock(&self.hub).server, &self.script);
        for node in 0..build::NODES {
            let after = self.some_ms(0, 60_000);
            self.schedule(after, Event::Heartbeat { node });
        }
    }

    pub(crate) fn act_after(&mut self, after: Duration, actor: Actor, object: &Object) {
        self.schedule(after, Event::Act { actor, key: object.key(), uid: object.uid().to_owned() });
    }

    pub(crate) fn act(&mut self, actor: Actor, key: &Key, uid: &str) {
        match actor {
            Actor::Scheduler => self.bind(key, uid),
            Actor::Kubelet => self.run_pod(key, uid),
            Actor::KubeletKill => self.kill_pod(key, uid),
            Actor::KubeletEvict => self.evict_pod(key, uid),
            Actor::KubeletReap => self.reap_pod(key, uid),
            Actor::NodeAgent => self.attend(key, uid),
            Actor::GuestEnds { crashed } => self.end_guest(key, uid, crashed),
            Actor::Sends { journey } => self.send_memory(key, uid, journey),
            Actor::Severs { journey } => self.sever(journey),
            Actor::BackupEnds => self.end_backup(key, uid),
            Actor::UtilityEnds => self.end_utility(key, uid),
            Actor::Binder => self.bind_state_claim(key, uid),
            Actor::Protector => self.release_claim(key, uid),
            Actor::Reclaimer => self.reclaim(key, uid),
            Actor::Unmounts => self.unmount(key, uid),
            Actor::Job => self.run_job(key, uid),
            Actor::JobExpires => self.expire_job(key, uid),
            Actor::Cdi => self.import(key, uid),
            Actor::Collector => self.collect(),
        }
    }

    /// Notifies all actors of a change.
    pub(crate) fn notice(&mut self, change: &Change) {
        match &change.last {
            Object::Pod(pod) => self.notice_pod(change, &pod.clone()),
            Object::Vmi(vmi) => self.notice_vmi(change, &vmi.clone()),
            Object::DataVolume(_) if change.was.is_none() => {
                self.draw_volume_fate(change.last.uid());
                let after = self.some_ms(50, 2_000);
                self.act_after(after, Actor::Cdi, &change.last);
            }
            Object::Job(job) if change.was.is_none() => self.notice_job(&job.clone()),
            Object::Claim(claim) if self.script.storage => self.notice_claim(change, &claim.clone()),
            _ => {}
        }
        let orphans = is_deleting(change.last.meta())
            && machinery::meta::has_finalizer(change.last.meta(), api::finalizers::ORPHAN);
        let dependent = change.was.is_none() && change.last.meta().owner_references.is_some();
        if change.is.is_none() || orphans || dependent {
            let after = self.some_ms(100, 4_000);
            self.act_after(after, Actor::Collector, &change.last);
        }
    }

    fn notice_pod(&mut self, change: &Change, pod: &Arc<Pod>) {
        let was = match &change.was {
            Some(Object::Pod(was)) => Some(was),
            _ => None,
        };
        if change.is.is_none() || has_ended(pod) {
            self.judge.guests.ends_in(change.last.uid());
            self.end_of_side(change.last.uid());
            self.notice_end_of_user(pod);
        }
        if change.is.is_none() {
            return self.notice_owner(pod);
        }
        if was.is_none() {
            self.draw_pod_fate(pod);
            let after = self.some_ms(20, 1_500);
            return self.act_after(after, Actor::Scheduler, &change.last);
        }
        let bound = node_of(pod).is_some() && was.is_some_and(|was| node_of(was).is_none());
        if bound {
            let after = self.some_ms(100, 4_000);
            self.act_after(after, Actor::Kubelet, &change.last);
            self.notice_consumer(pod);
        }
        if is_deleting(&pod.metadata) && was.is_some_and(|was| !is_deleting(&was.metadata)) {
            let after = self.some_ms(500, 6_000);
            self.act_after(after, Actor::KubeletReap, &change.last);
            self.notice_owner(pod);
        } else if has_ended(pod) && was.is_some_and(|was| !has_ended(was)) {
            self.notice_owner(pod);
        } else if change.by.is_controller() && phase_of(pod) == "Running" {
            // A readiness gate may have opened.
            let after = self.some_ms(20, 500);
            self.act_after(after, Actor::Kubelet, &change.last);
        }
    }

    /// virt-handler learns of a Pod's change through the VMI.
    fn notice_owner(&mut self, pod: &Pod) {
        let Some(owner) = controller_of(&pod.metadata) else { return };
        let event = Event::Act {
            actor: Actor::NodeAgent,
            key: Key::new(pod.metadata.namespace.clone().unwrap_or_default(), &owner.name),
            uid: owner.uid.clone(),
        };
        let after = self.some_ms(50, 2_500);
        self.schedule(after, event);
    }

    fn notice_vmi(&mut self, change: &Change, vmi: &Arc<VirtualMachineInstance>) {
        if change.is.is_none() {
            return;
        }
        if vmi.is_final() {
            // The launcher has nothing left to do.
            let pods: Vec<Object> = {
                let hub = lock(&self.hub);
                launchers_of(&hub.server, uid(&vmi.metadata)).cloned().map(Object::Pod).collect()
            };
            for pod in pods {
                let after = self.some_ms(100, 3_000);
                self.act_after(after, Actor::KubeletReap, &pod);
            }
        } else if change.by != Writer::NodeAgent && label(&vmi.metadata, labels::NODE_NAME).is_some() {
            let after = self.some_ms(50, 3_000);
            self.act_after(after, Actor::NodeAgent, &change.last);
        }
    }

    fn draw_pod_fate(&mut self, pod: &Pod) {
        if !is_launcher(pod) {
            return;
        }
        let number = self.world.launchers;
        self.world.launchers += 1;
        let fate = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Pod { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        if let Some(fate) = fate {
            self.world.pod_fates.insert(uid(&pod.metadata).to_owned(), fate);
        }
    }

    /// The fate of a guest is drawn when its node first sees it.
    fn draw_guest_fate(&mut self, vmi_uid: &str) {
        let number = self.world.guests;
        self.world.guests += 1;
        let fate = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Guest { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        if let Some(fate) = fate {
            self.world.guest_fates.insert(vmi_uid.to_owned(), fate);
        }
    }

    fn draw_volume_fate(&mut self, volume_uid: &str) {
        let number = self.world.volumes;
        self.world.volumes += 1;
        let fate = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Volume { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        if let Some(fate) = fate {
            self.world.volume_fates.insert(volume_uid.to_owned(), fate);
        }
    }

    /// The object, if it still has this UID.
    fn live<K: kube::Resource<DynamicType = ()> + 'static>(&self, at: &Key, wanted: &str) -> Option<Arc<K>> {
        let found = lock(&self.hub).server.lookup::<K>(at)?;
        (uid(found.meta()) == wanted && key(found.meta()) == *at).then_some(found)
    }

    fn answers(&self, node: &str) -> bool {
        !self.world.silent.contains(node)
    }
}
