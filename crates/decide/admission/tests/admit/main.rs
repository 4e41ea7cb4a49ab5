//! Admission as its callers see it.

mod defaults;
mod examples;
mod kinds;
mod limits;
mod ownership;
mod presets;
mod properties;
mod rules;
mod updates;
mod vm;

use admission::{Admitted, Judged, Operation, Refusal, Review, Shape, User, World, admit};
use api::config::ClusterConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use machinery::field::FieldError;
use serde_json::{Value, json};

/// A cluster whose default network is the one this build has.
fn config() -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.configuration.network.get_or_insert_default().default_network_interface = Some("masquerade".to_owned());
    let options = config.configuration.virtual_machine_options.get_or_insert_default();
    options.disable_serial_console_log = Some(Default::default());
    config
}

fn someone() -> User {
    User { name: "alice".to_owned(), groups: vec!["system:authenticated".to_owned()], ..User::default() }
}

fn component(account: &str) -> User {
    User { name: format!("system:serviceaccount:kubevirt:{account}"), ..User::default() }
}

fn now() -> Time {
    Time(Timestamp::from_second(1_700_000_000).expect("a time"))
}

fn judge(
    resource: &str,
    user: &User,
    old: Option<&Value>,
    object: &Value,
    config: &ClusterConfig,
) -> Result<Admitted, Vec<FieldError>> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Review { old, ..Review::of(operation, "v1", resource, user, object, now()) };
    causes(admit(&request, Shape::Kubernetes, config, &World::default()))
}

/// What is wrong with an object, by rules that hold for every build.
fn validity(
    resource: &str,
    user: &User,
    old: Option<&Value>,
    object: &Value,
    config: &ClusterConfig,
    world: &World,
) -> Result<Judged, Refusal> {
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let request = Review { old, ..Review::of(operation, "v1", resource, user, object, now()) };
    admission::judge(&request, Shape::Kubernetes, config, world)
}

/// A cluster in which these feature gates are open.
fn gated(gates: &[&str]) -> ClusterConfig {
    let mut config = config();
    let developer = config.configuration.developer_configuration.get_or_insert_default();
    developer.feature_gates.extend(gates.iter().map(|gate| (*gate).to_owned()));
    config
}

/// A cluster in which these feature gates, open unless somebody says otherwise, are closed.
fn closed(gates: &[&str]) -> ClusterConfig {
    let mut config = config();
    let developer = config.configuration.developer_configuration.get_or_insert_default();
    developer.disabled_feature_gates.extend(gates.iter().map(|gate| (*gate).to_owned()));
    config
}

/// The field errors of a refusal.
fn causes(result: Result<Admitted, Refusal>) -> Result<Admitted, Vec<FieldError>> {
    result.map_err(|refusal| match refusal {
        Refusal::Invalid(errors) => errors,
        Refusal::BadRequest(message) => panic!("refused without a field: {message}"),
    })
}

fn create_vmi(object: &Value) -> Result<Admitted, Vec<FieldError>> {
    judge("virtualmachineinstances", &someone(), None, object, &config())
}

fn create_vm(object: &Value) -> Result<Admitted, Vec<FieldError>> {
    judge("virtualmachines", &someone(), None, object, &config())
}

/// An instance that passes; `over` is merged over it.
fn vmi(over: Value) -> Value {
    let mut base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "testvmi", "namespace": "ns" },
        "spec": {
            "domain": {
                "memory": { "guest": "128Mi" },
                "devices": {
                    "disks": [{ "name": "root", "disk": { "bus": "virtio" } }],
                    "interfaces": [{ "name": "default", "masquerade": {} }],
                },
            },
            "networks": [{ "name": "default", "pod": {} }],
            "volumes": [{ "name": "root", "containerDisk": { "image": "registry.example/guest:1" } }],
        },
    });
    machinery::patch::merge(&mut base, &over);
    base
}

/// A virtual machine that passes; `over` is merged over it.
fn vm(over: Value) -> Value {
    let mut base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": { "name": "testvm", "namespace": "ns" },
        "spec": { "runStrategy": "Halted", "template": { "spec": vmi(json!({}))["spec"] } },
    });
    machinery::patch::merge(&mut base, &over);
    base
}

/// Causes and fields of the errors, in a form that reads well when a test fails.
fn told(result: Result<Admitted, Vec<FieldError>>) -> Vec<String> {
    let errors = result.err().unwrap_or_default();
    errors.iter().map(|error| format!("{} {}", error.cause.as_str(), error.field)).collect()
}
