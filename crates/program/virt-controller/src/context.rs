//! What every controller has access to.

use std::ops::Deref;
use std::sync::Arc;

use informer::{Clock, EventType, Key, WorkQueue};
use k8s_openapi::api::core::v1::ObjectReference;
use plan::topology::Pace;
use plan::vmi::Settings as InstanceSettings;

use crate::api::Notes;
use crate::config::LiveConfig;
use crate::controller::Controller;
use crate::memory::Memory;
use crate::moves::OneAtATime;
use crate::stores::Stores;
use crate::writer::Writer;

/// State shared by all controllers.
pub struct Shared {
    pub stores: Stores,
    pub(crate) notes: Arc<dyn Notes>,
    pub clock: Clock,
    pub config: LiveConfig,
    /// How launchers are started and their Pods configured, beyond what the KubeVirt object specifies.
    pub(crate) instances: Arc<InstanceSettings>,
    /// Start no VMs: the cluster is being drained.
    pub(crate) hold_starts: bool,
    /// How often the nodes' TSC frequency labels are updated.
    pub(crate) node_topology: Pace,
    pub(crate) one_at_a_time: OneAtATime,
}

/// The dependencies of one controller: its own and the shared ones.
#[derive(Clone)]
pub struct Context {
    pub(crate) shared: Arc<Shared>,
    pub queue: WorkQueue<Key>,
    pub memory: Memory,
    pub(crate) writer: Writer,
    pub(crate) declared: &'static Controller,
}

impl Deref for Context {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Context {
    /// Records an event about an object.
    pub(crate) fn publish(&self, about: ObjectReference, note: plan::Note) {
        let plan::Note { warning, reason, message } = note;
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        self.notes.publish(self.declared.component, about, type_, &reason, message);
    }
}
