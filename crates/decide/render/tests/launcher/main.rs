//! Launcher Pods as a whole, and their resources step by step.

mod attachment;
mod golden;
mod migration;
mod properties;
mod resources;
mod scheduling;
mod shapes;
mod volumes;

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// An instance with 128Mi of memory; `over` is merged over it.
fn vmi(over: Value) -> VirtualMachineInstance {
    let mut base = json!({
        "metadata": { "name": "testvm", "namespace": "ns", "uid": "3b8b1d5e-0a4c-4a57-9d0c-1f6d0a3c9b11" },
        "spec": { "domain": { "devices": {}, "memory": { "guest": "128Mi" } } },
    });
    machinery::patch::merge(&mut base, &over);
    serde_json::from_value(base).expect("a test's instance decodes")
}

fn render(vmi: &VirtualMachineInstance) -> Pod {
    render::launcher_pod(vmi, &Default::default(), &Default::default()).expect("the instance renders")
}
