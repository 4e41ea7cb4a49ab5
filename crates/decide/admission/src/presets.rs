//! Presets: parts of a domain that are applied to new VMIs with matching labels.
//!
//! A preset only sets what a VMI leaves open and never overrides. If two presets conflict, the VMI is rejected, because
//! their precedence is undefined.

use api::v1::{DomainSpec, VirtualMachineInstance, VirtualMachineInstancePreset};
use k8s_openapi::Resource;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::meta::annotation;
use machinery::quantity::Quantity;
use machinery::selector::Selector;

/// A VMI with this annotation set to `true` gets no presets.
const EXCLUDE: &str = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";

/// Followed by a preset's name: the preset was applied.
const APPLIED: &str = "virtualmachinepreset.kubevirt.io/";

/// The warning for users of presets.
const DEPRECATED: &str = "kubevirt.io/v1 VirtualMachineInstancePresets is now deprecated and will be removed in v2.";

/// Whether presets apply to this VMI at all.
pub(crate) fn are_wanted(vmi: &VirtualMachineInstance) -> bool {
    annotation(&vmi.metadata, EXCLUDE) != Some("true")
}

/// Applies the presets of the VMI's namespace to the fields it leaves open.
pub(crate) fn apply(
    vmi: &mut VirtualMachineInstance,
    presets: &[VirtualMachineInstancePreset],
) -> Result<(), Vec<FieldError>> {
    if presets.is_empty() || !are_wanted(vmi) {
        return Ok(());
    }
    let labels = vmi.metadata.labels.clone().unwrap_or_default();
    let mut matching: Vec<(&str, &DomainSpec)> = Vec::new();
    for preset in presets {
        let name = preset.metadata.name.as_deref().unwrap_or_default();
        let selector = Selector::from_label_selector(&preset.spec.selector)
            .map_err(|error| refusal(format!("the selector of preset {name:?} cannot be read: {error}")))?;
        if let Some(domain) = preset.spec.domain.as_ref().filter(|_| selector.matches(&labels)) {
            matching.push((name, domain));
        }
    }
    let conflicts = conflicts(&matching);
    if !conflicts.is_empty() {
        let message = format!("VirtualMachinePresets cannot be applied due to conflicts: {}", conflicts.join(", "));
        return Err(refusal(message));
    }
    for (name, domain) in matching {
        if merge(domain, &mut vmi.spec.domain) {
            let annotations = vmi.metadata.annotations.get_or_insert_default();
            annotations.insert(format!("{APPLIED}{name}"), VirtualMachineInstance::API_VERSION.to_owned());
        }
    }
    Ok(())
}

/// A warning if the VMI is affected by presets.
pub(crate) fn warning(vmi: &VirtualMachineInstance) -> Option<String> {
    let mut annotations = vmi.metadata.annotations.iter().flatten();
    annotations.any(|(key, _)| key.contains("virtualmachinepreset")).then(|| DEPRECATED.to_owned())
}

/// The cause has no field: the VMI is valid, the presets are not.
fn refusal(message: String) -> Vec<FieldError> {
    vec![FieldError::new(Cause::Invalid, FieldPath::root(), message)]
}

/// Every pair of conflicting presets, and where they conflict.
fn conflicts(presets: &[(&str, &DomainSpec)]) -> Vec<String> {
    let mut conflicts = Vec::new();
    for (index, (name, domain)) in presets.iter().enumerate() {
        for (other_name, other) in &presets[..index] {
            let areas = disagreements(domain, other);
            if !areas.is_empty() {
                let areas = areas.join(", ");
                conflicts.push(format!("presets {name:?} and {other_name:?} conflict in {areas}"));
            }
        }
    }
    conflicts
}

fn disagreements(one: &DomainSpec, other: &DomainSpec) -> Vec<String> {
    let differ = |area: &str, differ: bool| differ.then(|| area.to_owned());
    let mut areas = Vec::new();
    if let (Some(one), Some(other)) = (&one.resources, &other.resources) {
        let both = one.requests.iter().filter_map(|(key, amount)| Some((key, amount, other.requests.get(key)?)));
        let different = both.filter(|(_, one, other)| Quantity::try_from(*one).ok() != Quantity::try_from(*other).ok());
        areas.extend(different.map(|(key, _, _)| format!("resources.requests[{key}]")));
    }
    areas.extend(differ("cpu", disagree(&one.cpu, &other.cpu)));
    areas.extend(differ("firmware", disagree(&one.firmware, &other.firmware)));
    if let (Some(one), Some(other)) = (&one.clock, &other.clock) {
        areas.extend(differ("clock", (&one.utc, &one.timezone) != (&other.utc, &other.timezone)));
        areas.extend(differ("clock.timer", disagree(&one.timer, &other.timer)));
    }
    areas.extend(differ("features", disagree(&one.features, &other.features)));
    areas.extend(differ("devices.watchdog", disagree(&one.devices.watchdog, &other.devices.watchdog)));
    areas.extend(differ("ioThreadsPolicy", disagree(&one.io_threads_policy, &other.io_threads_policy)));
    areas
}

fn disagree<T: PartialEq>(one: &Option<T>, other: &Option<T>) -> bool {
    matches!((one, other), (Some(one), Some(other)) if one != other)
}

/// Sets open fields. Returns whether the VMI agrees with the preset in at least one area.
fn merge(preset: &DomainSpec, domain: &mut DomainSpec) -> bool {
    let mut agrees = false;
    if let Some(wanted) = preset.resources.as_ref().filter(|wanted| !wanted.requests.is_empty()) {
        let resources = domain.resources.get_or_insert_default();
        if resources.requests.is_empty() {
            resources.requests = wanted.requests.clone();
        }
        agrees |= resources.requests == wanted.requests;
    }
    agrees |= fill(&preset.cpu, &mut domain.cpu);
    agrees |= fill(&preset.firmware, &mut domain.firmware);
    if let Some(wanted) = &preset.clock {
        let clock = domain.clock.get_or_insert_with(|| api::v1::Clock { timer: None, ..wanted.clone() });
        agrees |= clock == wanted;
        agrees |= fill(&wanted.timer, &mut clock.timer);
    }
    agrees |= fill(&preset.features, &mut domain.features);
    agrees |= fill(&preset.devices.watchdog, &mut domain.devices.watchdog);
    agrees |= fill(&preset.io_threads_policy, &mut domain.io_threads_policy);
    agrees
}

fn fill<T: Clone + PartialEq>(wanted: &Option<T>, field: &mut Option<T>) -> bool {
    let Some(wanted) = wanted else { return false };
    field.get_or_insert_with(|| wanted.clone()) == wanted
}
