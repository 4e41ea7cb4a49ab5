//! Backend storage of guests: its claims, and the Jobs that determine where a guest ran last.
//!
//! A Job reports the truth, if it reports anything: whether the source has recorded in its claim that the guest left.

use std::time::Duration;

use informer::Key;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::{build, claims_of};
use crate::engine::{Actor, Sim};
use crate::hub::lock;
use crate::kinds::{Object, key, uid};
use crate::script::{Fault, JobFate};
use crate::server::{Propagation, Server, Verb, Writer};

/// Timeout of a Job, and how long it is kept after it has ended.
const JOB: Duration = Duration::from_secs(30);

/// The UID of the backend-storage claim of a launcher Pod.
pub(super) fn claim_of(server: &Server, pod: &Pod) -> Option<String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let state = volumes.into_iter().find(|volume| volume.name == "vm-state")?;
    let name = &state.persistent_volume_claim.as_ref()?.claim_name;
    let claim = server.lookup::<PersistentVolumeClaim>(&beside(pod, name))?;
    Some(uid(&claim.metadata).to_owned())
}

/// The same, by the Pod's UID.
pub(super) fn claim_of_pod(server: &Server, pod: &str) -> Option<String> {
    server.tables.pods.all().find(|found| uid(&found.metadata) == pod).and_then(|pod| claim_of(server, pod))
}

fn beside(pod: &Pod, name: &str) -> Key {
    Key::new(pod.metadata.namespace.clone().unwrap_or_default(), name)
}

/// Sets the result of a Job.
pub(crate) fn answer_job(job: &mut Job, type_: &str, reason: &str) {
    let condition = JobCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        ..JobCondition::default()
    };
    job.status.get_or_insert_default().conditions = Some(vec![condition]);
}

fn has_ended(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.conditions.is_some())
}

impl Sim {
    /// A Pod was bound: so are the claims of which it is the first consumer.
    pub(super) fn notice_state_claims(&mut self, pod: &Pod) {
        let unbound: Vec<Object> = {
            let hub = lock(&self.hub);
            let claims = claims_of(pod).filter_map(|name| hub.server.tables.claims.get(&beside(pod, name)));
            claims.filter(|claim| claim.status.is_none()).cloned().map(Object::Claim).collect()
        };
        for claim in unbound {
            let after = self.some_ms(100, 2_000);
            if let Some(late) = self.delay_of_binding(&claim) {
                self.act_after(after + late, Actor::Binder, &claim);
            }
        }
    }

    pub(super) fn bind_state_claim(&mut self, at: &Key, uid: &str) {
        let Some(claim) = self.live::<PersistentVolumeClaim>(at, uid) else { return };
        if self.script.storage && claim.status.is_some() {
            return; // several Pods use it
        }
        let mut bound = (*claim).clone();
        let mut status = build::claim(&at.name).status.unwrap_or_default();
        status.access_modes = claim.spec.as_ref().and_then(|spec| spec.access_modes.clone());
        bound.status = Some(status);
        lock(&self.hub).server.write_whole(Writer::Cdi, Verb::UpdateStatus, bound);
    }

    pub(super) fn notice_job(&mut self, job: &std::sync::Arc<Job>) {
        let number = self.world.jobs;
        self.world.jobs += 1;
        let fate = self.script.faults.iter().find_map(|fault| match fault {
            Fault::Job { nth, fate } if *nth == number => Some(*fate),
            _ => None,
        });
        let object = Object::Job(job.clone());
        let usual = self.some_ms(500, 8_000);
        match fate {
            Some(JobFate::Dies) => self.world.mute.insert(object.uid().to_owned(), "BackoffLimitExceeded"),
            Some(JobFate::Hangs) => self.world.mute.insert(object.uid().to_owned(), "DeadlineExceeded"),
            _ => None,
        };
        let after = match fate {
            Some(JobFate::Hangs) => JOB,
            Some(JobFate::Slow(after)) => after,
            _ => usual,
        };
        self.act_after(after, Actor::Job, &object);
    }

    /// The Job checks and reports its result.
    pub(super) fn run_job(&mut self, at: &Key, job_uid: &str) {
        let Some(job) = self.live::<Job>(at, job_uid).filter(|job| !has_ended(job)) else { return };
        let mut new = (*job).clone();
        let found = self.look_for_note(&job);
        match (self.world.mute.get(job_uid), found) {
            (Some(why), _) => answer_job(&mut new, "Failed", why),
            (None, Some(true)) => answer_job(&mut new, "Complete", "Completed"),
            (None, Some(false)) => answer_job(&mut new, "Failed", "PodFailurePolicy"),
            // Its Pod does not start without the claim.
            (None, None) => {
                self.world.mute.insert(job_uid.to_owned(), "DeadlineExceeded");
                return self.act_after(JOB, Actor::Job, &Object::Job(job));
            }
        }
        let ended = Object::Job(lock(&self.hub).server.write_whole(Writer::Kubelet, Verb::UpdateStatus, new));
        self.act_after(JOB, Actor::JobExpires, &ended);
    }

    fn look_for_note(&self, job: &Job) -> Option<bool> {
        let pod = job.spec.as_ref()?.template.spec.as_ref()?;
        let volumes = pod.volumes.iter().flatten();
        let name = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()).next()?.claim_name.clone();
        let namespace = job.metadata.namespace.clone().unwrap_or_default();
        let claim = lock(&self.hub).server.lookup::<PersistentVolumeClaim>(&Key::new(namespace, name))?;
        Some(self.judge.guests.kept.has_left(uid(&claim.metadata)))
    }

    pub(super) fn expire_job(&mut self, at: &Key, job_uid: &str) {
        let Some(job) = self.live::<Job>(at, job_uid) else { return };
        let server = &mut lock(&self.hub).server;
        let gone =
            server.delete::<Job>(Writer::Kubelet, &key(&job.metadata), Some(job_uid), None, Propagation::Background);
        gone.expect("it was found just now");
    }
}
