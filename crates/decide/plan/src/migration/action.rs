use std::fmt;
use std::time::Duration;

use api::reasons;
use api::v1::VirtualMachineInstanceMigration;
use json_patch::Patch;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};

use super::kinds;
use crate::guard::paths;
use crate::{Note, meta};

/// Every effect this controller can have.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Replaces the migration's status, guarded by its resource version.
    UpdateStatus(Box<VirtualMachineInstanceMigration>),
    /// Patches the migration's metadata.
    PatchMigration(Patch),
    /// Deletes a migration of the namespace if it still has this UID: this one or an older one.
    DeleteMigration {
        name: String,
        uid: String,
        because: &'static str,
    },
    /// Patches the instance, guarded by tests.
    PatchVmi {
        patch: Patch,
        because: &'static str,
    },
    /// The patch that gives the migration to the nodes. Once it has succeeded, whoever decides must know at once
    /// ([`World::handed_off`](super::World::handed_off)): the caches will not for a while.
    HandOff(Patch),
    /// A live look has shown that the nodes do not have the migration, whatever this process believed.
    ForgetHandOff,
    /// Takes the one lock for starts, looks at the caches again and at the source live. [`start`](super::start) says what
    /// follows, and is followed before the lock is given back.
    Start,
    /// Looks at the instance, its migrations and the target Pod live. [`hand_off`](super::hand_off) says what follows.
    ConfirmHandOff,
    /// Looks for the Job that finds out how the migration ended. [`recover`](super::recover) says what follows.
    Recover {
        because: String,
    },
    /// Creates the target Pod. One of this name with the same controller is success.
    CreateTarget {
        pod: Box<Pod>,
        because: &'static str,
    },
    /// Creates the Pod that brings plugged volumes to the target. One of this name with the same controller is success.
    CreateAttachment {
        pod: Box<Pod>,
        because: &'static str,
    },
    /// Deletes a Pod if it still has this UID.
    DeletePod {
        name: String,
        uid: String,
        because: &'static str,
    },
    PatchPod {
        name: String,
        patch: Patch,
        because: &'static str,
    },
    CreateClaim {
        claim: Box<PersistentVolumeClaim>,
        because: &'static str,
    },
    DeleteClaim {
        name: String,
        uid: String,
        because: &'static str,
    },
    PatchClaim {
        name: String,
        patch: Patch,
        because: &'static str,
    },
    CreateJob(Box<Job>),
    /// Deletes a Job and its Pods.
    DeleteJob {
        name: String,
        uid: String,
        because: &'static str,
    },
    /// Reads the instance live. If there is none, `then` follows; otherwise the cache is behind.
    ConfirmNoVmi {
        then: Vec<Action>,
    },
    /// Reads the instance live. If it says of migrations what it says in the cache, `then` follows; otherwise the cache is
    /// behind.
    ConfirmState {
        then: Vec<Action>,
    },
    /// Reads the migration's target Pods live. If there are none, `then` follows; otherwise the cache is behind.
    ConfirmNoTarget {
        then: Vec<Action>,
    },
    /// Reads the instance live. Unless its guest is on this node, `then` follows.
    ConfirmGuestNotOn {
        node: String,
        then: Vec<Action>,
    },
    /// Publishes an event on the migration.
    Note(Note),
    /// Publishes an event on the instance.
    NoteVmi(Note),
    /// Has those that wait for room looked at now, the most urgent first.
    WakePending,
    /// Another look after this time, with this priority.
    RequeueAfter {
        delay: Duration,
        priority: i32,
    },
}

impl Action {
    /// The reason under which a failure of this action is shown on the migration. Failures of the others are only
    /// retried: they are writes to the object that would have to show it, or lookups.
    pub fn failure_reason(&self) -> Option<&'static str> {
        match self {
            Self::CreateTarget { .. } | Self::CreateAttachment { .. } | Self::CreateClaim { .. } => {
                Some(reasons::FAILED_CREATE)
            }
            // What it inserts fails under a reason of its own; this is for the creation made while the lock is held.
            Self::Start => Some(reasons::FAILED_CREATE),
            Self::DeletePod { .. } | Self::DeleteClaim { .. } => Some(reasons::FAILED_DELETE),
            Self::HandOff(_) => Some(reasons::FAILED_HAND_OVER),
            _ => None,
        }
    }
}

/// For logs: what is done to which object, and never what is in it.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UpdateStatus(migration) => {
                let phase = kinds::phase(migration).map_or("unset", |phase| phase.as_str());
                write!(f, "update the status, phase {phase}")
            }
            Self::PatchMigration(patch) => write!(f, "patch the migration: {}", paths(patch)),
            Self::DeleteMigration { name, because, .. } => write!(f, "delete migration {name}: {because}"),
            Self::PatchVmi { patch, because } => write!(f, "patch the instance: {}: {because}", paths(patch)),
            Self::HandOff(patch) => write!(f, "hand off to the nodes: {}", paths(patch)),
            Self::ForgetHandOff => f.write_str("forget the hand-off"),
            Self::Start => f.write_str("start under the lock"),
            Self::ConfirmHandOff => f.write_str("look live before the hand-off"),
            Self::Recover { because } => write!(f, "find out how it ended: {because}"),
            Self::CreateTarget { pod, because } | Self::CreateAttachment { pod, because } => {
                write!(f, "create Pod {}: {because}", meta::name(&pod.metadata))
            }
            Self::DeletePod { name, because, .. } => write!(f, "delete Pod {name}: {because}"),
            Self::PatchPod { name, patch, because } => write!(f, "patch Pod {name}: {}: {because}", paths(patch)),
            Self::CreateClaim { claim, because } => {
                write!(f, "create PersistentVolumeClaim {}: {because}", meta::name(&claim.metadata))
            }
            Self::DeleteClaim { name, because, .. } => write!(f, "delete PersistentVolumeClaim {name}: {because}"),
            Self::PatchClaim { name, because, .. } => write!(f, "patch PersistentVolumeClaim {name}: {because}"),
            Self::CreateJob(job) => write!(f, "create Job {}", meta::name(&job.metadata)),
            Self::DeleteJob { name, because, .. } => write!(f, "delete Job {name}: {because}"),
            Self::ConfirmNoVmi { then } => confirmed(f, "if the instance is gone:", then),
            Self::ConfirmState { then } => confirmed(f, "if the instance says the same live:", then),
            Self::ConfirmNoTarget { then } => confirmed(f, "if the target Pod is gone:", then),
            Self::ConfirmGuestNotOn { node, then } => confirmed(f, &format!("if the guest is not on {node}:"), then),
            Self::Note(note) => write!(f, "event {}", note.reason),
            Self::NoteVmi(note) => write!(f, "event {} on the instance", note.reason),
            Self::WakePending => f.write_str("wake those that wait for room"),
            Self::RequeueAfter { delay, .. } => write!(f, "look again after {delay:?}"),
        }
    }
}

fn confirmed(f: &mut fmt::Formatter<'_>, when: &str, then: &[Action]) -> fmt::Result {
    f.write_str(when)?;
    then.iter().try_for_each(|action| write!(f, " {action};"))
}
