//! Exports of volumes.

use api::backup::{self, VirtualMachineBackup};
use api::export::{VirtualMachineExport, VirtualMachineExportSpec};
use api::snapshot::{self, VirtualMachineSnapshot};
use api::v1::{self, VirtualMachine};
use k8s_openapi::Resource;
use machinery::field::{Cause, FieldError, FieldPath};

use super::{Case, Found, immutable};
use crate::Refusal;

/// What can be exported, with its API group.
const SOURCES: [(&str, &str); 4] = [
    ("PersistentVolumeClaim", ""),
    (VirtualMachineSnapshot::KIND, snapshot::GROUP),
    (VirtualMachine::KIND, v1::GROUP),
    (VirtualMachineBackup::KIND, backup::GROUP),
];

/// An additional kind, if templates are installed and their feature gate is enabled.
const TEMPLATE: (&str, &str) = ("VirtualMachineTemplate", "template.kubevirt.io");

pub(super) fn rules(
    case: &Case<'_>,
    export: &mut VirtualMachineExport,
    old: Option<&VirtualMachineExport>,
) -> Result<Found, Refusal> {
    let errors = match old {
        Some(old) => immutable(&export.spec, &old.spec),
        None => source(case, &FieldPath::new("spec.source"), &export.spec),
    };
    Ok(errors.into())
}

fn source(case: &Case<'_>, field: &FieldPath, spec: &VirtualMachineExportSpec) -> Vec<FieldError> {
    let source = &spec.source;
    let mut sources = SOURCES.to_vec();
    if templates(case) {
        sources.push(TEMPLATE);
    }
    let Some((kind, group)) = sources.iter().find(|(kind, _)| *kind == source.kind) else {
        let kinds: Vec<&str> = sources.iter().map(|(kind, _)| *kind).collect();
        let detail = format!("must be one of {}", kinds.join(", "));
        return vec![FieldError::invalid(field.child("kind"), source.kind.as_str(), detail)];
    };
    let mut errors = Vec::new();
    if source.name.is_empty() {
        let message = format!("{kind} name must not be empty");
        errors.push(FieldError::new(Cause::Invalid, field.child("name"), message));
    }
    if source.api_group.as_deref().unwrap_or_default() != *group {
        let must = if group.is_empty() { "missing or blank" } else { group };
        // Clients know the field of the error in this spelling.
        let field = field.child("APIGroup");
        errors.push(FieldError::new(Cause::Invalid, field, format!("{kind} API group must be {must}")));
    }
    errors
}

fn templates(case: &Case<'_>) -> bool {
    let deployment = case.config.configuration.virt_template_deployment.as_ref();
    let deployed = deployment.is_some_and(|deployment| deployment.enabled == Some(true));
    deployed && case.config.feature_gate("Template") && case.config.feature_gate("OCIExport")
}
