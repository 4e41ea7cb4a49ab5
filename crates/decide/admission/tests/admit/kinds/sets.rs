//! Replica sets, pools and presets.

use serde_json::{Value, json};

use super::{On, PASSES, Row, merged};

/// A replica set that passes; `over` is merged over it.
pub(super) fn replica_set(over: Value) -> Value {
    let base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": { "name": "webs", "namespace": "ns" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": crate::vmi(json!({}))["spec"],
            },
        },
    });
    merged(base, &over)
}

/// A pool that passes; `over` is merged over it.
pub(super) fn pool(over: Value) -> Value {
    let base = json!({
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": { "name": "desks", "namespace": "ns" },
        "spec": {
            "replicas": 2,
            "selector": { "matchLabels": { "app": "desk" } },
            "virtualMachineTemplate": {
                "metadata": { "labels": { "app": "desk" } },
                "spec": crate::vm(json!({}))["spec"],
            },
        },
    });
    merged(base, &over)
}

/// A preset that passes; `over` is merged over it.
pub(super) fn preset(over: Value) -> Value {
    let base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstancePreset",
        "metadata": { "name": "small", "namespace": "ns" },
        "spec": {
            "selector": { "matchLabels": { "app": "web" } },
            "domain": { "devices": {}, "resources": { "requests": { "memory": "64Mi" } } },
        },
    });
    merged(base, &over)
}

/// Selectors that do not select what the template makes, and one that does.
fn selectors() -> [Row<'static>; 2] {
    [
        (
            "the selector matches the template's labels",
            json!({ "spec": { "selector": { "matchLabels": { "app": "other" } } } }),
            "FieldValueInvalid spec.selector",
            json!({ "spec": { "selector": { "matchLabels": null } } }),
        ),
        (
            "the selector is one",
            json!({ "spec": { "selector": { "matchExpressions": [{ "key": "app", "operator": "Near" }] } } }),
            "FieldValueInvalid spec.selector",
            json!({ "spec": { "selector": { "matchExpressions": [{ "key": "app", "operator": "Exists" }] } } }),
        ),
    ]
}

#[test]
fn replica_sets() {
    let on = On::new("virtualmachineinstancereplicasets");
    on.check(replica_set, selectors());
    let in_template = |spec: Value| json!({ "spec": { "template": { "spec": spec } } });
    on.check(
        replica_set,
        [
            (
                "there is a template",
                json!({ "spec": { "template": null } }),
                "FieldValueRequired spec.template",
                json!({}),
            ),
            (
                "the template is held to the rules of instances",
                in_template(json!({ "hostname": "a.b" })),
                "FieldValueInvalid spec.template.spec.hostname",
                in_template(json!({ "hostname": "a-b" })),
            ),
        ],
    );
}

#[test]
fn new_sets_cannot_use_what_was_discontinued() {
    let network = json!({ "devices": { "interfaces": [{ "name": "default", "macvtap": {} }] } });
    let network = json!({ "template": { "spec": { "domain": network } } });
    // The gate is gone, and a gate is no field.
    let gone = "FieldValueNotSupported ".to_owned();
    let set = On::new("virtualmachineinstancereplicasets").with_gate("Macvtap");
    let said = set.create(&replica_set(json!({ "spec": network })));
    assert!(said.contains(&gone), "{said:?}");
    let template = json!({ "virtualMachineTemplate": { "spec": network } });
    let said = On::new("virtualmachinepools").with_gate("Macvtap").create(&pool(json!({ "spec": template })));
    assert!(said.contains(&gone), "{said:?}");
}

#[test]
fn a_replica_sets_template_may_carry_what_only_the_controller_could_add() {
    let labelled = json!({ "spec": { "template": { "metadata": { "labels": { "kubevirt.io/nodeName": "n1" } } } } });
    assert_eq!(On::new("virtualmachineinstancereplicasets").create(&replica_set(labelled)), PASSES);
}

#[test]
fn a_replica_set_is_judged_again_when_it_changes() {
    let on = On::new("virtualmachineinstancereplicasets");
    let old = replica_set(json!({}));
    let more = replica_set(json!({ "spec": { "replicas": 3 } }));
    assert_eq!(on.update(&old, &more), PASSES);
    let lost = replica_set(json!({ "spec": { "selector": { "matchLabels": { "app": "other" } } } }));
    assert_eq!(on.update(&old, &lost), ["FieldValueInvalid spec.selector"]);
}

