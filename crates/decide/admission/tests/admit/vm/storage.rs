//! DataVolumes that come with a machine, and what may not change while it is copied or rolled back.

use serde_json::{Value, json};

use super::{causes_of, create, status, update};
use crate::vm;

/// A machine with a DataVolume `dv` that a volume uses; `spec` is merged over the DataVolume's.
fn with_data_volume(spec: Value) -> Value {
    let mut data_volume = json!({ "storage": {}, "source": { "blank": {} } });
    machinery::patch::merge(&mut data_volume, &spec);
    with_templates(
        json!([{ "metadata": { "name": "dv" }, "spec": data_volume }]),
        json!({ "dataVolume": { "name": "dv" } }),
    )
}

fn with_templates(templates: Value, volume: Value) -> Value {
    let mut data = json!({ "name": "root" });
    machinery::patch::merge(&mut data, &volume);
    vm(json!({ "spec": { "dataVolumeTemplates": templates, "template": { "spec": { "volumes": [data] } } } }))
}

#[test]
fn a_data_volume_has_one_claim_and_one_source() {
    let at = |cause: &str, below: &str| vec![format!("FieldValue{cause} spec.dataVolumeTemplate[0]{below}")];
    let reference = json!({ "kind": "DataSource", "name": "ds" });
    let external = json!({ "dataSource": { "kind": "VolumeSnapshot", "name": "s" } });
    let external_ref = json!({ "dataSourceRef": { "kind": "VolumeSnapshot", "name": "s" } });
    // What is merged over a DataVolume that passes, and what is said about it.
    let cases = [
        (json!({}), vec![]),
        (json!({ "storage": null, "pvc": {} }), vec![]),
        (json!({ "storage": null }), at("Invalid", ".PVC.Storage")),
        (json!({ "pvc": {} }), at("Invalid", ".PVC.Storage")),
        (json!({ "source": null }), at("Invalid", ".source.sourceRef")),
        (json!({ "source": null, "sourceRef": reference }), vec![]),
        (json!({ "source": null, "storage": external }), vec![]),
        (json!({ "source": null, "storage": external_ref }), vec![]),
        (json!({ "source": null, "storage": null, "pvc": external }), vec![]),
        (json!({ "storage": external }), at("Invalid", ".source")),
        (json!({ "storage": external_ref }), at("Invalid", ".source")),
        (json!({ "source": null, "sourceRef": reference, "storage": external }), at("Invalid", ".source")),
        (json!({ "storage": null, "pvc": external_ref }), at("Invalid", ".source")),
        (json!({ "source": { "blank": null } }), at("Invalid", ".source")),
        (json!({ "source": { "http": { "url": "u" } } }), at("Invalid", ".source")),
        (json!({ "source": { "blank": null, "http": { "url": "u" } } }), vec![]),
    ];
    for (over, expected) in cases {
        assert_eq!(causes_of(create(&with_data_volume(over.clone()), [])), expected, "{over}");
    }
}

#[test]
fn a_data_volume_has_a_name_and_a_use() {
    let spec = json!({ "storage": {}, "source": { "blank": {} } });
    let named = |name: Value| json!([{ "metadata": { "name": name }, "spec": spec }]);
    let dv = json!({ "dataVolume": { "name": "dv" } });
    let told = |templates: Value, volume: &Value| causes_of(create(&with_templates(templates, volume.clone()), []));
    assert_eq!(told(named(json!("dv")), &dv), Vec::<String>::new());
    let claim = json!({ "persistentVolumeClaim": { "claimName": "dv" } });
    assert_eq!(told(named(json!("dv")), &claim), Vec::<String>::new());
    assert_eq!(told(named(json!("other")), &dv), ["FieldValueRequired spec.dataVolumeTemplate[0]"]);
    let unnamed = ["FieldValueRequired spec.dataVolumeTemplate[0].name"];
    assert_eq!(told(named(json!("")), &dv), unnamed);
    assert_eq!(told(json!([{ "metadata": {}, "spec": {} }]), &dv), unnamed);
    let second = json!([{ "metadata": { "name": "dv" }, "spec": spec }, { "metadata": { "name": "x" }, "spec": spec }]);
    assert_eq!(told(second, &dv), ["FieldValueRequired spec.dataVolumeTemplate[1]"]);
}

