//! Resolves what a VM takes from other objects: its instance type and preference, and their effects on what is stored.

use api::cdi::{DataSource, GROUP as CDI};
use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::v1::{DataVolumeSourceRef, VirtualMachine};
use instancetype::{find_instancetype, find_preference};
use machinery::meta;

use super::infer;
use super::lookup::Lookup;
use crate::{Refusal, defaults};

/// On DataSources: the architecture of the guests they boot.
const ARCHITECTURE: &str = "template.kubevirt.io/architecture";
const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "s390x"];

/// The objects a VM refers to. A missing one is left out: the VM is stored, and cannot start until the object exists.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) instancetype: Option<VirtualMachineInstancetypeSpec>,
    pub(super) preference: Option<VirtualMachinePreferenceSpec>,
}

/// Sets the fields that depend on other objects.
pub(super) fn resolve(vm: &mut VirtualMachine, lookup: &Lookup<'_>) -> Result<Resolved, Refusal> {
    infer::infer(vm, lookup)?;
    let preference = find_preference(vm, lookup).unwrap_or_default();
    if let Some(preference) = &preference {
        defaults::preferred(vm, preference);
    }
    if vm.spec.template.spec.architecture.as_deref().unwrap_or_default().is_empty() {
        vm.spec.template.spec.architecture = architecture(vm, lookup);
    }
    let instancetype = find_instancetype(vm, lookup).unwrap_or_default();
    Ok(Resolved { instancetype, preference })
}

/// The architecture of the first image that specifies one.
fn architecture(vm: &VirtualMachine, lookup: &Lookup<'_>) -> Option<String> {
    let sources = vm.spec.data_volume_templates.iter().filter_map(|template| template.spec.source_ref.as_ref());
    sources.filter(|source| source.kind.eq_ignore_ascii_case("DataSource")).find_map(|source| {
        let source = followed(vm, source, lookup)?;
        let architecture = meta::label(&source.metadata, ARCHITECTURE)?;
        ARCHITECTURES.contains(&architecture).then(|| architecture.to_owned())
    })
}

/// The DataSource of a reference; one reference to another DataSource is followed.
fn followed(vm: &VirtualMachine, reference: &DataVolumeSourceRef, lookup: &Lookup<'_>) -> Option<DataSource> {
    let source = data_source(lookup, infer::namespace_of(vm, reference), &reference.name)?;
    match &source.spec.source.data_source {
        Some(next) => data_source(lookup, &next.namespace, &next.name),
        None => Some(source),
    }
}

pub(super) fn data_source(lookup: &Lookup<'_>, namespace: &str, name: &str) -> Option<DataSource> {
    lookup.get(CDI, "DataSource", namespace, name)
}
