//! Node selection for a launcher Pod.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::labels;
use api::v1::{FeatureState, VirtualMachineInstance};
use k8s_openapi::api::core::v1::{
    Affinity, NodeSelectorRequirement, NodeSelectorTerm, PodAffinityTerm, PreferredSchedulingTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use crate::context::Context;
use crate::error::Error;
use crate::traits::{self, claim_name, reserved_volumes};

const HOST_MODEL: &str = "host-model";
const HOST_PASSTHROUGH: &str = "host-passthrough";

/// Guests may run on nodes of another architecture.
fn cross_architecture(config: &ClusterConfig) -> bool {
    config.feature_gate("CrossArchitectureVirtualization")
}

/// Labels the node must have. Later ones win: a VMI overrides the cluster's settings, but nothing overrides what the
/// guest needs to run at all.
pub(crate) fn node_selector(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> BTreeMap<String, String> {
    let architecture = traits::architecture(vmi, config);
    let mut selector = BTreeMap::from([(labels::SCHEDULABLE.to_owned(), "true".to_owned())]);
    if !cross_architecture(config) {
        selector.insert(labels::ARCH.to_owned(), architecture.to_lowercase());
    }
    selector.extend(config.node_selectors());
    selector.extend(vmi.spec.node_selector.clone());
    let required = required_labels(vmi, config).into_iter();
    selector.extend(required.map(|label| (label, "true".to_owned())));
    selector
}

/// Labels that must be `true` for the guest to run.
fn required_labels(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<String> {
    let mut all = vec![];
    if cross_architecture(config) {
        all.push(format!("{}{}", labels::VM_ARCH_PREFIX, traits::architecture(vmi, config)));
    }
    if config.feature_gate("HypervStrictCheck") {
        all.extend(hyperv_labels(vmi));
    }
    all.extend(cpu_labels(vmi));
    all.extend(machine_type(vmi).map(|machine| format!("{}{machine}", labels::MACHINE_TYPE_PREFIX)));
    all.extend(tsc_frequency(vmi).map(|hz| format!("{}{hz}", labels::TSC_FREQUENCY_SCHEDULING_PREFIX)));
    let realtime = vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.realtime.is_some());
    let by_trait = [
        (labels::CPU_MANAGER, traits::dedicated_cpus(vmi)),
        (labels::REALTIME, realtime),
        (labels::SEV, traits::sev(vmi)),
        (labels::SEV_ES, traits::sev_es(vmi)),
        (labels::SEV_SNP, traits::sev_snp(vmi)),
        (labels::SECURE_EXECUTION, traits::secure_execution(vmi)),
        (labels::TDX, traits::tdx(vmi)),
    ];
    all.extend(by_trait.into_iter().filter(|(_, needed)| *needed).map(|(label, _)| label.to_owned()));
    all
}

/// Hyper-V features that the host's kernel must support.
fn hyperv_labels(vmi: &VirtualMachineInstance) -> Vec<String> {
    let Some(hyperv) = vmi.spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref()) else {
        return vec![];
    };
    let on = |feature: &Option<FeatureState>| feature.as_ref().is_some_and(|state| state.enabled == Some(true));
    let features = [
        ("vpindex", on(&hyperv.vpindex)),
        ("runtime", on(&hyperv.runtime)),
        ("reset", on(&hyperv.reset)),
        ("synic", on(&hyperv.synic)),
        ("synictimer", hyperv.synictimer.as_ref().is_some_and(|timer| timer.enabled == Some(true))),
        ("frequencies", on(&hyperv.frequencies)),
        ("reenlightenment", on(&hyperv.reenlightenment)),
        ("tlbflush", hyperv.tlbflush.as_ref().is_some_and(|flush| flush.enabled == Some(true))),
        ("ipi", on(&hyperv.ipi)),
    ];
    let enabled = features.into_iter().filter(|(_, on)| *on);
    let mut all: Vec<String> = enabled.map(|(name, _)| format!("{}{name}", labels::HYPERV_PREFIX)).collect();
    if hyperv.evmcs.as_ref().is_some_and(|state| state.enabled != Some(false)) {
        all.push(format!("{}Intel", labels::CPU_VENDOR_PREFIX));
    }
    all
}

/// The CPU model and, only together with a model, the required CPU features.
fn cpu_labels(vmi: &VirtualMachineInstance) -> Vec<String> {
    let Some(cpu) = &vmi.spec.domain.cpu else { return vec![] };
    let Some(model) = cpu.model.as_deref().filter(|model| !model.is_empty()) else { return vec![] };
    let named =
        (![HOST_MODEL, HOST_PASSTHROUGH].contains(&model)).then(|| format!("{}{model}", labels::CPU_MODEL_PREFIX));
    let required = cpu.features.iter().filter(|f| matches!(f.policy.as_deref(), None | Some("" | "require")));
    named.into_iter().chain(required.map(|f| format!("{}{}", labels::CPU_FEATURE_PREFIX, f.name))).collect()
}

/// The guest's current or future machine type.
fn machine_type(vmi: &VirtualMachineInstance) -> Option<&str> {
    fn named(machine: Option<&api::v1::Machine>) -> Option<&str> {
        machine?.type_.as_deref().filter(|type_| !type_.is_empty())
    }
    let running = vmi.status.as_ref().and_then(|status| status.machine.as_ref());
    named(running).or_else(|| named(vmi.spec.domain.machine.as_ref()))
}

/// The TSC frequency that the guest needs on every node, if it depends on one and one was found.
fn tsc_frequency(vmi: &VirtualMachineInstance) -> Option<i64> {
    let hints = vmi.status.as_ref()?.topology_hints.as_ref()?;
    let hz = hints.tsc_frequency.filter(|&hz| hz > 0)?;
    let features = vmi.spec.domain.cpu.iter().flat_map(|cpu| &cpu.features);
    let mut invtsc = features.filter(|feature| feature.name == "invtsc");
    let for_boot = invtsc.any(|feature| matches!(feature.policy.as_deref(), Some("require" | "force")));
    let hyperv = vmi.spec.domain.features.as_ref().and_then(|features| features.hyperv.as_ref());
    let reenlightenment = hyperv.and_then(|hyperv| hyperv.reenlightenment.as_ref());
    let for_migration = reenlightenment.is_some_and(|state| state.enabled == Some(true));
    (for_boot || for_migration).then_some(hz)
}

/// The VMI's own affinity, restricted to nodes that meet the guest's requirements and away from Pods that use the same
/// disks.
pub(crate) fn affinity(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Option<Affinity>, Error> {
    let mut affinity = vmi.spec.affinity.clone();
    if wants_host_model(vmi) {
        require(&mut affinity, absent(labels::OBSOLETE_HOST_MODEL.to_owned()));
    }
    let features = vmi.spec.domain.cpu.iter().flat_map(|cpu| &cpu.features);
    for feature in features.filter(|feature| feature.policy.as_deref() == Some("forbid")) {
        require(&mut affinity, absent(format!("{}{}", labels::CPU_FEATURE_PREFIX, feature.name)));
    }
    for label in reservation_labels(vmi, ctx)? {
        keep_away_from(&mut affinity, label);
    }
    if cross_architecture(config) {
        prefer_native(&mut affinity, traits::architecture(vmi, config));
    }
    Ok(affinity)
}

fn absent(key: String) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key, operator: "DoesNotExist".to_owned(), values: None }
}

