//! What every controller has at hand.

use std::sync::Arc;

use informer::{Clock, EventType};
use k8s_openapi::api::core::v1::ObjectReference;
use plan::vmi::Settings as InstanceSettings;

use crate::api::Notes;
use crate::config::LiveConfig;
use crate::moves::OneAtATime;
use crate::stores::Stores;
use crate::writer::Writer;

#[derive(Clone)]
pub(crate) struct Context<A> {
    pub(crate) stores: Stores,
    pub(crate) writer: Writer<A>,
    pub(crate) notes: Arc<dyn Notes>,
    pub(crate) clock: Clock,
    pub(crate) config: LiveConfig,
    /// How launchers are started, and what their Pods follow, beyond what the KubeVirt object configures.
    pub(crate) instances: Arc<InstanceSettings>,
    /// Start nothing: the cluster is being emptied.
    pub(crate) hold_starts: bool,
    pub(crate) one_at_a_time: OneAtATime,
}

impl<A> Context<A> {
    /// Publishes an event about an object.
    pub(crate) fn publish(&self, component: &'static str, about: ObjectReference, note: plan::Note) {
        let plan::Note { warning, reason, message } = note;
        let type_ = if warning { EventType::Warning } else { EventType::Normal };
        self.notes.publish(component, about, type_, &reason, message);
    }
}
