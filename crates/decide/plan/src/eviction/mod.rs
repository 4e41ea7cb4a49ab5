//! The answer to a request to evict a Pod.
//!
//! A guest that is to be migrated is never evicted with its Pod: the request marks the VMI, is refused with "try again
//! later", and the evacuation controller migrates the guest. The launcher Pod goes away once the guest has left it.
//!
//! The caller looks up what [`subject`] names and then calls [`judge`]. If a lookup fails for any reason other than
//! absence, the answer is [`Verdict::unknown`]. Every refusal has HTTP status [`TOO_MANY_REQUESTS`], so that `kubectl
//! drain` and similar clients retry.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use api::{annotations, conditions, labels};
use json_patch::Patch;
use k8s_openapi::Resource as _;
use k8s_openapi::api::core::v1::Pod;
use machinery::meta::label;

use crate::guard::Guarded;
use crate::{meta, pods};

#[cfg(test)]
mod tests;

/// The HTTP status of every refusal.
pub const TOO_MANY_REQUESTS: u16 = 429;

/// The role of a Pod in an eviction, and what must be looked up in its namespace before the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// Not our Pod, or one without a guest: nothing to look up, eviction is allowed.
    Free,
    /// A launcher Pod of the VMI of this name.
    Launcher { vmi: &'a str },
    /// An attachment Pod. Its launcher Pod has this name, and that Pod's own subject names the VMI.
    Attachment { launcher: &'a str },
}

/// Classifies the Pod by its metadata alone.
pub fn subject(pod: &Pod) -> Subject<'_> {
    match label(&pod.metadata, labels::APP) {
        Some(labels::app::LAUNCHER) if !pods::is_down(pod) => {
            match meta::annotation(&pod.metadata, annotations::DOMAIN) {
                Some(vmi) => Subject::Launcher { vmi },
                None => Subject::Free,
            }
        }
        Some(labels::app::HOTPLUG_DISK) => match pod.metadata.owner_references.as_deref() {
            Some([owner]) if owner.kind == Pod::KIND => Subject::Attachment { launcher: &owner.name },
            _ => Subject::Free,
        },
        _ => Subject::Free,
    }
}

/// The input of the decision.
#[derive(Clone, Copy, Debug)]
pub struct World<'a> {
    pub pod: &'a Pod,
    /// If the Pod is an attachment Pod: the launcher Pod it serves, if that exists.
    pub launcher: Option<&'a Pod>,
    /// The VMI, if it exists.
    pub vmi: Option<&'a VirtualMachineInstance>,
    /// Annotations of the Eviction object.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    pub config: &'a ClusterConfig,
}

/// The answer to an eviction.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The Pod may be evicted like any other.
    Allow,
    /// Refused, for this reason.
    Deny(String),
    /// Refused with `message`, and the VMI must be patched. If the patch fails, the answer is [`Verdict::unknown`].
    Mark { patch: Patch, message: String },
}

impl Verdict {
    /// The verdict for a dry run: the same answer without the write.
    pub fn without_effect(self) -> Self {
        match self {
            Self::Mark { message, .. } => Self::Deny(message),
            answer => answer,
        }
    }

    /// The answer if something could not be looked up or written.
    pub fn unknown(doing: &str, error: &dyn std::error::Error) -> Self {
        let causes = machinery::error::chain(error);
        Self::Deny(format!("Cannot tell whether the Pod may be evicted: {doing}: {causes}"))
    }
}

/// Decides whether the Pod may be evicted.
pub fn judge(w: &World<'_>) -> Verdict {
    match subject(w.pod) {
        Subject::Free => Verdict::Allow,
        Subject::Launcher { vmi } => judge_launcher(w, vmi),
        Subject::Attachment { .. } => judge_attachment(w),
    }
}

/// The guest uses the Pod's volumes, so the Pod is bound to the launcher Pod's lifetime.
fn judge_attachment(w: &World<'_>) -> Verdict {
    let serves = |launcher: &&Pod| meta::is_controlled_by(&w.pod.metadata, meta::uid(&launcher.metadata));
    let Some(launcher) = w.launcher.filter(serves) else { return Verdict::Allow };
    let Subject::Launcher { .. } = subject(launcher) else { return Verdict::Allow };
    match w.vmi {
        Some(vmi) => Verdict::Deny(format!(
            "Pod {} attaches volumes of VMI {}; it is deleted when the VMI leaves the node",
            meta::name(&w.pod.metadata),
            full_name(vmi)
        )),
        None => Verdict::Allow,
    }
}