pub(crate) fn wants_host_model(vmi: &VirtualMachineInstance) -> bool {
    let model = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref()).unwrap_or_default();
    matches!(model, "" | HOST_MODEL)
}

/// Adds a requirement to every required term: terms are alternatives, so one without it would be a way around.
fn require(affinity: &mut Option<Affinity>, requirement: NodeSelectorRequirement) {
    let node = affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let required = node.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    if required.node_selector_terms.is_empty() {
        required.node_selector_terms.push(NodeSelectorTerm::default());
    }
    for term in &mut required.node_selector_terms {
        term.match_expressions.get_or_insert_default().push(requirement.clone());
    }
}

/// Keeps the Pod off one node.
pub(crate) fn avoid_node(affinity: &mut Option<Affinity>, node: &str) {
    let elsewhere = NodeSelectorRequirement {
        key: labels::HOSTNAME.to_owned(),
        operator: "NotIn".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    require(affinity, elsewhere);
}

/// Keeps the Pod off nodes with Pods that match.
pub(crate) fn keep_away(affinity: &mut Option<Affinity>, selector: LabelSelector) {
    let term = PodAffinityTerm {
        label_selector: Some(selector),
        topology_key: labels::HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    };
    let pods = affinity.get_or_insert_default().pod_anti_affinity.get_or_insert_default();
    pods.required_during_scheduling_ignored_during_execution.get_or_insert_default().push(term);
}

fn keep_away_from(affinity: &mut Option<Affinity>, label: String) {
    let exists = LabelSelectorRequirement { key: label, operator: "Exists".to_owned(), values: None };
    keep_away(affinity, LabelSelector { match_expressions: Some(vec![exists]), match_labels: None });
}

fn prefer_native(affinity: &mut Option<Affinity>, architecture: &str) {
    let native = NodeSelectorRequirement {
        key: labels::ARCH.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![architecture.to_lowercase()]),
    };
    let preference = NodeSelectorTerm { match_expressions: Some(vec![native]), match_fields: None };
    let node = affinity.get_or_insert_default().node_affinity.get_or_insert_default();
    let preferred = node.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
    preferred.push(PreferredSchedulingTerm { weight: 100, preference });
}

/// One label per claim whose disk the guest uses SCSI reservations on: Pods with the same label must not share a node.
pub(crate) fn reservation_labels(vmi: &VirtualMachineInstance, ctx: &Context) -> Result<Vec<String>, Error> {
    let claims = reserved_volumes(vmi).filter_map(|volume| Some((volume, claim_name(volume)?)));
    let label = |(volume, name): (&api::v1::Volume, &str)| match ctx.claims.get(name) {
        Some(claim) => Ok(format!("{}{}", labels::PERSISTENT_RESERVATION_PREFIX, claim.uid)),
        None => Err(Error::ClaimNotFound { volume: volume.name.clone(), name: name.to_owned() }),
    };
    let mut all: Vec<String> = claims.map(label).collect::<Result<_, _>>()?;
    all.sort();
    all.dedup();
    Ok(all)
}
