//! Snapshots, restores, exports, backups and clones.

use admission::World;
use serde_json::{Value, json};

use super::{Make, On, PASSES, merged};

fn object(api_version: &str, kind: &str, spec: Value, over: &Value) -> Value {
    let metadata = json!({ "name": "it", "namespace": "ns" });
    merged(json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec }), over)
}

fn machine() -> Value {
    json!({ "apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web" })
}

pub(super) fn snapshot(over: Value) -> Value {
    object("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshot", json!({ "source": machine() }), &over)
}

pub(super) fn content(over: Value) -> Value {
    let spec = json!({ "source": {}, "virtualMachineSnapshotName": "it" });
    object("snapshot.kubevirt.io/v1beta1", "VirtualMachineSnapshotContent", spec, &over)
}

pub(super) fn restore(over: Value) -> Value {
    let policy = "WaitGracePeriod";
    let spec = json!({ "target": machine(), "virtualMachineSnapshotName": "it", "targetReadinessPolicy": policy });
    object("snapshot.kubevirt.io/v1beta1", "VirtualMachineRestore", spec, &over)
}

pub(super) fn export(over: Value) -> Value {
    object("export.kubevirt.io/v1", "VirtualMachineExport", json!({ "source": machine() }), &over)
}

pub(super) fn backup(over: Value) -> Value {
    let spec = json!({ "source": machine(), "pvcName": "disk" });
    object("backup.kubevirt.io/v1alpha1", "VirtualMachineBackup", spec, &over)
}

pub(super) fn tracker(over: Value) -> Value {
    object("backup.kubevirt.io/v1alpha1", "VirtualMachineBackupTracker", json!({ "source": machine() }), &over)
}

pub(super) fn clone(over: Value) -> Value {
    let spec = json!({ "source": machine(), "target": merged(machine(), &json!({ "name": "copy" })) });
    object("clone.kubevirt.io/v1beta1", "VirtualMachineClone", spec, &over)
}