#[test]
fn a_data_volume_lives_beside_its_machine() {
    let placed = |namespace: &str| {
        let mut object = with_data_volume(json!({}));
        object["spec"]["dataVolumeTemplates"][0]["metadata"]["namespace"] = json!(namespace);
        object
    };
    let refused = ["FieldValueInvalid spec.dataVolumeTemplates[0]"];
    assert_eq!(causes_of(create(&placed("ns"), [])), Vec::<String>::new());
    assert_eq!(causes_of(create(&placed(""), [])), Vec::<String>::new());
    assert_eq!(causes_of(create(&placed("elsewhere"), [])), refused);
    // One that is stored stays.
    let old = placed("elsewhere");
    let mut new = old.clone();
    new["spec"]["runStrategy"] = json!("Always");
    assert_eq!(causes_of(update(&old, &new, [])), Vec::<String>::new());
    assert_eq!(causes_of(update(&placed("ns"), &old, [])), refused);
}

fn with_status(over: Value, status: Value) -> Value {
    let mut object = vm(over);
    object["status"] = status;
    object
}

#[test]
fn a_machine_that_is_snapshotted_keeps_its_volumes_and_its_strategy() {
    let running = json!({ "snapshotInProgress": "snap" });
    let refused = vec!["FieldValueNotSupported spec".to_owned()];
    let volume = json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "root", "emptyDisk": { "capacity": "1Gi" } }] } } } });
    let cases = [
        (json!({}), json!({ "spec": { "template": { "spec": { "hostname": "a" } } } }), false),
        (json!({}), volume, true),
        (json!({}), json!({ "spec": { "runStrategy": "Always" } }), true),
        (
            json!({ "spec": { "runStrategy": null, "running": false } }),
            json!({ "spec": { "runStrategy": null, "running": false, "template": { "spec": { "hostname": "a" } } } }),
            false,
        ),
        (
            json!({ "spec": { "runStrategy": null, "running": false } }),
            json!({ "spec": { "runStrategy": null, "running": true } }),
            true,
        ),
        // The same in another form is a change.
        (
            json!({ "spec": { "runStrategy": null, "running": false } }),
            json!({ "spec": { "runStrategy": "Halted" } }),
            true,
        ),
        (
            json!({ "spec": { "runStrategy": "Halted" } }),
            json!({ "spec": { "runStrategy": null, "running": false } }),
            true,
        ),
    ];
    for (old, new, changes) in cases {
        let expected = if changes { refused.clone() } else { vec![] };
        let told = causes_of(update(&vm(old.clone()), &with_status(new.clone(), running.clone()), []));
        assert_eq!(told, expected, "{old} becomes {new}");
        let free = causes_of(update(&vm(old), &vm(new.clone()), []));
        assert_eq!(free, Vec::<String>::new(), "{new} without a snapshot");
    }
}

#[test]
fn a_machine_that_is_restored_keeps_its_strategy() {
    let running = json!({ "restoreInProgress": "restore" });
    let told = |old: Value, new: Value| causes_of(update(&vm(old), &with_status(new, running.clone()), []));
    let refused = ["FieldValueNotSupported spec"];
    let strategy = |strategy: &str| json!({ "spec": { "runStrategy": strategy } });
    assert_eq!(told(json!({}), strategy("Always")), refused);
    assert_eq!(
        told(
            json!({}),
            json!({ "spec": { "template": { "spec": { "volumes": [{ "name": "root", "emptyDisk": { "capacity": "1Gi" } }] } } } })
        ),
        Vec::<String>::new()
    );
    // The same in another form is no change here.
    let old_form = |running: bool| json!({ "spec": { "runStrategy": null, "running": running } });
    assert_eq!(told(strategy("Halted"), old_form(false)), Vec::<String>::new());
    assert_eq!(told(strategy("Halted"), old_form(true)), refused);
}

#[test]
fn the_status_is_guarded_as_well() {
    let old = vm(json!({}));
    let new = with_status(json!({ "spec": { "runStrategy": "Always" } }), json!({ "snapshotInProgress": "snap" }));
    assert_eq!(causes_of(status(Some(&old), &new, [])), ["FieldValueNotSupported spec"]);
    let new = with_status(json!({}), json!({ "snapshotInProgress": "snap", "restoreInProgress": "restore" }));
    assert_eq!(causes_of(status(Some(&old), &new, [])), Vec::<String>::new());
}

#[test]
fn only_the_status_of_a_status_is_judged() {
    let bad_spec =
        json!({ "spec": { "runStrategy": 1, "unknown": true, "template": { "spec": { "hostname": "a.b" } } } });
    let told = |over: Value, status_: Value| causes_of(status(None, &with_status(over, status_), []));
    assert_eq!(told(json!({}), json!({ "created": true })), Vec::<String>::new());
    assert_eq!(told(json!({}), json!({ "created": "yes" })), ["FieldValueTypeInvalid status.created"]);
    assert_eq!(told(json!({ "spec": { "unknown": true } }), json!({ "created": true })), Vec::<String>::new());
    assert_eq!(told(bad_spec, json!({ "created": "yes" })), ["FieldValueTypeInvalid status.created"]);
}
