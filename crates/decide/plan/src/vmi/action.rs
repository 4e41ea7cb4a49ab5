//! The effects and live checks specific to this controller.

use std::fmt;

use api::labels;
use k8s_openapi::api::core::v1::Pod;
use machinery::names::NodeName;

use super::world::World;
use crate::effect::{Deed, Doubt, Effect, Query};
use crate::object::{Kind, Object};
use crate::{meta, pods};

/// Every effect this controller can have.
pub type Action = Effect<Look>;

/// What is verified by a live read before an irreversible effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// The VMI has no Pods of this sort.
    NoPods(Sort),
    /// The VM that controls the VMI is gone.
    NoOwner,
    /// No claim holds this guest's state.
    NoStateClaim,
    /// The migration with this UID is gone.
    NoMigration { uid: String },
    /// The VMI is unchanged since the cached version.
    Current,
}

/// Which of a VMI's Pods count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sort {
    /// All of them.
    All,
    /// Those that run or may run a guest, on this node if one is named.
    Launchers { node: Option<NodeName> },
}

impl Sort {
    /// Whether this Pod of the VMI counts.
    pub fn includes(&self, pod: &Pod) -> bool {
        match self {
            Self::All => true,
            Self::Launchers { node } => {
                !pods::is_temporary(pod)
                    && (node.is_none() || pods::node_name(pod) == node.as_ref().map(NodeName::as_str))
            }
        }
    }
}

impl Deed for Look {}

impl Doubt<World> for Look {
    fn queries(&self, w: &World) -> Vec<Query> {
        let meta = &w.vmi.metadata;
        let (namespace, name) = (meta::namespace(meta), meta::name(meta));
        let query = match self {
            Self::NoPods(_) => Query::list(Kind::Pod, namespace, format!("{}={}", labels::CREATED_BY, meta::uid(meta))),
            Self::NoOwner => {
                let Some(owner) = meta::controller_of(meta) else { return vec![] };
                Query::get(Kind::Vm, namespace, owner.name.as_str())
            }
            Self::NoStateClaim => {
                Query::list(Kind::Claim, namespace, format!("{}={name}", labels::PERSISTENT_STATE_FOR))
            }
            Self::NoMigration { .. } => Query::list(Kind::Migration, namespace, ""),
            Self::Current => Query::get(Kind::Vmi, namespace, name),
        };
        vec![query]
    }

    fn holds(&self, w: &World, found: &[Object]) -> bool {
        let own = &w.vmi.metadata;
        match self {
            Self::NoPods(sort) => !found.iter().any(|object| {
                let Object::Pod(pod) = object else { return false };
                meta::is_controlled_by(&pod.metadata, meta::uid(own)) && sort.includes(pod)
            }),
            Self::NoOwner => found.iter().all(|vm| !meta::is_controlled_by(own, meta::uid(vm.meta()))),
            Self::NoStateClaim => found.iter().all(|claim| meta::is_deleting(claim.meta())),
            Self::NoMigration { uid } => found.iter().all(|migration| meta::uid(migration.meta()) != uid),
            Self::Current => {
                found.first().and_then(|vmi| vmi.meta().resource_version.as_ref()) == own.resource_version.as_ref()
            }
        }
    }
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPods(_) => f.write_str("no Pod is left"),
            Self::NoOwner => f.write_str("its virtual machine is gone"),
            Self::NoStateClaim => f.write_str("no claim keeps the guest's state"),
            Self::NoMigration { uid } => write!(f, "migration {uid} is gone"),
            Self::Current => f.write_str("a live read shows the instance unchanged"),
        }
    }
}
