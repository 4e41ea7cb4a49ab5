//! The effects and live checks specific to this controller.

use std::fmt;

use api::cdi::DataVolume;
use api::v1::VirtualMachine;
use api::{events, reasons};
use json_patch::Patch;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::world::World;
use crate::effect::{self, Deed, Doubt, Effect, Part, Query, Why};
use crate::meta;
use crate::object::{Kind, Object};

/// Every effect this controller can have.
pub type Action = Effect<Look, Own>;

/// Effects that only this controller has.
#[derive(Clone, Debug, PartialEq)]
pub enum Own {
    /// Does live access reviews, one at a time as [`access`](super::access) asks for them, and continues with `then`
    /// only if access is granted.
    Authorize { name: String, any_of: Vec<Vec<SubjectAccessReviewSpec>>, then: Vec<Action> },
    /// Creates a DataVolume. If one of this name that we control already exists, that is success, and so is a refusal
    /// that [`is_populated_already`](super::is_populated_already).
    CreateDataVolume { data_volume: Box<DataVolume>, claim_exists: bool },
}

/// What is verified by a live read before an irreversible effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The VM has no VMI.
    NoInstance,
    /// The VM is the one in the cache, and has the status that the VM in the cache has.
    SameMachine,
    /// The VM still exists and is not being deleted: a deleted one must not gain a dependent.
    OwnerAlive,
}

/// The reason of bookkeeping patches, which can only fail because of a conflict.
pub(super) const BOOKKEEPING: &str = "";

/// Reports a failure under this reason.
pub(super) fn shown_as(reason: &'static str) -> Why {
    if reason == BOOKKEEPING { Why::default() } else { Why::shown(reason, "") }
}

/// Adopts an ownerless object, if it still has this UID and a live read shows that the VM is still there.
pub(super) fn adopt(kind: Kind, object: &ObjectMeta, by: &VirtualMachine) -> Option<Action> {
    let owner = meta::controller_ref(by)?;
    let patch = json!({"metadata": {"uid": meta::uid(object), "ownerReferences": [owner]}});
    let adopt = Effect::Patch {
        kind,
        namespace: None,
        name: meta::name(object).to_owned(),
        part: Part::Object,
        patch: effect::Patch::Merge(patch),
        why: Why::shown(reasons::FAILED_CREATE, "it has no owner"),
    };
    Some(Action::confirm(Look::OwnerAlive, vec![adopt]))
}

/// Patches metadata or spec of the VM, guarded by test operations.
pub(super) fn patch_vm(vm: &VirtualMachine, patch: Patch, reason: &'static str) -> Action {
    Action::patch(Kind::Vm, meta::name(&vm.metadata), patch, shown_as(reason))
}

/// Stores the spec that a VMI is started from, or that of an instance type or preference. If a revision of this name
/// already exists, that is success: the name identifies the content.
pub(super) fn keep_revision(revision: ControllerRevision) -> Action {
    Action::create(revision, Why::shown(reasons::FAILED_CREATE, ""))
}

pub(super) fn drop_revision(revision: &ControllerRevision) -> Action {
    Action::delete(Kind::Revision, &revision.metadata, Why::shown(reasons::FAILED_DELETE, "it is no longer needed"))
}

impl Doubt<World> for Look {
    fn queries(&self, w: &World) -> Vec<Query> {
        let kind = match self {
            Self::NoInstance => Kind::Vmi,
            Self::SameMachine | Self::OwnerAlive => Kind::Vm,
        };
        let meta = &w.vm.metadata;
        vec![Query::get(kind, meta::namespace(meta), meta::name(meta))]
    }

    fn holds(&self, w: &World, found: &[Object]) -> bool {
        let own = &w.vm.metadata;
        match self {
            Self::NoInstance => !found.iter().any(|vmi| meta::is_controlled_by(vmi.meta(), meta::uid(own))),
            Self::SameMachine => found.iter().any(|vm| {
                let stored = vm.meta();
                stored.uid == own.uid && stored.resource_version == own.resource_version
            }),
            Self::OwnerAlive => found.iter().any(|vm| vm.meta().uid == own.uid && !meta::is_deleting(vm.meta())),
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoInstance => "the virtual machine has no instance",
            Self::SameMachine => "the virtual machine has not changed",
            Self::OwnerAlive => "the virtual machine is still there",
        })
    }
}

impl Deed for Look {
    fn on_failure(&self) -> Option<&'static str> {
        match self {
            Self::NoInstance | Self::SameMachine => None,
            Self::OwnerAlive => Some(reasons::FAILED_CREATE),
        }
    }
}

impl Deed for Own {
    fn on_failure(&self) -> Option<&'static str> {
        Some(match self {
            Self::Authorize { .. } => events::UNAUTHORIZED_DATA_VOLUME_CREATE,
            Self::CreateDataVolume { .. } => events::FAILED_DATA_VOLUME_CREATE,
        })
    }
}

/// For logs: names the operation and the object, never the object's content.
impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Authorize { name, .. } => write!(f, "ask whether DataVolume {name} may be copied"),
            Self::CreateDataVolume { data_volume, .. } => {
                write!(f, "create DataVolume {}", meta::name(&data_volume.metadata))
            }
        }
    }
}
