//! The effects and live checks specific to this controller.

use std::fmt;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use api::{labels, reasons};
use json_patch::Patch;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use machinery::names::NodeName;

use super::confirm::{has_left, has_target_among, says_the_same};
use super::kinds;
use super::world::World;
use crate::effect::{Deed, Doubt, Effect, Query, Why, reference};
use crate::guard::paths;
use crate::object::{Kind, Object};
use crate::{Note, meta};

/// The delay before another look after a lost race, when caches and live reads disagree, and while claims are handed
/// over.
pub(super) const SHORTLY: Duration = Duration::from_secs(1);

/// Every effect this controller can have.
pub type Action = Effect<Look, Own>;

/// Effects that only this controller has.
#[derive(Clone, Debug, PartialEq)]
pub enum Own {
    /// The patch that hands the migration off to the nodes. Once it has succeeded, the next decision must know
    /// ([`World::handed_off`]) even while the caches are still stale.
    HandOff(Patch),
    /// A live read has shown that the migration is not handed off, contrary to what this process has recorded.
    ForgetHandOff,
    /// Takes the global start lock, gathers the world again from the caches and reads the source live.
    /// [`start`](super::start) decides what follows; its effects are executed before the lock is released.
    Start,
    /// Reads the VMI, its migrations and the target Pod live. [`hand_off`](super::hand_off) decides what follows.
    ConfirmHandOff,
    /// Looks up the Job that determines how the migration ended. [`recover`](super::recover) decides what follows.
    Recover { because: String },
    /// Creates the target Pod, which counts against the limits before it appears in the caches. If a Pod of this name
    /// with the same controller already exists, that is success.
    CreateTarget { pod: Box<Pod>, because: &'static str },
    /// Requeues the migrations that wait for room, the most urgent first.
    WakePending,
    /// Requeues the key after this time, with this priority.
    RequeueAfter { delay: Duration, priority: i32 },
}

/// What is verified by a live read before an irreversible effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The VMI does not exist.
    NoVmi,
    /// The VMI's migration state is the same as in the cache.
    SameState,
    /// The migration has no target Pods.
    NoTarget,
    /// The guest is not on this node.
    GuestNotOn { node: NodeName },
}

impl Deed for Look {}

impl Doubt<World> for Look {
    fn queries(&self, w: &World) -> Vec<Query> {
        let namespace = meta::namespace(&w.migration.metadata);
        match self {
            Self::NoTarget => {
                vec![Query::list(Kind::Pod, namespace, format!("{}={}", labels::MIGRATION_JOB_UID, w.uid()))]
            }
            Self::NoVmi | Self::SameState | Self::GuestNotOn { .. } => {
                let name = w.migration.spec.vmi_name.as_deref();
                name.map(|name| Query::get(Kind::Vmi, namespace, name)).into_iter().collect()
            }
        }
    }

    fn holds(&self, w: &World, found: &[Object]) -> bool {
        let stored = || found.iter().find_map(|object| concerned(w, object));
        match self {
            Self::NoVmi => stored().is_none(),
            Self::SameState => says_the_same(w, stored()),
            Self::NoTarget => !has_target_among(w, found.iter().filter_map(pod)),
            Self::GuestNotOn { node } => has_left(w, stored(), node),
        }
    }
}

/// The VMI of the migration, if `object` is that VMI.
fn concerned<'a>(w: &World, object: &'a Object) -> Option<&'a VirtualMachineInstance> {
    let Object::Vmi(vmi) = object else { return None };
    kinds::concerns(&w.migration, vmi).then_some(vmi)
}

fn pod(object: &Object) -> Option<&Pod> {
    let Object::Pod(pod) = object else { return None };
    Some(pod)
}

/// Patches the VMI, guarded by test operations.
pub(super) fn patch_vmi(vmi: &VirtualMachineInstance, patch: Patch, because: &'static str) -> Action {
    Action::patch_at(Kind::Vmi, &vmi.metadata, patch, because)
}

pub(super) fn patch_pod(pod: &Pod, patch: Patch, because: &'static str) -> Action {
    Action::patch(Kind::Pod, meta::name(&pod.metadata), patch, because)
}

pub(super) fn delete_pod(pod: &Pod, because: &'static str) -> Action {
    Action::delete(Kind::Pod, &pod.metadata, Why::shown(reasons::FAILED_DELETE, because))
}

pub(super) fn delete_claim(claim: &PersistentVolumeClaim, because: &'static str) -> Action {
    Action::delete(Kind::Claim, &claim.metadata, Why::shown(reasons::FAILED_DELETE, because))
}

/// Patches the migration's metadata.
pub(super) fn patch_migration(w: &World, patch: Patch) -> Action {
    Action::patch(Kind::Migration, meta::name(&w.migration.metadata), patch, Why::default())
}

/// Records an event on the VMI.
pub(super) fn note_vmi(w: &World, note: Note) -> Action {
    match w.vmi.as_deref() {
        Some(vmi) => Action::NoteAbout(Box::new(reference::<VirtualMachineInstance>(&vmi.metadata)), note),
        None => Action::Note(note),
    }
}

pub(super) fn requeue_after(delay: Duration, priority: i32) -> Action {
    Action::Own(Own::RequeueAfter { delay, priority })
}

impl Deed for Own {
    fn on_failure(&self) -> Option<&'static str> {
        match self {
            // The effects that it inserts have reasons of their own; this one is for the creation under the lock.
            Self::CreateTarget { .. } | Self::Start => Some(reasons::FAILED_CREATE),
            Self::HandOff(_) => Some(reasons::FAILED_HAND_OVER),
            Self::ForgetHandOff | Self::ConfirmHandOff | Self::Recover { .. } => None,
            Self::WakePending | Self::RequeueAfter { .. } => None,
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVmi => f.write_str("the instance is gone"),
            Self::SameState => f.write_str("a live read shows the same migration state"),
            Self::NoTarget => f.write_str("the target Pod is gone"),
            Self::GuestNotOn { node } => write!(f, "the guest is not on {node}"),
        }
    }
}

/// For logs: names the operation and the object, never the object's content.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HandOff(patch) => write!(f, "hand off to the nodes: {}", paths(patch)),
            Self::ForgetHandOff => f.write_str("forget the hand-off: a live read shows that it did not happen"),
            Self::Start => f.write_str("check the limits and create the target Pod"),
            Self::ConfirmHandOff => {
                f.write_str("read the instance, its migrations and the target Pod live before the hand-off")
            }
            Self::Recover { because } => write!(f, "find out how the migration ended: {because}"),
            Self::CreateTarget { pod, because } => write!(f, "create Pod {}: {because}", meta::name(&pod.metadata)),
            Self::WakePending => f.write_str("requeue pending migrations"),
            Self::RequeueAfter { delay, .. } => write!(f, "requeue after {delay:?}"),
        }
    }
}
