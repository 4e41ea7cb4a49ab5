//! Clones of VMs.

use api::clone::{VirtualMachineClone, VirtualMachineCloneSpec};
use api::snapshot::VirtualMachineSnapshot;
use api::v1::{self, VirtualMachine};
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::names::{SUBDOMAIN_MAX, suffix, truncated_name};

use super::{Case, Found, is_json, namespace};
use crate::Refusal;

pub(super) fn rules(
    case: &Case<'_>,
    clone: &mut VirtualMachineClone,
    old: Option<&VirtualMachineClone>,
) -> Result<Found, Refusal> {
    case.gate("Snapshot")?;
    if old.is_none() {
        name_target(case, clone);
    }
    let spec = &clone.spec;
    let mut errors = filters(spec);
    errors.extend(kinds(spec));
    errors.extend(source(spec));
    errors.extend(itself(spec));
    errors.extend(mac_addresses(spec));
    errors.extend(patches(spec));
    Ok(errors.into())
}

/// Names the VM to be created if its owner did not.
///
/// KubeVirt uses a random suffix. Here nothing is random: the suffix is derived from what identifies this clone, its
/// namespace and name or, if its name is still to be generated, its source and the time.
fn name_target(case: &Case<'_>, clone: &mut VirtualMachineClone) {
    let source = clone.spec.source.name.clone();
    let seed = match clone.metadata.name.as_deref().filter(|name| !name.is_empty()) {
        Some(name) => format!("{}/{name}", namespace(&clone.metadata)),
        None => format!("{}/{source}/{}", namespace(&clone.metadata), case.review.now.0),
    };
    let target = clone.spec.target.get_or_insert_with(|| TypedLocalObjectReference {
        api_group: Some(v1::GROUP.to_owned()),
        kind: VirtualMachine::KIND.to_owned(),
        name: String::new(),
    });
    if target.name.is_empty() {
        target.name = truncated_name(&format!("clone-{source}"), &suffix(&seed), SUBDOMAIN_MAX);
    }
}

/// The fields of these errors have names that differ from the spec, as clients know them.
fn filters(spec: &VirtualMachineCloneSpec) -> Vec<FieldError> {
    let template = spec.template.clone().unwrap_or_default();
    let lists = [
        ("spec.annotations", &spec.annotation_filters),
        ("spec.labels", &spec.label_filters),
        ("spec.template.annotations", &template.annotation_filters),
        ("spec.template.labels", &template.label_filters),
    ];
    let mut errors = Vec::new();
    for (field, filters) in lists {
        for filter in filters {
            let problems = filter_problems(filter).into_iter();
            errors.extend(problems.map(|problem| FieldError::invalid(field.into(), filter.as_str(), problem)));
        }
    }
    errors
}

fn filter_problems(filter: &str) -> Vec<&'static str> {
    let mut problems = Vec::new();
    if filter == "!" {
        problems.push("a negation needs something to negate");
    }
    if filter.chars().skip(1).any(|c| c == '!') {
        problems.push("\"!\" can only be the first character");
    }
    if filter.chars().rev().skip(1).any(|c| c == '*') {
        problems.push("\"*\" can only be the last character");
    }
    problems
}

fn kinds(spec: &VirtualMachineCloneSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if ![VirtualMachine::KIND, VirtualMachineSnapshot::KIND].contains(&spec.source.kind.as_str()) {
        let detail = "only a VirtualMachine or a VirtualMachineSnapshot can be cloned";
        errors.push(FieldError::invalid("spec.Source.Kind".into(), spec.source.kind.as_str(), detail));
    }
    if let Some(target) = spec.target.as_ref().filter(|target| target.kind != VirtualMachine::KIND) {
        let detail = "a clone is a VirtualMachine";
        errors.push(FieldError::invalid("spec.Target.Kind".into(), target.kind.as_str(), detail));
    }
    errors
}

/// The fields of these errors are capitalized as clients know them.
fn source(spec: &VirtualMachineCloneSpec) -> Vec<FieldError> {
    let TypedLocalObjectReference { api_group, kind, name } = &spec.source;
    let missing = [
        (api_group.as_deref().unwrap_or_default(), "spec.Source.APIGroup", "Source's APIGroup cannot be empty"),
        (kind, "spec.Source", "Source's Kind cannot be empty"),
        (name, "spec.Source.Name", "Source's name cannot be empty"),
    ];
    let missing = missing.into_iter().filter(|(value, _, _)| value.is_empty());
    missing.map(|(_, field, message)| FieldError::new(Cause::Invalid, field.into(), message)).collect()
}

fn itself(spec: &VirtualMachineCloneSpec) -> Option<FieldError> {
    let target = spec.target.as_ref()?;
    let machines = spec.source.kind == VirtualMachine::KIND && target.kind == VirtualMachine::KIND;
    let detail = "a virtual machine cannot be a clone of itself";
    let same = machines && target.name == spec.source.name;
    same.then(|| FieldError::invalid("spec.target.name".into(), target.name.as_str(), detail))
}

fn mac_addresses(spec: &VirtualMachineCloneSpec) -> Vec<FieldError> {
    let field = FieldPath::new("spec.newMacAddresses");
    let given = spec.new_mac_addresses.iter().filter(|(_, mac)| !mac.is_empty() && !is_mac(mac));
    let detail = "must be a MAC address such as 02:00:00:00:00:01";
    given.map(|(interface, mac)| FieldError::invalid(field.child(interface), mac.as_str(), detail)).collect()
}

/// Six octets in hexadecimal: `02:00:00:00:00:01`, `02-00-00-00-00-01` or `0200.0000.0001`.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, count: usize, length: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        let hexadecimal = |part: &&str| part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit());
        parts.len() == count && parts.iter().all(hexadecimal)
    };
    groups(':', 6, 2) || groups('-', 6, 2) || groups('.', 3, 4)
}

fn patches(spec: &VirtualMachineCloneSpec) -> Vec<FieldError> {
    let field = FieldPath::new("spec.patches");
    let patches = spec.patches.iter().enumerate();
    let broken = patches.filter(|(_, patch)| !is_json(patch));
    broken.map(|(index, patch)| FieldError::invalid(field.index(index), patch.as_str(), "is not valid JSON")).collect()
}
