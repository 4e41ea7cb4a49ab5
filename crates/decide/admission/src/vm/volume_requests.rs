//! Volume hotplug requests in the status of a VM.
//!
//! The requests are applied in order to the template, and to the VMI if one runs; both must still be valid afterwards.

use std::collections::BTreeSet;

use api::config::ClusterConfig;
use api::v1::{
    VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineVolumeRequest, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::meta;

use super::lookup::Lookup;
use crate::validate;

/// The field of errors about requests, as KubeVirt spells it.
const FIELD: &str = "Status.volumeRequests";

/// The requests of a VM.
fn of(vm: &VirtualMachine) -> &[VirtualMachineVolumeRequest] {
    vm.status.as_ref().map(|status| status.volume_requests.as_slice()).unwrap_or_default()
}

/// The VMI that the requests would change: one that is ready and not being deleted.
pub(super) fn instance(vm: &VirtualMachine, lookup: &Lookup<'_>) -> Option<VirtualMachineInstance> {
    let ready = vm.status.as_ref().is_some_and(|status| status.ready == Some(true));
    if of(vm).is_empty() || !ready {
        return None;
    }
    let (namespace, name) = (vm.metadata.namespace.as_deref()?, vm.metadata.name.as_deref()?);
    let found = lookup.get::<VirtualMachineInstance>("kubevirt.io", "VirtualMachineInstance", namespace, name);
    found.filter(|vmi| !meta::is_deleting(&vmi.metadata))
}

/// Validates the requests, and the template and VMI that result from them.
pub(super) fn check(vm: &VirtualMachine, config: &ClusterConfig, lookup: &Lookup<'_>, now: &Time) -> Vec<FieldError> {
    if of(vm).is_empty() {
        return Vec::new();
    }
    let instance = instance(vm, lookup);
    let template = &vm.spec.template.spec;
    if let Some(error) = mistake(of(vm), template, instance.as_ref().map(|vmi| &vmi.spec)) {
        return vec![error];
    }
    let field = FieldPath::new("spec.template.spec");
    let specs = [Some(template), instance.as_ref().map(|vmi| &vmi.spec)];
    for spec in specs.into_iter().flatten() {
        let causes = validate::spec(&field, &carried_out(spec, of(vm)), config);
        if !causes.is_empty() {
            return causes;
        }
    }
    match instance {
        Some(vmi) if is_migrating(&vmi, now) => {
            let message = "volumes cannot be plugged or unplugged while the instance migrates";
            vec![FieldError::new(Cause::NotSupported, FieldPath::new("spec"), message)]
        }
        _ => Vec::new(),
    }
}

/// The first invalid request.
fn mistake(
    requests: &[VirtualMachineVolumeRequest],
    template: &VirtualMachineInstanceSpec,
    instance: Option<&VirtualMachineInstanceSpec>,
) -> Option<FieldError> {
    let invalid = |message: String| Some(FieldError::new(Cause::Invalid, FieldPath::new(FIELD), message));
    let (mut added, mut removed) = (BTreeSet::new(), BTreeSet::new());
    for request in requests {
        match (&request.add_volume_options, &request.remove_volume_options) {
            (Some(add), None) => {
                let name = &add.name;
                if !added.insert(name) {
                    return invalid(format!("the volume {name:?} is to be added twice"));
                }
                if let Some(error) = validate::hotplug_disk(&FieldPath::new(FIELD), &add.disk).into_iter().next() {
                    return Some(error);
                }
                let new = Volume::requested(name, &add.volume_source);
                let other = |spec: &VirtualMachineInstanceSpec| {
                    spec.volumes.iter().any(|volume| volume.name == *name && *volume != new)
                };
                if other(template) {
                    return invalid(format!("the template has another volume {name:?}"));
                }
                if instance.is_some_and(other) {
                    return invalid(format!("the running instance has another volume {name:?}"));
                }
            }
            (None, Some(remove)) => {
                if !removed.insert(&remove.name) {
                    return invalid(format!("the volume {:?} is to be removed twice", remove.name));
                }
            }
            (Some(_), Some(_)) => {
                return invalid("a request either adds or removes a volume: remove one of its two members".to_owned());
            }
            (None, None) => return invalid("a request has to say what to add or what to remove".to_owned()),
        }
    }
    None
}

/// A spec with the requests applied.
fn carried_out(
    spec: &VirtualMachineInstanceSpec,
    requests: &[VirtualMachineVolumeRequest],
) -> VirtualMachineInstanceSpec {
    let mut spec = spec.clone();
    let disks = &mut spec.domain.devices.disks;
    for request in requests {
        if let Some(add) = &request.add_volume_options {
            if spec.volumes.iter().any(|volume| volume.name == add.name) {
                continue;
            }
            spec.volumes.push(Volume::plugged(&add.name, &add.volume_source));
            disks.push(api::v1::Disk { name: add.name.clone(), ..add.disk.clone() });
        } else if let Some(remove) = &request.remove_volume_options {
            spec.volumes.retain(|volume| volume.name != remove.name);
            disks.retain(|disk| disk.name != remove.name);
        }
    }
    spec
}

fn is_migrating(vmi: &VirtualMachineInstance, now: &Time) -> bool {
    let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
    let passed = |time: &Option<Time>| time.as_ref().is_some_and(|time| time.0 <= now.0);
    state.is_some_and(|state| passed(&state.start_timestamp) && !passed(&state.end_timestamp))
}
