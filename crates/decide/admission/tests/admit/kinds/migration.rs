//! Migrations.

use admission::World;
use serde_json::{Value, json};

use super::{On, PASSES, merged};
use crate::{component, someone};

/// A migration that passes where its instance is; `over` is merged over it.
pub(super) fn migration(over: Value) -> Value {
    let base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceMigration",
        "metadata": { "name": "move", "namespace": "ns" },
        "spec": { "vmiName": "web" },
    });
    merged(base, &over)
}

fn instance(over: Value) -> Value {
    let base = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": { "name": "web", "namespace": "ns" },
        "spec": { "domain": { "devices": {} } },
        "status": { "phase": "Running" },
    });
    merged(base, &over)
}

fn on() -> On {
    On::new("virtualmachineinstancemigrations").in_world([instance(json!({}))])
}

#[test]
fn a_new_migration_is_found_by_its_instance_and_held_until_both_sides_have_cleaned_up() {
    let forged = migration(json!({ "metadata": { "labels": { "app": "a", "kubevirt.io/vmi-name": "other" } } }));
    let metadata = &on().created(&forged).object["metadata"];
    assert_eq!(metadata["labels"], json!({ "app": "a", "kubevirt.io/vmi-name": "web" }));
    assert_eq!(metadata["finalizers"], json!(["kubevirt.io/migrationJobFinalize"]));
}

#[test]
fn a_migration_between_instances_goes_to_a_namespace_of_this_cluster() {
    let sends = |url: &str, id: &str| {
        on().create(&migration(json!({ "spec": { "sendTo": { "connectURL": url, "migrationID": id } } })))
    };
    assert_eq!(sends("this-cluster/there", "a"), PASSES);
    for url in ["10.0.0.1:9185", "this-cluster/", "this-cluster", "this-cluster/a/b", ""] {
        assert_eq!(sends(url, "a"), ["FieldValueInvalid spec.sendTo.connectURL"], "{url:?}");
    }
    assert_eq!(sends("this-cluster/there", ""), ["FieldValueRequired spec.sendTo.migrationID"]);
    let receives = |id: &str| on().create(&migration(json!({ "spec": { "receive": { "migrationID": id } } })));
    assert_eq!((receives("a"), receives("")), (vec![], vec!["FieldValueRequired spec.receive.migrationID".to_owned()]));
    let send = migration(json!({ "spec": { "sendTo": { "connectURL": "this-cluster/there", "migrationID": "a" } } }));
    assert!(on().created(&send).unsupported.is_empty());
}

#[test]
fn creation() {
    let send = json!({ "connectURL": "this-cluster/there", "migrationID": "a" });
    on().check(
        migration,
        [
            (
                "the instance is named",
                json!({ "spec": { "vmiName": null } }),
                "FieldValueRequired spec.vmiName",
                json!({}),
            ),
            (
                "the instance's name is not empty",
                json!({ "spec": { "vmiName": "" } }),
                "FieldValueRequired spec.vmiName",
                json!({}),
            ),
            (
                "users set no priority",
                json!({ "spec": { "priority": "system-critical" } }),
                "FieldValueForbidden spec.migrationPriority",
                json!({ "spec": { "priority": null } }),
            ),
            (
                "both sides go by one identity",
                json!({ "spec": { "sendTo": send, "receive": { "migrationID": "b" } } }),
                "FieldValueInvalid spec.sendTo.migrationID",
                json!({ "spec": { "sendTo": send } }),
            ),
            (
                "one migration has one side",
                json!({ "spec": { "sendTo": send, "receive": { "migrationID": "a" } } }),
                "FieldValueForbidden spec.receive",
                json!({ "spec": { "sendTo": send } }),
            ),
            (
                "the instance exists",
                json!({ "spec": { "vmiName": "db" } }),
                "400 the VMI \"ns/db\" does not exist",
                json!({}),
            ),
            (
                "the instance is in the migration's namespace",
                json!({ "metadata": { "namespace": "elsewhere" } }),
                "400 the VMI \"elsewhere/web\" does not exist",
                json!({}),
            ),
        ],
    );
}

#[test]
fn only_the_controller_sets_a_priority() {
    let urgent = migration(json!({ "spec": { "priority": "system-critical" } }));
    assert_eq!(on().by(component("kubevirt-controller")).create(&urgent), PASSES);
    let handler = on().by(component("kubevirt-handler"));
    assert_eq!(handler.create(&urgent), ["FieldValueForbidden spec.migrationPriority"]);
}