#[test]
fn pools() {
    let on = On::new("virtualmachinepools");
    on.check(pool, selectors());
    let machine = |spec: Value| json!({ "spec": { "virtualMachineTemplate": { "spec": spec } } });
    let unavailable = |value: Value| json!({ "spec": { "maxUnavailable": value } });
    on.check(
        pool,
        [
            (
                "there is a template",
                json!({ "spec": { "virtualMachineTemplate": null } }),
                "FieldValueRequired spec.virtualMachineTemplate",
                json!({}),
            ),
            (
                "the template's machine has a template",
                machine(json!({ "template": null })),
                "FieldValueRequired spec.virtualMachineTemplate.spec.template",
                json!({}),
            ),
            (
                "the template is held to the rules of machines",
                machine(json!({ "running": true })),
                "FieldValueInvalid spec.virtualMachineTemplate.spec.running",
                machine(json!({ "running": true, "runStrategy": null })),
            ),
            (
                "and to those of instances",
                machine(json!({ "template": { "spec": { "hostname": "a.b" } } })),
                "FieldValueInvalid spec.virtualMachineTemplate.spec.template.spec.hostname",
                machine(json!({ "template": { "spec": { "hostname": "a-b" } } })),
            ),
            (
                "some machine may be unavailable",
                unavailable(json!(0)),
                "FieldValueInvalid spec.maxUnavailable",
                unavailable(json!(1)),
            ),
            (
                "no percentage",
                unavailable(json!("25")),
                "FieldValueInvalid spec.maxUnavailable",
                unavailable(json!("25%")),
            ),
            (
                "a percentage of nothing",
                unavailable(json!("0%")),
                "FieldValueInvalid spec.maxUnavailable",
                unavailable(json!("1%")),
            ),
            (
                "more than all",
                unavailable(json!("101%")),
                "FieldValueInvalid spec.maxUnavailable",
                unavailable(json!("100%")),
            ),
            (
                "not a number",
                unavailable(json!("half%")),
                "FieldValueInvalid spec.maxUnavailable",
                unavailable(json!("50%")),
            ),
            (
                "one strategy for updates",
                json!({ "spec": { "updateStrategy": { "unmanaged": {}, "proactive": {} } } }),
                "FieldValueInvalid spec.updateStrategy",
                json!({ "spec": { "updateStrategy": { "proactive": {} } } }),
            ),
            (
                "one strategy for becoming smaller",
                json!({ "spec": { "scaleInStrategy": { "opportunistic": {}, "proactive": {} } } }),
                "FieldValueInvalid spec.scaleInStrategy",
                json!({ "spec": { "scaleInStrategy": { "opportunistic": {} } } }),
            ),
        ],
    );
}

#[test]
fn a_pool_is_judged_in_its_storage_version() {
    let on = On::new("virtualmachinepools");
    let refused = "400 expect resource version v1beta1, but got v1alpha1: use pool.kubevirt.io/v1beta1";
    let old = pool(json!({ "apiVersion": "pool.kubevirt.io/v1alpha1" }));
    assert_eq!(on.clone().in_version("v1alpha1").create(&old), [refused]);
    assert_eq!(on.clone().in_version("v1alpha1").delete(&old), PASSES);
    assert_eq!(on.create(&old), PASSES, "converted by the server");
}

#[test]
fn a_pools_selector_stays() {
    let on = On::new("virtualmachinepools");
    let old = pool(json!({}));
    let widened = pool(json!({ "spec": { "selector": { "matchLabels": null } } }));
    assert_eq!(on.update(&old, &widened), ["FieldValueInvalid spec.selector"]);
    assert_eq!(on.update(&old, &pool(json!({ "spec": { "replicas": 3 } }))), PASSES);
}

#[test]
fn presets() {
    let disk = |over: Value| {
        let disk = merged(json!({ "name": "root", "disk": { "bus": "virtio" } }), &over);
        json!({ "spec": { "domain": { "devices": { "disks": [disk] } } } })
    };
    let firmware = |firmware: Value| json!({ "spec": { "domain": { "firmware": firmware } } });
    On::new("virtualmachineinstancepresets").check(
        preset,
        [
            ("there is a domain", json!({ "spec": { "domain": null } }), "FieldValueRequired spec.domain", json!({})),
            (
                "a selector is part of it",
                json!({ "spec": { "selector": null } }),
                "FieldValueRequired spec.selector",
                json!({}),
            ),
            (
                "disks are held to the rules of an instance's",
                disk(json!({ "serial": "a b" })),
                "FieldValueInvalid spec.domain.devices.disks[0].serial",
                disk(json!({ "serial": "ab" })),
            ),
            (
                "a disk is one thing",
                disk(json!({ "cdrom": {} })),
                "FieldValueInvalid spec.domain.devices.disks[0]",
                disk(json!({ "cdrom": {}, "disk": null })),
            ),
            (
                "a kernel's arguments need a kernel",
                firmware(json!({ "kernelBoot": { "kernelArgs": "quiet" } })),
                "FieldValueInvalid spec.domain.firmware.kernelBoot.kernelArgs",
                firmware(json!({
                    "kernelBoot": { "kernelArgs": "quiet", "container": { "image": "i", "kernelPath": "/k" } },
                })),
            ),
            (
                "one boot loader",
                firmware(json!({ "bootloader": { "bios": {}, "efi": { "secureBoot": false } } })),
                "FieldValueInvalid spec.domain.firmware.bootloader",
                firmware(json!({ "bootloader": { "efi": { "secureBoot": false } } })),
            ),
        ],
    );
}
