//! Computes the VMI that the controller creates for a VM, without a cluster: runs the controller's decisions and
//! assumes that their actions succeed, until they create the VMI.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::config::ClusterConfig;
use api::v1::{RunStrategy, VirtualMachine, VirtualMachineInstance};
use instancetype::Live;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use plan::claims::Claims;
use plan::effect::Patch;
use plan::object::{Kind, Object};
use plan::vm::{Action, Own, World, decide, wanted};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// More rounds than any VM needs before it starts.
const PASSES: usize = 8;

/// `objects` are those that the VM may refer to. Other claims are assumed to exist in the cluster. `None` if the
/// controller would not start the VM.
pub(super) fn instance(
    mut vm: VirtualMachine,
    objects: &[Value],
    config: &ClusterConfig,
) -> Result<Option<VirtualMachineInstance>, serde_json::Error> {
    vm.spec.running = None;
    vm.spec.run_strategy = Some(RunStrategy::Always);
    let mut revisions = vec![];
    for _ in 0..PASSES {
        let mut actions = decide(&world(&vm, &revisions, objects, config));
        actions.reverse(); // used as a stack: the next action is at the end
        while let Some(action) = actions.pop() {
            match action {
                Action::Create { object: Object::Vmi(vmi), .. } => return Ok(Some(*vmi)),
                Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. } => {
                    let mut object = serde_json::to_value(&vm)?;
                    machinery::patch::apply(&mut object, &patch).map_err(serde::de::Error::custom)?;
                    vm = serde_json::from_value(object)?;
                }
                Action::ReplaceStatus(Object::Vm(updated)) => vm.status = updated.status,
                Action::Create { object: Object::Revision(revision), .. } => revisions.push(Arc::new(*revision)),
                Action::Own(Own::Authorize { then, .. }) | Action::Confirm { then, .. } => {
                    actions.extend(then.into_iter().rev());
                }
                _ => {}
            }
        }
    }
    Ok(None)
}

fn world(
    vm: &VirtualMachine,
    revisions: &[Arc<ControllerRevision>],
    objects: &[Value],
    config: &ClusterConfig,
) -> World {
    let wanted = wanted(vm, None, &BTreeMap::new());
    let claim = |name: &String| {
        let found = find(objects, "PersistentVolumeClaim", name).unwrap_or_else(|| PersistentVolumeClaim {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..PersistentVolumeClaim::default()
        });
        (name.clone(), Arc::new(found))
    };
    World {
        vm: Arc::new(vm.clone()),
        vmi: None,
        revisions: revisions.to_vec(),
        claims: Claims { claims: wanted.claims.iter().map(claim).collect(), ..Claims::default() },
        copied_claims: wanted.copied_claims,
        data_sources: BTreeMap::new(),
        instancetype: wanted.instancetype.and_then(|object| {
            let kinds = ["VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"];
            live(objects, kinds[usize::from(object.cluster)], &object.name)
        }),
        preference: wanted.preference.and_then(|object| {
            let kinds = ["VirtualMachinePreference", "VirtualMachineClusterPreference"];
            live(objects, kinds[usize::from(object.cluster)], &object.name)
        }),
        namespace_labels: BTreeMap::new(),
        config: Arc::new(config.clone()),
        settings: Arc::default(),
        behind: None,
        expects_instance: None,
        expects_data_volumes: None,
        hold_starts: false,
        failed: None,
        now: Time(Timestamp::now()),
    }
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
}

fn find<T: DeserializeOwned>(objects: &[Value], kind: &str, name: &str) -> Option<T> {
    serde_json::from_value(named(objects, kind, name)?.clone()).ok()
}

fn live<T: DeserializeOwned>(objects: &[Value], kind: &str, name: &str) -> Option<Live<T>> {
    let object = named(objects, kind, name)?;
    let metadata = serde_json::from_value(object["metadata"].clone()).ok()?;
    Some(Live { kind: kind.to_owned(), metadata, spec: serde_json::from_value(object["spec"].clone()).ok()? })
}
