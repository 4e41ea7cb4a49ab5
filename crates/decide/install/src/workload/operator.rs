//! virt-operator: installs and updates the others.

use serde_json::{Value, json};

use super::{Workload, arguments, deployment, https, listening, port, ready};
use crate::{Settings, names};

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    let workload = Workload {
        app: names::app::OPERATOR,
        account: names::account::OPERATOR,
        args: arguments("operator", &[("port", &names::port::HTTPS.to_string())]),
        ports: vec![https(), port("webhooks", names::port::OPERATOR_WEBHOOK)],
        readiness: ready(names::health::HEALTHZ),
        liveness: listening(),
        requests: [("cpu", "10m"), ("memory", "64Mi")],
        // It creates its own certificate, and reads it through the API.
        mounts: vec![],
    };
    let mut objects = deployment(workload, settings.infra_replicas(), settings);
    for object in &mut objects {
        if object["kind"] == "Deployment" {
            object["spec"]["template"]["spec"]["containers"][0]["env"] = environment(settings);
        }
    }
    objects
}

/// What it installs, unless the KubeVirt object overrides it.
fn environment(settings: &Settings) -> Value {
    json!([
        {"name": names::environment::IMAGE_PREFIX, "value": settings.image_prefix},
        {"name": names::environment::IMAGE_TAG, "value": settings.image_tag},
        {"name": names::environment::KUBELET_ROOT, "value": settings.kubelet_root},
        {"name": names::environment::POD_NAME,
         "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
    ])
}
