//! Discovery documents of the API group.

use serde_json::{Value, json};

/// Name of the group.
pub(crate) const GROUP: &str = api::resources::SUBRESOURCES_GROUP;
/// Served versions, preferred one first. They are equivalent.
pub(crate) const VERSIONS: [&str; 2] = ["v1", "v1alpha3"];

/// Listed subresources of VMs. Port forwarding works too, but clients do not look it up.
const VM_OPERATIONS: &[&str] = &[
    "start",
    "stop",
    "restart",
    "migrate",
    "evacuate/cancel",
    "addvolume",
    "removevolume",
    "memorydump",
    "removememorydump",
];
/// Listed subresources of VMIs.
const VMI_OPERATIONS: &[&str] = &[
    "vnc",
    "console",
    "portforward",
    "pause",
    "unpause",
    "reset",
    "softreboot",
    "guestosinfo",
    "evacuate/cancel",
    "addvolume",
    "removevolume",
    "migrationprogress",
];

/// The listed operations: path below the namespace, and method. Reading and streaming is `get`, the rest `put`.
pub(crate) fn operations() -> impl Iterator<Item = (String, &'static str)> {
    const READS: &[&str] = &["vnc", "console", "portforward", "guestosinfo", "migrationprogress"];
    let of = |kind: &'static str, operations: &'static [&'static str]| {
        operations.iter().map(move |operation| {
            let method = if READS.contains(operation) { "get" } else { "put" };
            (format!("{kind}/{{name}}/{operation}"), method)
        })
    };
    of("virtualmachines", VM_OPERATIONS).chain(of("virtualmachineinstances", VMI_OPERATIONS))
}

/// Subresources of KubeVirt that are not implemented here, to give a better answer than "not found".
pub(crate) const UNSUPPORTED: &[&str] = &[
    "backup",
    "expand-spec",
    "filesystemlist",
    "freeze",
    "objectgraph",
    "redefine-checkpoint",
    "sev",
    "unfreeze",
    "usbredir",
    "userlist",
    "vsock",
];

/// The API group. Its `name` lacks an s, as in KubeVirt; clients compare it.
pub(crate) fn group() -> Value {
    let version = |version: &str| json!({ "groupVersion": format!("{GROUP}/{version}"), "version": version });
    json!({
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "subresource.kubevirt.io",
        "versions": VERSIONS.map(version),
        "preferredVersion": version(VERSIONS[0]),
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
    })
}

/// The resource list of one version. An empty list would break short names in `kubectl`.
pub(crate) fn resources(version: &str) -> Value {
    let resource =
        |name: String| json!({ "name": name, "singularName": "", "namespaced": true, "kind": "", "verbs": [] });
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{version}"),
        "resources": subresources().map(resource).collect::<Vec<_>>(),
    })
}

/// The listed resources, each with a subresource after a slash.
pub fn subresources() -> impl Iterator<Item = String> {
    let of = |resource: &'static str, operations: &'static [&'static str]| {
        operations.iter().map(move |operation| format!("{resource}/{operation}"))
    };
    of("virtualmachineinstances", VMI_OPERATIONS).chain(of("virtualmachines", VM_OPERATIONS))
}
