//! Applies a preference to a VMI: sets what its owner left open, and nothing else.

mod devices;
mod platform;

use api::instancetype::{CPUPreferences, VirtualMachinePreferenceSpec};
use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Applies a preference.
pub fn apply_preference(
    preference: &VirtualMachinePreferenceSpec,
    spec: &mut VirtualMachineInstanceSpec,
    metadata: &mut ObjectMeta,
) {
    if let Some(cpu) = &preference.cpu {
        cpu_features(cpu, spec);
    }
    if let Some(preferred) = &preference.devices {
        devices::apply(preferred, spec);
    }
    platform::apply(preference, spec);
    fill_text(&mut spec.subdomain, &preference.preferred_subdomain);
    fill(&mut spec.termination_grace_period_seconds, &preference.preferred_termination_grace_period_seconds);
    fill_text(&mut spec.architecture, &preference.preferred_architecture);
    if !preference.annotations.is_empty() {
        let annotations = metadata.annotations.get_or_insert_default();
        for (key, value) in &preference.annotations {
            annotations.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
}

/// Applies the preference about default devices. Must run before such devices are added; the rest of the preference
/// then applies to them like to all others.
pub fn apply_autoattach(preference: &VirtualMachinePreferenceSpec, spec: &mut VirtualMachineInstanceSpec) {
    if let Some(preferred) = &preference.devices {
        devices::autoattach(preferred, &mut spec.domain.devices);
    }
}

fn cpu_features(preferred: &CPUPreferences, spec: &mut VirtualMachineInstanceSpec) {
    if preferred.preferred_cpu_features.is_empty() {
        return;
    }
    let features = &mut spec.domain.cpu.get_or_insert_default().features;
    let listed: Vec<String> = features.iter().map(|feature| feature.name.clone()).collect();
    let new = preferred.preferred_cpu_features.iter().filter(|feature| !listed.contains(&feature.name));
    features.extend(new.cloned());
}

/// Sets a field that is unset.
fn fill<T: Clone>(field: &mut Option<T>, preferred: &Option<T>) {
    if field.is_none() {
        field.clone_from(preferred);
    }
}

/// Sets a string that is unset or empty.
fn fill_text(field: &mut Option<String>, preferred: &Option<String>) {
    if field.as_deref().unwrap_or_default().is_empty() && preferred.as_deref().is_some_and(|text| !text.is_empty()) {
        field.clone_from(preferred);
    }
}