fn judge_launcher(w: &World<'_>, name: &str) -> Verdict {
    // The VMI may have been recreated under the same name; then its guest is not the one in this Pod.
    let ours = |vmi: &&VirtualMachineInstance| meta::is_controlled_by(&w.pod.metadata, meta::uid(&vmi.metadata));
    let Some(vmi) = w.vmi.filter(ours) else {
        let pod = meta::name(&w.pod.metadata);
        return Verdict::Deny(format!("VMI {name:?} of launcher Pod {pod} does not exist; the Pod will end by itself"));
    };
    let migratable = vmi.has_condition(conditions::LIVE_MIGRATABLE);
    match strategy(vmi, w.config) {
        "LiveMigrate" if !migratable => {
            let why = vmi.condition(conditions::LIVE_MIGRATABLE).map(|c| c.message()).filter(|why| !why.is_empty());
            let why = why.unwrap_or("virt-handler has not reported LiveMigratable yet");
            Verdict::Deny(format!(
                "VMI {} is configured with eviction strategy LiveMigrate but is not live-migratable: {why}",
                full_name(vmi)
            ))
        }
        "LiveMigrate" | "External" => mark(w, vmi),
        "LiveMigrateIfPossible" if migratable => mark(w, vmi),
        _ => Verdict::Allow,
    }
}

/// Whether a refusal with this message means that the guest is being evacuated instead of its Pod being evicted.
pub fn leaves_instead(code: u16, message: &str) -> bool {
    code == TOO_MANY_REQUESTS && message.to_lowercase().contains("eviction triggered evacuation of vmi")
}

/// The eviction strategy of the VMI: what happens to the guest when its Pod has to leave the node.
pub fn strategy<'a>(vmi: &'a VirtualMachineInstance, config: &'a ClusterConfig) -> &'a str {
    vmi.spec.eviction_strategy.as_deref().filter(|own| !own.is_empty()).unwrap_or_else(|| config.eviction_strategy())
}

fn mark(w: &World<'_>, vmi: &VirtualMachineInstance) -> Verdict {
    let status = vmi.status.clone().unwrap_or_default();
    if status.evacuation_node_name.as_deref().is_some_and(|node| !node.is_empty()) {
        return Verdict::Deny(format!(
            "Evacuation in progress: eviction triggered evacuation of VMI {}",
            full_name(vmi)
        ));
    }
    let node = pods::node_name(w.pod);
    if node.is_none() || node != status.node_name.as_deref() {
        return Verdict::Deny(format!(
            "Pod {} is the target of a migration of VMI {}, which runs elsewhere; it cannot be evicted",
            meta::name(&w.pod.metadata),
            full_name(vmi)
        ));
    }
    let path = ["status", "evacuationNodeName"];
    let guarded = Guarded::new(&vmi.metadata).field(&path, &status.evacuation_node_name, &node.map(str::to_owned));
    let message = format!("Eviction triggered evacuation of VMI {}", full_name(vmi));
    match by_descheduler(w, vmi, guarded).build() {
        Some(patch) => Verdict::Mark { patch, message },
        None => Verdict::Deny(message),
    }
}

/// A request by the descheduler is less urgent than a node drain.
fn by_descheduler<'a>(w: &World<'_>, vmi: &'a VirtualMachineInstance, patch: Guarded<'a>) -> Guarded<'a> {
    let asked_by = w.annotations.and_then(|annotations| annotations.get(annotations::EVICTION_REQUESTED_BY));
    if asked_by.map(String::as_str) != Some(annotations::eviction_source::DESCHEDULER_REQUEST) {
        return patch;
    }
    let mut marked = vmi.metadata.annotations.clone().unwrap_or_default();
    marked.insert(annotations::EVICTION_SOURCE.to_owned(), annotations::eviction_source::DESCHEDULER.to_owned());
    patch.annotations(&marked)
}

fn full_name(vmi: &VirtualMachineInstance) -> String {
    format!("\"{}/{}\"", vmi.metadata.namespace.as_deref().unwrap_or_default(), meta::name(&vmi.metadata))
}
