//! Instances.
//!
//! An instance belongs to the system once it exists: users may label it and delete it, and no more.

use api::config::ClusterConfig;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};
use machinery::field::{Cause, FieldError, FieldPath};

use crate::decode::{decode, encode, stored};
use crate::{Judged, Operation, Refusal, Request, Wanted, World, accounts, defaults, unsupported, validate};

const KIND: &str = "VirtualMachineInstance";

/// Which other objects the judgement looks at.
pub(crate) fn wanted(_request: &Request<'_>) -> Vec<Wanted> {
    Vec::new()
}

pub(crate) fn judge(request: &Request<'_>, config: &ClusterConfig, _world: &World) -> Result<Judged, Refusal> {
    let own = accounts::is_own(request.user, config);
    let vmi: VirtualMachineInstance = decode(KIND, request.object, own)?;
    match (request.operation, request.old.and_then(stored::<VirtualMachineInstance>)) {
        (Operation::Create, _) => Ok(create(request, vmi, own, config)),
        (Operation::Update, old) => Ok(update(request, vmi, old.unwrap_or_default(), own, config)),
        (Operation::Delete, _) => Ok(Judged::valid(encode(&vmi))),
    }
}

fn create(request: &Request<'_>, mut vmi: VirtualMachineInstance, own: bool, config: &ClusterConfig) -> Judged {
    if !own {
        // The status is the system's word; a new instance cannot come with one.
        vmi.status = None;
    }
    defaults::vmi(&mut vmi, config, &request.now);
    let spec = FieldPath::new("spec");
    let metadata = FieldPath::new("metadata");
    let mut unsupported = unsupported::vmi_spec(&spec, &encode(&vmi.spec));
    unsupported.extend(unsupported::annotations(&metadata, &vmi.metadata));
    let mut causes = validate::spec(&spec, &vmi.spec, config);
    if !own {
        causes.extend(validate::reserved_labels(&metadata, &vmi.metadata));
    }
    Judged { object: encode(&vmi), warnings: warnings(&vmi.spec, config), causes, unsupported }
}

fn update(
    request: &Request<'_>,
    mut vmi: VirtualMachineInstance,
    old: VirtualMachineInstance,
    own: bool,
    config: &ClusterConfig,
) -> Judged {
    let mut errors = Vec::new();
    if accounts::is_handler(request.user, config) && config.feature_gate("NodeRestriction") {
        errors.extend(own_node_only(request, old.status.as_ref(), vmi.status.as_ref()));
    }
    if !own {
        // Somebody's editor sends the status back as it was read; that is no attempt to change it, so it is no error.
        vmi.status = old.status;
        if vmi.spec != old.spec {
            let message = "update of VMI object is restricted: change the VM's template, or delete the VMI";
            errors.push(FieldError::new(Cause::NotSupported, FieldPath::new("spec"), message));
        }
        let metadata = FieldPath::new("metadata");
        errors.extend(validate::reserved_labels_kept(&metadata, &old.metadata, &vmi.metadata));
    }
    Judged::with_causes(encode(&vmi), errors)
}

/// A node agent may write the instances of its own node only, and may not choose where a migration goes.
fn own_node_only(
    request: &Request<'_>,
    old: Option<&VirtualMachineInstanceStatus>,
    new: Option<&VirtualMachineInstanceStatus>,
) -> Option<FieldError> {
    let refuse = |message: &str| Some(FieldError::new(Cause::Invalid, FieldPath::new("status.nodeName"), message));
    let Some(node) = accounts::node_of(request.user) else {
        return refuse("Node restriction: the node agent's identity does not say which node it runs on");
    };
    let at = |status: Option<&VirtualMachineInstanceStatus>| status.and_then(|status| status.node_name.clone());
    let target = |status: Option<&VirtualMachineInstanceStatus>| {
        status.and_then(|status| status.migration_state.as_ref()?.target_node.clone()).filter(|node| !node.is_empty())
    };
    if at(old).as_deref() != Some(node) && target(old).as_deref() != Some(node) {
        return refuse("Node restriction: the instance does not run on the node agent's node");
    }
    if target(old).is_none() && target(new).is_some() {
        return refuse("Node restriction: a node agent cannot choose a migration's target");
    }
    None
}

/// What a user should know about a spec that passes.
pub(crate) fn warnings(spec: &api::v1::VirtualMachineInstanceSpec, config: &ClusterConfig) -> Vec<String> {
    let devices = &spec.domain.devices;
    let console = devices.autoattach_serial_console != Some(false);
    if console && devices.log_serial_console.is_none() && !config.serial_console_log_disabled() {
        let warning = "the serial console is not written to the Pod's log by this build; \
                       set logSerialConsole: false, or disableSerialConsoleLog in the cluster's configuration";
        return vec![warning.to_owned()];
    }
    Vec::new()
}
