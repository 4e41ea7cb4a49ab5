//! Our side.

use std::panic::{self, AssertUnwindSafe};
use std::sync::LazyLock;

use api::v1::VirtualMachineInstanceMigration;
use k8s_openapi::api::core::v1::{Node, Pod};
use render::{Attachment, Context, Source};
use serde_json::{Value, json};

use super::clusters::{BACKEND_CLAIM, NETWORK_RESOURCES, typed};
use super::{Case, Kind, Rendered};

/// The migration that target Pods are for, as JSON.
pub(crate) static MOVE: LazyLock<Value> = LazyLock::new(|| {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": "move", "namespace": "default", "uid": "2be6a572-06d0-42f6-8861-06e72d69f223" },
        "spec": { "vmiName": "guest" },
        "status": { "migrationState": { "targetPersistentStatePVCName": BACKEND_CLAIM } },
    })
});

/// The same, as our side reads it.
static MIGRATION: LazyLock<VirtualMachineInstanceMigration> = LazyLock::new(|| typed(&MOVE));

/// The node it starts from.
static NODE: LazyLock<Node> = LazyLock::new(|| {
    typed(&json!({ "metadata": { "name": "node-1", "labels": {
        "host-model-cpu.node.kubevirt.io/Haswell": "true",
        "cpu-vendor.node.kubevirt.io/Intel": "true",
    } } }))
});

/// Our Pod.
pub fn render(case: &Case) -> Rendered {
    let vmi = serde_json::from_value(case.vmi.clone()).map_err(|err| format!("not an instance: {err}"))?;
    let launcher: Option<Pod> = case.launcher.clone().and_then(|pod| serde_json::from_value(pod).ok());
    let (config, context) = (&case.cluster.config, context(case));
    let launcher = launcher.unwrap_or_default();
    let pod = panic::catch_unwind(AssertUnwindSafe(|| match case.kind {
        Kind::Launcher => render::launcher_pod(&vmi, config, &context),
        Kind::FirstConsumer => render::first_consumer_pod(&vmi, config, &context),
        Kind::MigrationTarget => {
            let source = Source { pod: &launcher, node: Some(&NODE) };
            render::migration_target_pod(&vmi, &MIGRATION, source, config, &context)
        }
        Kind::Attachment => render::attachment_pod(&vmi, &launcher, &attachments(&vmi, case), config, &context),
        Kind::Trigger => match attachments(&vmi, case).first() {
            Some(volume) => render::trigger_pod(&vmi, &launcher, volume, config, &context),
            None => Err(render::Error::Missing("spec.volumes")),
        },
    }));
    let pod = pod.map_err(|_| "panic".to_owned())?.map_err(|err| err.to_string())?;
    serde_json::to_value(pod).map_err(|err| format!("not a Pod: {err}"))
}

/// What we are told about the world around an instance.
fn context(case: &Case) -> Context {
    let mut context = case.cluster.context.clone();
    if case.vmi["metadata"]["name"] == "guest" {
        context.backend_claim = Some(BACKEND_CLAIM.to_owned());
    }
    context.missing_config_maps.insert("gone".to_owned());
    for network in case.vmi["spec"]["networks"].as_array().into_iter().flatten() {
        let resource = network["multus"]["networkName"].as_str().and_then(|name| NETWORK_RESOURCES.get(name));
        if let (Some(name), Some(resource)) = (network["name"].as_str(), resource) {
            context.network_resources.insert(name.to_owned(), (*resource).to_owned());
        }
    }
    context
}

fn attachments(vmi: &api::v1::VirtualMachineInstance, case: &Case) -> Vec<Attachment> {
    let named = |volume: &&api::v1::Volume| case.volumes.contains(&volume.name);
    vmi.spec.volumes.iter().filter(named).filter_map(Attachment::of).collect()
}

/// The instance's launcher Pod on a node, all its images pulled; none if it cannot be rendered.
pub(crate) fn running(case: &Case) -> Option<Value> {
    let launcher = Case { kind: Kind::Launcher, ..case.clone() };
    Some(started(render(&launcher).ok()?))
}

/// The Pod of an instance that has been moved once; none if it cannot be.
pub(crate) fn moved(case: &Case) -> Option<Value> {
    let target = Case { kind: Kind::MigrationTarget, launcher: running(case), ..case.clone() };
    Some(started(render(&target).ok()?))
}

/// A Pod as it is once a node runs it.
fn started(mut pod: Value) -> Value {
    pod["metadata"]["uid"] = json!("0f82d93e-505d-4d67-8861-06e72d69f223");
    pod["spec"]["nodeName"] = json!("node-1");
    for (list, statuses) in [("containers", "containerStatuses"), ("initContainers", "initContainerStatuses")] {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        let pulled = containers.map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "ready": true, "restartCount": 0,
                "imageID": format!("registry:5000/{}@sha256:{:064x}", container["name"].as_str().unwrap_or_default(), 7),
            })
        });
        pod["status"][statuses] = pulled.collect();
    }
    pod
}
