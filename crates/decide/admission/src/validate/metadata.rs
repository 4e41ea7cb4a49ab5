//! Reserved labels, and annotations that request features.

use api::config::ClusterConfig;
use api::labels;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::{Cause, Path};
use machinery::meta::{annotation, label};

use super::findings::Findings;
use super::needs_gate;

/// Labels that our components rely on; a user who could set them could take over a guest.
const RESERVED: [&str; 6] = [
    labels::CREATED_BY,
    labels::MIGRATION_JOB_UID,
    labels::NODE_NAME,
    labels::MIGRATION_TARGET_NODE_NAME,
    labels::SCHEDULABLE,
    "kubevirt.io/install-strategy",
];

/// Annotations that need a feature gate.
const GATED: [(&str, &str); 2] =
    [("kubevirt.io/ignitiondata", "ExperimentalIgnitionSupport"), ("hooks.kubevirt.io/hookSidecars", "Sidecar")];

/// Metadata of a VMI, or of a VMI template.
pub(super) fn check(found: &mut Findings, field: &Path<'_>, metadata: &ObjectMeta, own: bool, config: &ClusterConfig) {
    if !own {
        let set: Vec<&str> = RESERVED.into_iter().filter(|key| label(metadata, key).is_some()).collect();
        reserved(found, field, &set, "are labels of the system and cannot be set; remove them");
    }
    for (key, gate) in GATED {
        if annotation(metadata, key).is_some_and(|value| !value.is_empty()) {
            needs_gate(found, &field.child("annotations"), gate, config);
        }
    }
}

/// Reserved labels that a user changed.
pub(super) fn reserved_labels_kept(found: &mut Findings, field: &Path<'_>, old: &ObjectMeta, new: &ObjectMeta) {
    let changed: Vec<&str> = RESERVED.into_iter().filter(|key| label(old, key) != label(new, key)).collect();
    reserved(found, field, &changed, "are labels of the system and cannot be changed");
}

fn reserved(found: &mut Findings, field: &Path<'_>, keys: &[&str], problem: &str) {
    if !keys.is_empty() {
        found.refuse(Cause::NotSupported, &field.child("labels"), format!("{} {problem}", keys.join(", ")));
    }
}