#[test]
fn the_gate_of_migrations_between_clusters() {
    let closed = on().without_gate("DecentralizedLiveMigration");
    let send = migration(json!({ "spec": { "sendTo": { "connectURL": "this-cluster/there", "migrationID": "a" } } }));
    let receive = migration(json!({ "spec": { "receive": { "migrationID": "a" } } }));
    assert_eq!(closed.create(&send), ["FieldValueNotSupported spec.sendTo"]);
    assert_eq!(closed.create(&receive), ["FieldValueNotSupported spec.receive"]);
    assert_eq!(closed.create(&migration(json!({}))), PASSES);
    assert_eq!((on().create(&send), on().create(&receive)), (vec![], vec![]), "the gate is open by default");
}

#[test]
fn an_instance_whose_guest_has_ended_cannot_be_moved() {
    for (phase, said) in [
        ("Running", vec![]),
        ("Pending", vec![]),
        ("Succeeded", vec!["400 Cannot migrate VMI web in finalized state: its guest has ended"]),
        ("Failed", vec!["400 Cannot migrate VMI web in finalized state: its guest has ended"]),
    ] {
        let world = [instance(json!({ "status": { "phase": phase } }))];
        assert_eq!(on().in_world(world).create(&migration(json!({}))), said, "{phase}");
    }
}

#[test]
fn an_instance_that_was_found_unfit_cannot_be_moved() {
    let unfit = |status: &str, reason: &str| {
        let condition = json!({ "type": "LiveMigratable", "status": status, "reason": reason, "message": "why" });
        on().in_world([instance(json!({ "status": { "conditions": [condition] } }))])
    };
    let here = migration(json!({}));
    let elsewhere = migration(json!({ "spec": { "receive": { "migrationID": "a" } } }));
    let refusal = |reason: &str| vec![format!("400 Cannot migrate VMI, Reason: {reason}, Message: why")];
    assert_eq!(unfit("True", "").create(&here), PASSES);
    assert_eq!(unfit("False", "SecretMemory").create(&here), refusal("SecretMemory"));
    assert_eq!(unfit("False", "SecretMemory").create(&elsewhere), refusal("SecretMemory"));
    let disks = "DisksNotLiveMigratable";
    assert_eq!(unfit("False", disks).create(&here), refusal(disks));
    assert_eq!(unfit("False", disks).create(&elsewhere), PASSES, "the disks go along");
}

#[test]
fn one_migration_of_an_instance_at_a_time() {
    let other = |vmi: &str, phase: &str| {
        let labels = json!({ "kubevirt.io/vmi-name": vmi });
        migration(json!({ "metadata": { "name": "first", "labels": labels }, "status": { "phase": phase } }))
    };
    let with = |other: Value| on().in_world([instance(json!({})), other]).create(&migration(json!({})));
    assert_eq!(with(other("web", "Succeeded")), PASSES);
    assert_eq!(with(other("web", "Failed")), PASSES);
    assert_eq!(with(other("db", "Running")), PASSES);
    let refused = ["400 in-flight migration detected: first is moving VMI web already"];
    assert_eq!(with(other("web", "Running")), refused);
    assert_eq!(with(other("web", "")), refused, "one that was only just created");
}

#[test]
fn without_a_cluster_nothing_is_said_about_the_instance() {
    let nobody_looked = On { world: World::default(), ..on() };
    assert_eq!(nobody_looked.create(&migration(json!({}))), PASSES);
    let wants = nobody_looked.wants(&migration(json!({})), &World::default());
    assert_eq!(wants, ["VirtualMachineInstance ns/web", "VirtualMachineInstanceMigration ns/*"]);
}

#[test]
fn updates() {
    let labels = json!({ "kubevirt.io/vmi-name": "web", "app": "a" });
    let old = |phase: &str| migration(json!({ "metadata": { "labels": labels }, "status": { "phase": phase } }));
    let update = |phase: &str, over: Value| on().by(someone()).update(&old(phase), &merged(old(phase), &over));
    assert_eq!(update("Running", json!({ "spec": { "vmiName": "db" } })), ["FieldValueNotSupported spec"]);
    let label = "FieldValueNotSupported metadata.labels[kubevirt.io/vmi-name]";
    let renamed = json!({ "metadata": { "labels": { "kubevirt.io/vmi-name": "db" } } });
    let removed = json!({ "metadata": { "labels": { "kubevirt.io/vmi-name": null } } });
    assert_eq!(update("Running", renamed.clone()), [label]);
    assert_eq!(update("Running", removed.clone()), [label]);
    assert_eq!(update("Running", json!({ "metadata": { "labels": null } })), [label]);
    assert_eq!(update("Running", json!({ "metadata": { "labels": { "app": "b" } } })), PASSES);
    assert_eq!(update("Succeeded", renamed), PASSES);
    assert_eq!(update("Failed", removed), PASSES);
}
