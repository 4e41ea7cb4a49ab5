//! VMIs.
//!
//! A VMI belongs to the system once it exists: users may only label and delete it.

use api::config::ClusterConfig;
use api::v1::{VirtualMachineInstance, VirtualMachineInstancePreset, VirtualMachineInstanceStatus};
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use crate::decode::{decode, encode, stored};
use crate::{
    Judged, Operation, Refusal, Review, Shape, Wanted, World, accounts, defaults, presets, unsupported, validate,
};

const KIND: &str = "VirtualMachineInstance";
const PRESET: &str = "VirtualMachineInstancePreset";

/// The other objects that validation needs: the presets in a new VMI's namespace.
pub(crate) fn wanted(review: &Review<'_>) -> Vec<Wanted> {
    if review.operation != Operation::Create {
        return Vec::new();
    }
    vec![Wanted::all("kubevirt.io", PRESET, namespace(review.object))]
}

fn namespace(object: &Value) -> &str {
    object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn judge(
    review: &Review<'_>,
    shape: Shape,
    config: &ClusterConfig,
    world: &World,
) -> Result<Judged, Refusal> {
    let own = accounts::is_own(review.user, config);
    let vmi: VirtualMachineInstance = decode(KIND, review.object, own)?;
    match (review.operation, review.old.and_then(stored::<VirtualMachineInstance>)) {
        (Operation::Create, _) => create(review, shape, vmi, own, config, world),
        (Operation::Update, old) => Ok(update(review, vmi, old.unwrap_or_default(), own, config)),
        (Operation::Delete, _) => Ok(Judged::valid(encode(&vmi))),
    }
}

fn create(
    review: &Review<'_>,
    shape: Shape,
    mut vmi: VirtualMachineInstance,
    own: bool,
    config: &ClusterConfig,
    world: &World,
) -> Result<Judged, Refusal> {
    if !own {
        // The status belongs to the system; a new VMI cannot have one.
        vmi.status = None;
    }
    let found: Vec<VirtualMachineInstancePreset> = world.all(PRESET, namespace(review.object));
    presets::apply(&mut vmi, &found)?;
    defaults::vmi(&mut vmi, config, &review.now)?;
    let causes = validate::instance(&vmi, own, config);
    let object = encode(&vmi);
    let spec = FieldPath::new("spec");
    let mut unsupported = unsupported::vmi_spec(&spec, &object["spec"], shape);
    unsupported.extend(unsupported::annotations(&FieldPath::new("metadata"), &vmi.metadata));
    unsupported.extend(validate::limits(&spec, &vmi.spec));
    let warnings = presets::warning(&vmi).into_iter().collect();
    Ok(Judged { object, warnings, causes, unsupported })
}

fn update(
    review: &Review<'_>,
    mut vmi: VirtualMachineInstance,
    old: VirtualMachineInstance,
    own: bool,
    config: &ClusterConfig,
) -> Judged {
    let mut errors = Vec::new();
    if accounts::is_handler(review.user, config) && config.feature_gate("NodeRestriction") {
        errors.extend(own_node_only(review, old.status.as_ref(), vmi.status.as_ref()));
    }
    if own && vmi.spec != old.spec {
        errors.extend(validate::changed_spec(&old, &vmi, config));
    }
    if !own {
        if vmi.spec != old.spec {
            let message = "update of VMI object is restricted: change the VM's template, or delete the VMI";
            errors.push(FieldError::new(Cause::NotSupported, FieldPath::new("spec"), message));
        }
        errors.extend(validate::changed_labels(&old.metadata, &vmi.metadata));
        // Clients send the status back as it was read; that is not an attempt to change it, so it is not an error.
        vmi.status = old.status;
    }
    Judged::with_causes(encode(&vmi), errors)
}

/// virt-handler may only write VMIs on its own node, and may not choose the target of a migration.
fn own_node_only(
    review: &Review<'_>,
    old: Option<&VirtualMachineInstanceStatus>,
    new: Option<&VirtualMachineInstanceStatus>,
) -> Option<FieldError> {
    let refuse = |message: &str| Some(FieldError::new(Cause::Invalid, FieldPath::new("status.nodeName"), message));
    let Some(node) = accounts::node_of(review.user) else {
        return refuse("Node restriction: virt-handler's identity does not name its node: missing node name");
    };
    let at = |status: Option<&VirtualMachineInstanceStatus>| status.and_then(|status| status.node_name.clone());
    let target = |status: Option<&VirtualMachineInstanceStatus>| {
        status.and_then(|status| status.migration_state.as_ref()?.target_node.clone()).filter(|node| !node.is_empty())
    };
    if at(old).as_deref() != Some(node) && target(old).as_deref() != Some(node) {
        return refuse("Node restriction: the VMI does not run on virt-handler's node");
    }
    if target(old).is_none() && target(new).is_some() {
        return refuse("Node restriction: virt-handler cannot choose a migration's target");
    }
    None
}
