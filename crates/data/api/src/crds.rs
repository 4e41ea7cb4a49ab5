//! The CustomResourceDefinitions of our kinds.

use serde_json::{Value, json};

use crate::{schema, v1};

/// A column of `kubectl get`: name, type, path, and whether only the wide view shows it.
type Column = (&'static str, &'static str, &'static str, bool);

const AGE: Column = ("Age", "date", ".metadata.creationTimestamp", false);
const PHASE: Column = ("Phase", "string", ".status.phase", false);
const READY: Column = ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status", false);

/// The version before `v1`. It has the same fields, and old manifests still name it.
const DEPRECATED_VERSION: &str = "v1alpha3";

/// The definitions of all our kinds.
///
/// They are JSON rather than typed objects because the typed form holds integral bounds as floating-point numbers and
/// prints them as such.
pub fn crds() -> Vec<Value> {
    vec![virtual_machine(), virtual_machine_instance(), migration(), kubevirt()]
}

fn virtual_machine() -> Value {
    let columns = [AGE, ("Status", "string", ".status.printableStatus", false), READY];
    definition("VirtualMachine", "virtualmachines", ["vm", "vms"], &columns, true)
}

/// Instances have no status subresource: controller and node agent write spec, metadata and status under one version.
fn virtual_machine_instance() -> Value {
    let columns = [
        AGE,
        PHASE,
        ("IP", "string", ".status.interfaces[0].ipAddress", false),
        ("NodeName", "string", ".status.nodeName", false),
        READY,
        ("Live-Migratable", "string", ".status.conditions[?(@.type=='LiveMigratable')].status", true),
        ("Paused", "string", ".status.conditions[?(@.type=='Paused')].status", true),
    ];
    definition("VirtualMachineInstance", "virtualmachineinstances", ["vmi", "vmis"], &columns, false)
}

fn migration() -> Value {
    let columns = [PHASE, ("VMI", "string", ".spec.vmiName", false)];
    let plural = "virtualmachineinstancemigrations";
    definition("VirtualMachineInstanceMigration", plural, ["vmim", "vmims"], &columns, true)
}

fn kubevirt() -> Value {
    let mut definition = definition("KubeVirt", "kubevirts", ["kv", "kvs"], &[AGE, PHASE], true);
    definition["metadata"]["labels"] = json!({ "operator.kubevirt.io": "" });
    definition
}

fn definition(kind: &str, plural: &str, short: [&str; 2], columns: &[Column], status_subresource: bool) -> Value {
    let columns: Vec<Value> = columns
        .iter()
        .map(|&(name, type_, path, wide)| {
            let mut column = json!({ "name": name, "type": type_, "jsonPath": path });
            if wide {
                column["priority"] = json!(1);
            }
            column
        })
        .collect();
    let mut version = json!({
        "name": v1::VERSION,
        "served": true,
        "storage": true,
        "additionalPrinterColumns": columns,
        "schema": { "openAPIV3Schema": schema::openapi(kind) },
    });
    if status_subresource {
        version["subresources"] = json!({ "status": {} });
    }
    let mut old = version.clone();
    old["name"] = json!(DEPRECATED_VERSION);
    old["storage"] = json!(false);
    old["deprecated"] = json!(true);
    old["deprecationWarning"] =
        json!(format!("{}/{DEPRECATED_VERSION} is now deprecated and will be removed in a future release.", v1::GROUP));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{}", v1::GROUP), "labels": { "kubevirt.io": "" } },
        "spec": {
            "group": v1::GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "plural": plural,
                "singular": kind.to_lowercase(),
                "shortNames": short,
                "categories": ["all"],
            },
            "versions": [version, old],
        },
    })
}
