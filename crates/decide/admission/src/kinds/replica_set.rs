//! ReplicaSets of VMIs.

use api::v1::VirtualMachineInstanceReplicaSet;
use machinery::field::FieldPath;

use super::{Case, Found, selects};
use crate::{Refusal, defaults, validate};

pub(super) fn rules(
    case: &Case<'_>,
    set: &mut VirtualMachineInstanceReplicaSet,
    old: Option<&VirtualMachineInstanceReplicaSet>,
) -> Result<Found, Refusal> {
    let field = FieldPath::new("spec");
    let template = &set.spec.template;
    // Validation uses the VMI that would be created; the stored object keeps what its owner wrote.
    let mut spec = template.spec.clone();
    defaults::spec(&mut spec, case.config)?;
    let spec_field = field.child("template").child("spec");
    let mut causes = validate::spec(&spec_field, &spec, case.config);
    causes.extend(selects(&field.child("selector"), &set.spec.selector, template.metadata.as_ref()));
    if old.is_none() {
        causes.extend(validate::new_spec(&spec_field, &spec, case.config));
    }
    Ok(Found { causes, ..Found::default() })
}
