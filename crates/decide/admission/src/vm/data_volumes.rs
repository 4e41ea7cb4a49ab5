//! Rules for the DataVolume templates of a VM.
//!
//! Paths say `dataVolumeTemplate` where KubeVirt's do, although the field is plural.

use api::v1::{DataVolumeSource, DataVolumeTemplateSpec, VirtualMachine, VirtualMachineSpec, Volume};
use machinery::field::{Cause, FieldError, FieldPath};

/// Validates the templates. An invalid template is not also searched for among the volumes.
pub(super) fn check(field: &FieldPath, spec: &VirtualMachineSpec) -> Vec<FieldError> {
    let field = field.child("dataVolumeTemplate");
    let volumes = &spec.template.spec.volumes;
    let templates = spec.data_volume_templates.iter().enumerate();
    templates.filter_map(|(index, template)| mistake(&field.index(index), template, volumes)).collect()
}

fn mistake(field: &FieldPath, template: &DataVolumeTemplateSpec, volumes: &[Volume]) -> Option<FieldError> {
    let invalid = |field: FieldPath, message: &str| Some(FieldError::new(Cause::Invalid, field, message));
    let spec = &template.spec;
    let name = name(template);
    if name.is_empty() {
        return Some(FieldError::required(field.child("name"), "a DataVolume needs a name for volumes to refer to"));
    }
    let external = match (&spec.pvc, &spec.storage) {
        (None, None) => return invalid(field.child("PVC.Storage"), "one of pvc and storage has to be set"),
        (Some(_), Some(_)) => return invalid(field.child("PVC.Storage"), "pvc and storage exclude each other"),
        (Some(pvc), None) => pvc.data_source.is_some() || pvc.data_source_ref.is_some(),
        (None, Some(storage)) => storage.data_source.is_some() || storage.data_source_ref.is_some(),
    };
    let sourced = spec.source.is_some() || spec.source_ref.is_some();
    if external && sourced {
        let message = "a claim that is filled from its dataSource or dataSourceRef takes no source or sourceRef";
        return invalid(field.child("source"), message);
    }
    if !external && !sourced {
        let message = "the content has to come from somewhere: set source or sourceRef, or the claim's dataSource";
        return invalid(field.child("source.sourceRef"), message);
    }
    match spec.source.as_ref().map(kinds) {
        Some(0) => return invalid(field.child("source"), "the kind of the source has to be set"),
        Some(2..) => return invalid(field.child("source"), "a source has one kind only"),
        _ => {}
    }
    let mut claims = volumes.iter().flat_map(Volume::sources).filter(|source| source.is_claim());
    let referenced = claims.any(|source| source.claim_name() == Some(name));
    let detail = "no volume of the template uses this DataVolume";
    (!referenced).then(|| FieldError::required(field.clone(), detail))
}

/// How many source types are set. Destructured without `..`, so that a new one cannot be forgotten.
fn kinds(source: &DataVolumeSource) -> usize {
    let DataVolumeSource { blank, gcs, http, imageio, pvc, registry, s3, snapshot, upload, vddk } = source;
    [
        blank.is_some(),
        gcs.is_some(),
        http.is_some(),
        imageio.is_some(),
        pvc.is_some(),
        registry.is_some(),
        s3.is_some(),
        snapshot.is_some(),
        upload.is_some(),
        vddk.is_some(),
    ]
    .into_iter()
    .filter(|set| *set)
    .count()
}

/// A VM's DataVolumes must be in its namespace. Existing templates are left alone.
pub(super) fn namespaces(vm: &VirtualMachine, old: Option<&VirtualMachine>) -> Vec<FieldError> {
    let templates = &vm.spec.data_volume_templates;
    if old.is_some_and(|old| old.spec.data_volume_templates == *templates) {
        return Vec::new();
    }
    let own = vm.metadata.namespace.as_deref().unwrap_or_default();
    let field = FieldPath::new("spec.dataVolumeTemplates");
    let elsewhere = templates.iter().enumerate().filter_map(|(index, template)| {
        let namespace = template.metadata.as_ref()?.namespace.as_deref()?;
        (!namespace.is_empty() && namespace != own).then_some((index, namespace))
    });
    elsewhere
        .map(|(index, namespace)| {
            let message = format!("the DataVolume is in the namespace {namespace:?}, the virtual machine in {own:?}");
            FieldError::new(Cause::Invalid, field.index(index), message)
        })
        .collect()
}

fn name(template: &DataVolumeTemplateSpec) -> &str {
    template.metadata.as_ref().and_then(|metadata| metadata.name.as_deref()).unwrap_or_default()
}