fn source(over: Value) -> Value {
    json!({ "spec": { "source": over } })
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn a_closed_gate_keeps_new_objects_out_and_lets_old_ones_be() {
    let guarded: [(&str, &str, Make); 5] = [
        ("Snapshot", "virtualmachinesnapshots", snapshot),
        ("Snapshot", "virtualmachinerestores", restore),
        ("Snapshot", "virtualmachineclones", clone),
        ("IncrementalBackup", "virtualmachinebackups", backup),
        ("IncrementalBackup", "virtualmachinebackuptrackers", tracker),
    ];
    for (gate, resource, make) in guarded {
        let closed = On::new(resource).without_gate(gate);
        let said = closed.create(&make(json!({})));
        assert!(said[0].starts_with(&format!("400 {gate} feature gate not enabled")), "{resource}: {said:?}");
        assert_eq!(On::new(resource).with_gate(gate).create(&make(json!({}))), PASSES, "{resource}");
        let labelled = make(json!({ "metadata": { "labels": { "app": "web" } } }));
        assert_eq!(closed.update(&make(json!({})), &labelled), PASSES, "{resource}");
    }
}

#[test]
fn specs_that_stay_as_they_are() {
    let fixed: [(&str, Make); 3] =
        [("virtualmachinesnapshots", snapshot), ("virtualmachinerestores", restore), ("virtualmachineexports", export)];
    for (resource, make) in fixed {
        let on = On::new(resource);
        let part = if resource == "virtualmachinerestores" { "target" } else { "source" };
        let changed = make(spec(json!({ part: { "name": "db" } })));
        assert_eq!(on.update(&make(json!({})), &changed), ["FieldValueInvalid spec"], "{resource}");
        let status = make(json!({ "metadata": { "annotations": { "a": "b" } } }));
        assert_eq!(on.update(&make(json!({})), &status), PASSES, "{resource}");
    }
}

#[test]
fn a_default_that_came_later_is_no_change() {
    let old = restore(spec(json!({ "targetReadinessPolicy": null })));
    assert_eq!(On::new("virtualmachinerestores").update(&old, &restore(json!({}))), PASSES);
}

#[test]
fn snapshots() {
    On::new("virtualmachinesnapshots").check(
        snapshot,
        [
            (
                "the source's group is given",
                source(json!({ "apiGroup": null })),
                "FieldValueNotFound spec.source.apiGroup",
                json!({}),
            ),
            (
                "the source's group is the machines'",
                source(json!({ "apiGroup": "apps" })),
                "FieldValueInvalid spec.source.apiGroup",
                json!({}),
            ),
            (
                "the source is a machine",
                source(json!({ "kind": "VirtualMachineInstance" })),
                "FieldValueInvalid spec.source.kind",
                json!({}),
            ),
        ],
    );
}

#[test]
fn restores() {
    let target = |over: Value| spec(json!({ "target": over }));
    let patches = |patch: &str| spec(json!({ "patches": [patch] }));
    let volume = |over: Value| spec(json!({ "volumeRestoreOverrides": [over] }));
    let at = |path: &str| format!(r#"{{"op": "replace", "path": "{path}", "value": "x"}}"#);
    On::new("virtualmachinerestores").check(
        restore,
        [
            (
                "the target's group is given",
                target(json!({ "apiGroup": null })),
                "FieldValueNotFound spec.target.apiGroup",
                json!({}),
            ),
            (
                "the target's group is the machines'",
                target(json!({ "apiGroup": "apps" })),
                "FieldValueInvalid spec.target.apiGroup",
                json!({}),
            ),
            (
                "the target is a machine",
                target(json!({ "kind": "Pod" })),
                "FieldValueInvalid spec.target.kind",
                json!({}),
            ),
            (
                "names stay",
                patches(&at("/metadata/name")),
                "FieldValueInvalid spec.patches",
                patches(&at("/spec/running")),
            ),
            (
                "the spec as a whole stays",
                patches(&at("/spec")),
                "FieldValueInvalid spec.patches",
                patches(&at("/metadata/labels/app")),
            ),
            (
                "a value with a colon",
                patches(r#"{"op": "replace", "path": "/spec/x", "value": "02:00"}"#),
                "FieldValueInvalid spec.patches",
                patches(&at("/metadata/annotations/app")),
            ),
            (
                "a value with a comma",
                patches(r#"{"op": "replace", "path": "/spec/x", "value": "a,b"}"#),
                "FieldValueInvalid spec.patches",
                patches(r#"{"op": "remove", "path": "/spec/x"}"#),
            ),
            (
                "an override names its volume",
                volume(json!({ "restoreName": "new" })),
                "FieldValueRequired spec.volumeRestoreOverrides[0].volumeName",
                volume(json!({ "volumeName": "root", "restoreName": "new" })),
            ),
            (
                "an override overrides",
                volume(json!({ "volumeName": "root" })),
                "FieldValueRequired spec.volumeRestoreOverrides[0]",
                volume(json!({ "volumeName": "root", "labels": { "app": "web" } })),
            ),
            (
                "known policies for volumes",
                spec(json!({ "volumeRestorePolicy": "Somehow" })),
                "FieldValueInvalid spec.volumeRestorePolicy",
                spec(json!({ "volumeRestorePolicy": "InPlace" })),
            ),
            (
                "known policies for owners",
                spec(json!({ "volumeOwnershipPolicy": "Everybody" })),
                "FieldValueInvalid spec.volumeOwnershipPolicy",
                spec(json!({ "volumeOwnershipPolicy": "None" })),
            ),
        ],
    );
}

#[test]
fn one_restore_of_a_machine_at_a_time() {
    let other = |over: Value| restore(merged(json!({ "metadata": { "name": "first" } }), &over));
    let with = |other: Value| On::new("virtualmachinerestores").in_world([other]).create(&restore(json!({})));
    assert_eq!(with(other(json!({}))), ["FieldValueInvalid spec.target"]);
    assert_eq!(with(other(json!({ "status": { "complete": false } }))), ["FieldValueInvalid spec.target"]);
    assert_eq!(with(other(json!({ "status": { "complete": true } }))), PASSES);
    assert_eq!(with(other(spec(json!({ "target": { "name": "db" } })))), PASSES);
    assert_eq!(with(other(json!({ "metadata": { "namespace": "elsewhere" } }))), PASSES);
}

/// A snapshot of machine `uid`, and what it holds.
fn taken(uid: &str, domain: Value) -> [Value; 2] {
    let taken = json!({ "status": { "sourceUID": uid, "virtualMachineSnapshotContentName": "kept" } });
    let devices = merged(json!({ "devices": {} }), &domain);
    let machine = json!({ "spec": { "template": { "spec": { "domain": devices } } } });
    let kept = json!({ "metadata": { "name": "kept" }, "spec": { "source": { "virtualMachine": machine } } });
    [snapshot(taken), content(kept)]
}

#[test]
fn state_of_a_persistent_tpm_or_firmware_cannot_move_to_another_machine() {
    let web = |uid: &str| crate::vm(json!({ "metadata": { "name": "web", "uid": uid } }));
    let create = |objects: Vec<Value>| On::new("virtualmachinerestores").in_world(objects).create(&restore(json!({})));
    let with =
        |domain: &Value, target: Option<Value>| create(taken("a", domain.clone()).into_iter().chain(target).collect());
    let tpm = json!({ "devices": { "tpm": { "persistent": true } } });
    let efi = json!({ "firmware": { "bootloader": { "efi": { "persistent": true } } } });
    for stateful in [&tpm, &efi] {
        assert_eq!(with(stateful, Some(web("a"))), PASSES, "the machine itself");
        assert_eq!(with(stateful, Some(web("b"))), ["FieldValueInvalid spec"], "another of the same name");
        assert_eq!(with(stateful, None), ["FieldValueInvalid spec"], "a new one");
    }
    let off = json!({ "devices": { "tpm": { "persistent": true, "enabled": false } } });
    for stateless in [json!({}), json!({ "devices": { "tpm": {} } }), off] {
        assert_eq!(with(&stateless, None), PASSES, "{stateless}");
    }
    let [taken, _] = taken("a", json!({}));
    let unfinished = merged(taken, &json!({ "status": { "virtualMachineSnapshotContentName": null } }));
    assert_eq!(create(vec![unfinished]), ["400 the snapshot it has no content yet: wait until it is ready"]);
}

#[test]
fn a_restore_asks_for_the_content_once_it_knows_the_snapshot() {
    let on = On::new("virtualmachinerestores");
    let mut world = World::default();
    let first = ["VirtualMachineRestore ns/*", "VirtualMachineSnapshot ns/it", "VirtualMachine ns/web"];
    assert_eq!(on.wants(&restore(json!({})), &world), first);
    let [snapshot, content] = taken("a", json!({ "devices": { "tpm": { "persistent": true } } }));
    for wanted in admission::wanted(&on.request(admission::Operation::Create, None, &restore(json!({}))), &world) {
        let found = (wanted.kind == "VirtualMachineSnapshot").then(|| snapshot.clone());
        world.learn(wanted, found);
    }
    assert_eq!(on.wants(&restore(json!({})), &world), ["VirtualMachineSnapshotContent ns/kept"]);
    for wanted in admission::wanted(&on.request(admission::Operation::Create, None, &restore(json!({}))), &world) {
        world.learn(wanted, [content.clone()]);
    }
    assert_eq!(on.wants(&restore(json!({})), &world), PASSES);
    assert_eq!(On { world, ..on }.create(&restore(json!({}))), ["FieldValueInvalid spec"]);
}

#[test]
fn exports() {
    let of = |group: Value, kind: &str| source(json!({ "apiGroup": group, "kind": kind }));
    On::new("virtualmachineexports").check(
        export,
        [
            ("a known kind", of(json!("apps"), "Deployment"), "FieldValueInvalid spec.source.kind", json!({})),
            (
                "templates are not installed",
                of(json!("template.kubevirt.io"), "VirtualMachineTemplate"),
                "FieldValueInvalid spec.source.kind",
                json!({}),
            ),
            (
                "a claim has no group",
                of(json!("kubevirt.io"), "PersistentVolumeClaim"),
                "FieldValueInvalid spec.source.APIGroup",
                of(Value::Null, "PersistentVolumeClaim"),
            ),
            (
                "the group of a snapshot",
                of(json!("kubevirt.io"), "VirtualMachineSnapshot"),
                "FieldValueInvalid spec.source.APIGroup",
                of(json!("snapshot.kubevirt.io"), "VirtualMachineSnapshot"),
            ),
            (
                "the group of a machine",
                of(Value::Null, "VirtualMachine"),
                "FieldValueInvalid spec.source.APIGroup",
                of(json!("kubevirt.io"), "VirtualMachine"),
            ),
            (
                "the group of a backup",
                of(json!("kubevirt.io"), "VirtualMachineBackup"),
                "FieldValueInvalid spec.source.APIGroup",
                of(json!("backup.kubevirt.io"), "VirtualMachineBackup"),
            ),
            (
                "a name",
                source(json!({ "name": "" })),
                "FieldValueInvalid spec.source.name",
                of(json!(""), "PersistentVolumeClaim"),
            ),
        ],
    );
}

#[test]
fn templates_can_be_exported_where_they_are_installed_and_their_format_is_enabled() {
    let template = source(json!({ "apiGroup": "template.kubevirt.io", "kind": "VirtualMachineTemplate" }));
    let mut installed = On::new("virtualmachineexports");
    installed.config.configuration.virt_template_deployment.get_or_insert_default().enabled = Some(true);
    assert_eq!(installed.create(&export(template.clone())), ["FieldValueInvalid spec.source.kind"]);
    let enabled = installed.with_gate("OCIExport");
    assert_eq!(enabled.create(&export(template.clone())), PASSES);
    let wrong = merged(template, &source(json!({ "apiGroup": "kubevirt.io" })));
    assert_eq!(enabled.create(&export(wrong)), ["FieldValueInvalid spec.source.APIGroup"]);
}

#[test]
fn one_backup_of_a_source_at_a_time() {
    let with = |other: Value| {
        let on = On::new("virtualmachinebackups").with_gate("IncrementalBackup");
        on.in_world([other]).create(&backup(json!({})))
    };
    let other = |over: Value| backup(merged(json!({ "metadata": { "name": "first" } }), &over));
    let condition = |type_: &str, status: &str| {
        let time = "2024-01-01T00:00:00Z";
        let condition =
            json!({ "type": type_, "status": status, "reason": "R", "message": "", "lastTransitionTime": time });
        json!({ "status": { "conditions": [condition] } })
    };
    assert_eq!(with(other(json!({}))), ["FieldValueInvalid spec.source"]);
    assert_eq!(with(other(condition("Progressing", "True"))), ["FieldValueInvalid spec.source"]);
    assert_eq!(with(other(condition("Complete", "False"))), ["FieldValueInvalid spec.source"]);
    assert_eq!(with(other(condition("Complete", "True"))), PASSES);
    assert_eq!(with(other(condition("Failed", "True"))), PASSES);
    assert_eq!(with(other(source(json!({ "name": "db" })))), PASSES);
    assert_eq!(with(backup(condition("Complete", "True"))), ["FieldValueInvalid metadata.name"]);
}

#[test]
fn backups_and_trackers_have_rules_in_their_schemas() {
    let on = On::new("virtualmachinebackups").with_gate("IncrementalBackup");
    on.check(
        backup,
        [
            (
                "there is room for it",
                spec(json!({ "pvcName": null })),
                "FieldValueInvalid spec",
                spec(json!({ "pvcName": "p" })),
            ),
            (
                "readers of it show a token",
                spec(json!({ "mode": "Pull" })),
                "FieldValueInvalid spec",
                spec(json!({ "mode": "Pull", "tokenSecretRef": "t" })),
            ),
            (
                "the source is a machine or a tracker",
                source(json!({ "kind": "Pod" })),
                "FieldValueInvalid spec.source",
                source(json!({ "apiGroup": "backup.kubevirt.io", "kind": "VirtualMachineBackupTracker" })),
            ),
        ],
    );
    On::new("virtualmachinebackuptrackers").with_gate("IncrementalBackup").check(
        tracker,
        [(
            "the source is a machine",
            source(json!({ "kind": "VirtualMachineInstance" })),
            "FieldValueInvalid spec.source",
            json!({}),
        )],
    );
}

#[test]
fn backups_and_trackers_are_not_judged_again() {
    for (resource, make) in [("virtualmachinebackups", backup as Make), ("virtualmachinebackuptrackers", tracker)] {
        let labelled = make(json!({ "metadata": { "labels": { "app": "web" } } }));
        assert_eq!(On::new(resource).update(&make(json!({})), &labelled), PASSES, "{resource}");
    }
}

#[test]
fn clones() {
    let filters = |field: &str, filter: &str| spec(json!({ field: [filter] }));
    let of_template = |field: &str, filter: &str| spec(json!({ "template": { field: [filter] } }));
    let mac = |mac: &str| spec(json!({ "newMacAddresses": { "nic": mac } }));
    On::new("virtualmachineclones").check(
        clone,
        [
            (
                "a negation comes first",
                filters("annotationFilters", "a!b"),
                "FieldValueInvalid spec.annotations",
                filters("annotationFilters", "!ab"),
            ),
            (
                "a wildcard comes last",
                filters("labelFilters", "a*b"),
                "FieldValueInvalid spec.labels",
                filters("labelFilters", "ab*"),
            ),
            (
                "a lone negation",
                of_template("annotationFilters", "!"),
                "FieldValueInvalid spec.template.annotations",
                of_template("annotationFilters", "*"),
            ),
            (
                "both at the wrong end",
                of_template("labelFilters", "*!"),
                "FieldValueInvalid spec.template.labels; FieldValueInvalid spec.template.labels",
                of_template("labelFilters", "!*"),
            ),
            (
                "the source's kind",
                source(json!({ "kind": "Pod" })),
                "FieldValueInvalid spec.Source.Kind",
                source(json!({ "kind": "VirtualMachineSnapshot", "apiGroup": "snapshot.kubevirt.io" })),
            ),
            (
                "the target's kind",
                spec(json!({ "target": { "kind": "Pod" } })),
                "FieldValueInvalid spec.Target.Kind",
                json!({}),
            ),
            (
                "the source's group",
                source(json!({ "apiGroup": null })),
                "FieldValueInvalid spec.Source.APIGroup",
                json!({}),
            ),
            (
                "the source has a kind",
                source(json!({ "kind": "" })),
                "FieldValueInvalid spec.Source.Kind; FieldValueInvalid spec.Source",
                json!({}),
            ),
            ("the source has a name", source(json!({ "name": "" })), "FieldValueInvalid spec.Source.Name", json!({})),
            (
                "no machine is a clone of itself",
                spec(json!({ "target": { "name": "web" } })),
                "FieldValueInvalid spec.target.name",
                spec(json!({
                    "target": { "name": "web" },
                    "source": { "kind": "VirtualMachineSnapshot", "apiGroup": "snapshot.kubevirt.io" },
                })),
            ),
            (
                "addresses are addresses",
                mac("02:00:00:00:00"),
                "FieldValueInvalid spec.newMacAddresses.nic",
                mac("02:00:00:00:00:01"),
            ),
            (
                "of six octets",
                mac("02-00-00-00-00-00-00-01"),
                "FieldValueInvalid spec.newMacAddresses.nic",
                mac("02-00-00-00-00-01"),
            ),
            (
                "in hexadecimal",
                mac("0200.0000.000g"),
                "FieldValueInvalid spec.newMacAddresses.nic",
                mac("0200.0000.000f"),
            ),
            (
                "patches are JSON",
                spec(json!({ "patches": ["{", "[]"] })),
                "FieldValueInvalid spec.patches[0]",
                spec(json!({ "patches": [r#"{"op": "remove", "path": "/spec/x"}"#] })),
            ),
        ],
    );
}

#[test]
fn a_clone_is_held_to_the_same_rules_when_it_changes() {
    let on = On::new("virtualmachineclones");
    let broken = clone(spec(json!({ "labelFilters": ["a*b"] })));
    assert_eq!(on.update(&clone(json!({})), &broken), ["FieldValueInvalid spec.labels"]);
    assert_eq!(on.update(&clone(json!({})), &clone(spec(json!({ "labelFilters": ["ab*"] })))), PASSES);
}

#[test]
fn a_clone_without_a_target_gets_one_whose_name_follows_from_its_own() {
    let on = On::new("virtualmachineclones");
    let target = |over: Value| on.created(&clone(over)).object["spec"]["target"].clone();
    let unnamed = spec(json!({ "target": null }));
    let made = target(unnamed.clone());
    assert_eq!(made["apiGroup"], "kubevirt.io");
    assert_eq!(made["kind"], "VirtualMachine");
    let name = made["name"].as_str().expect("a name");
    let suffix = name.strip_prefix("clone-web-").expect("named after its source");
    assert_eq!(suffix.len(), 5, "{name}");
    assert_eq!(target(unnamed.clone()), made, "the same clone has the same target");
    assert_eq!(target(spec(json!({ "target": { "name": "" } }))), made, "only the name is missing");
    let other = merged(unnamed, &json!({ "metadata": { "name": "other" } }));
    assert_ne!(target(other.clone())["name"], name, "another clone has another");
    let generated = merged(other, &json!({ "metadata": { "name": null, "generateName": "it-" } }));
    assert!(target(generated)["name"].as_str().is_some_and(|name| name.starts_with("clone-web-")));
    let updated =
        on.judge(admission::Operation::Update, Some(&clone(json!({}))), &clone(spec(json!({ "target": null }))));
    assert_eq!(updated.expect("it can be read").object["spec"]["target"], Value::Null, "it is named once");
}
