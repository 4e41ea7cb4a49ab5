//! Instance type and preference from the labels of a volume.

use admission::{Operation, Refusal, Review, Wanted, World, wanted};
use serde_json::{Value, json};

use super::{cluster_instancetype, create};
use crate::{now, someone, vm};

/// An object with labels that name an instance type and a preference, or without.
fn labelled(kind: &str, name: &str, says: bool) -> Value {
    let labels = json!({
        "instancetype.kubevirt.io/default-instancetype": "small",
        "instancetype.kubevirt.io/default-instancetype-kind": "VirtualMachineInstancetype",
        "instancetype.kubevirt.io/default-preference": "linux",
    });
    let labels = if says { labels } else { json!({ "app": "x" }) };
    json!({ "kind": kind, "metadata": { "namespace": "ns", "name": name, "labels": labels } })
}

fn with_spec(mut object: Value, spec: Value) -> Value {
    object["spec"] = spec;
    object
}

fn claim(name: &str) -> Value {
    labelled("PersistentVolumeClaim", name, true)
}

/// A machine that infers both from its volume `data`.
fn infers(volume: Value, templates: Value, policy: Value) -> Value {
    let matcher = json!({ "inferFromVolume": "data", "inferFromVolumeFailurePolicy": policy });
    let mut data = json!({ "name": "data" });
    machinery::patch::merge(&mut data, &volume);
    vm(json!({
        "spec": {
            "instancetype": matcher, "preference": matcher, "dataVolumeTemplates": templates,
            "template": { "spec": {
                "domain": { "devices": { "disks": [{ "name": "data" }] } }, "volumes": [data],
            } },
        },
    }))
}

fn template(spec: Value) -> Value {
    json!([{ "metadata": { "name": "dv" }, "spec": spec }])
}

/// The matchers that come out, or the refusal.
fn inferred(object: &Value, world: Vec<Value>) -> Result<(Value, Value), String> {
    match create(object, world) {
        Ok(judged) => Ok((judged.object["spec"]["instancetype"].clone(), judged.object["spec"]["preference"].clone())),
        Err(Refusal::BadRequest(message)) => Err(message),
        Err(Refusal::Invalid(causes)) => panic!("refused with fields: {causes:?}"),
    }
}

/// A volume, DataVolume templates, and the other objects; the labels are somewhere among them.
fn chains() -> Vec<(&'static str, Value, Value, Vec<Value>)> {
    let pvc_volume = json!({ "persistentVolumeClaim": { "claimName": "pvc" } });
    let dv_volume = json!({ "dataVolume": { "name": "dv" } });
    let from_pvc = json!({ "source": { "pvc": { "namespace": "ns", "name": "pvc" } } });
    let from_snapshot = json!({ "source": { "snapshot": { "namespace": "ns", "name": "snap" } } });
    let from_ref = json!({ "sourceRef": { "kind": "DataSource", "name": "ds" } });
    let from_ref_elsewhere = json!({ "sourceRef": { "kind": "DataSource", "namespace": "ns", "name": "ds" } });
    let silent = |kind: &str, name: &str, spec: &Value| with_spec(labelled(kind, name, false), spec.clone());
    let snapshot = || labelled("VolumeSnapshot", "snap", true);
    let points_to_claim = json!({ "source": { "pvc": { "namespace": "ns", "name": "pvc" } } });
    let points_to_snapshot = json!({ "source": { "snapshot": { "namespace": "ns", "name": "snap" } } });
    let mut own_labels = template(from_pvc.clone());
    own_labels[0]["metadata"]["labels"] = claim("any")["metadata"]["labels"].clone();
    vec![
        ("claim", pvc_volume, json!(null), vec![claim("pvc")]),
        ("template with labels", dv_volume.clone(), own_labels, vec![]),
        ("template of a claim", dv_volume.clone(), template(from_pvc.clone()), vec![claim("pvc")]),
        ("template of a snapshot", dv_volume.clone(), template(from_snapshot.clone()), vec![snapshot()]),
        (
            "template of a DataSource with labels",
            dv_volume.clone(),
            template(from_ref.clone()),
            vec![labelled("DataSource", "ds", true)],
        ),
        (
            "template of a DataSource of a claim",
            dv_volume.clone(),
            template(from_ref_elsewhere),
            vec![silent("DataSource", "ds", &points_to_claim), claim("pvc")],
        ),
        (
            "template of a DataSource of a snapshot",
            dv_volume.clone(),
            template(from_ref.clone()),
            vec![silent("DataSource", "ds", &points_to_snapshot), snapshot()],
        ),
        (
            "DataVolume with labels",
            dv_volume.clone(),
            json!(null),
            vec![with_spec(labelled("DataVolume", "dv", true), from_pvc.clone())],
        ),
        (
            "DataVolume of a claim",
            dv_volume.clone(),
            json!(null),
            vec![silent("DataVolume", "dv", &from_pvc), claim("pvc")],
        ),
        (
            "DataVolume of a snapshot",
            dv_volume.clone(),
            json!(null),
            vec![silent("DataVolume", "dv", &from_snapshot), snapshot()],
        ),
        (
            "DataVolume of a DataSource of a claim",
            dv_volume.clone(),
            json!(null),
            vec![silent("DataVolume", "dv", &from_ref), silent("DataSource", "ds", &points_to_claim), claim("pvc")],
        ),
        ("DataVolume that is gone, its claim", dv_volume, json!(null), vec![claim("dv")]),
    ]
}

#[test]
fn labels_are_found_at_the_end_of_every_chain() {
    let expected = (json!({ "name": "small", "kind": "VirtualMachineInstancetype" }), json!({ "name": "linux" }));
    for (chain, volume, templates, world) in chains() {
        let found = inferred(&infers(volume, templates, json!(null)), world);
        assert_eq!(found.as_ref(), Ok(&expected), "{chain}");
    }
}

#[test]
fn a_chain_that_is_broken_fails_whatever_the_policy() {
    for (chain, volume, templates, mut world) in chains().into_iter().filter(|(_, _, _, world)| !world.is_empty()) {
        world.pop();
        for policy in [json!(null), json!("Reject"), json!("Ignore")] {
            let message = inferred(&infers(volume.clone(), templates.clone(), policy), world.clone());
            let message = message.expect_err("nothing to infer from");
            assert!(message.starts_with("cannot infer the instance type from the volume \"data\": the "), "{message}");
            assert!(message.ends_with(" does not exist"), "{chain}: {message}");
        }
    }
    let object = infers(json!({ "name": "other" }), json!(null), json!("Ignore"));
    let message = inferred(&object, vec![]).expect_err("no such volume");
    assert!(message.ends_with("the template has no volume of this name"), "{message}");
}

#[test]
fn a_chain_without_an_answer_is_an_error_or_ignored() {
    let dv = json!({ "dataVolume": { "name": "dv" } });
    let silent_claim = || labelled("PersistentVolumeClaim", "pvc", false);
    let silent = |spec: Value| with_spec(labelled("DataSource", "ds", false), spec);
    let of_data_source = || template(json!({ "sourceRef": { "kind": "DataSource", "name": "ds" } }));
    // The volume, its DataVolume template, the other objects, and what is missing.
    let cases = [
        (json!({ "containerDisk": { "image": "i" } }), json!(null), vec![], "only claims and DataVolumes have labels"),
        (
            json!({ "persistentVolumeClaim": { "claimName": "pvc" } }),
            json!(null),
            vec![silent_claim()],
            "has no label instancetype.kubevirt.io/default-instancetype",
        ),
        (
            dv.clone(),
            template(json!({ "source": { "blank": {} } })),
            vec![],
            "the source of the DataVolume has no labels",
        ),
        (
            dv.clone(),
            template(json!({ "sourceRef": { "kind": "Elsewhere", "name": "x" } })),
            vec![],
            "a source of kind \"Elsewhere\" has no labels",
        ),
        (dv.clone(), of_data_source(), vec![silent(json!({ "source": {} }))], "names no claim or snapshot"),
        (
            dv,
            of_data_source(),
            vec![silent(json!({ "source": { "pvc": { "namespace": "ns", "name": "pvc" } } })), silent_claim()],
            "has no label",
        ),
    ];
    for (volume, templates, world, missing) in cases {
        for policy in [json!(null), json!("Reject")] {
            let message = inferred(&infers(volume.clone(), templates.clone(), policy), world.clone());
            let message = message.expect_err("nothing to infer");
            assert!(message.contains(missing), "{message}");
        }
        let ignored = inferred(&infers(volume.clone(), templates, json!("Ignore")), world);
        assert_eq!(ignored, Ok((Value::Null, Value::Null)), "{volume}");
    }
}

#[test]
fn memory_for_the_case_of_failure_goes_with_success() {
    let memory = |policy: Value, says: bool| {
        let object = infers(json!({ "persistentVolumeClaim": { "claimName": "pvc" } }), json!(null), policy);
        let world = vec![labelled("PersistentVolumeClaim", "pvc", says), cluster_instancetype("small", json!({}))];
        let judged = create(&object, world).expect("it is stored");
        judged.object["spec"]["template"]["spec"]["domain"]["memory"].clone()
    };
    assert_eq!(memory(json!("Ignore"), true), Value::Null);
    assert_eq!(memory(json!("Ignore"), false), json!({ "guest": "128Mi" }));
    assert_eq!(memory(json!("Reject"), true), json!({ "guest": "128Mi" }));
}

#[test]
fn one_matcher_may_infer_while_the_other_does_not() {
    let mut object = infers(json!({ "persistentVolumeClaim": { "claimName": "pvc" } }), json!(null), json!(null));
    object["spec"]["instancetype"] = json!({ "name": "mine" });
    let found = inferred(&object, vec![claim("pvc")]);
    assert_eq!(found, Ok((json!({ "name": "mine" }), json!({ "name": "linux" }))));
}

/// Asks as a server does, one round after the other, and tells what was asked for in each.
fn rounds(object: &Value, objects: &[Value]) -> Vec<Vec<String>> {
    let user = someone();
    let request = Review::of(Operation::Create, "v1", "virtualmachines", &user, object, now());
    let mut world = World::default();
    let mut rounds = Vec::new();
    loop {
        let asked = wanted(&request, &world);
        if asked.is_empty() {
            return rounds;
        }
        assert!(rounds.len() < 10, "the questions have an end");
        rounds.push(asked.iter().map(spelled).collect());
        for question in asked {
            let found = objects.iter().find(|object| {
                object["kind"] == question.kind
                    && Some(object["metadata"]["name"].as_str()) == Some(question.name.as_deref())
            });
            world.learn(question, found.cloned());
        }
    }
}

fn spelled(wanted: &Wanted) -> String {
    format!("{}/{} {}/{}", wanted.group, wanted.kind, wanted.namespace, wanted.name.as_deref().unwrap_or("*"))
}

#[test]
fn a_chain_is_fetched_in_as_many_rounds_as_it_has_links() {
    let (_, volume, templates, world) = chains()
        .into_iter()
        .find(|(chain, ..)| *chain == "DataVolume of a DataSource of a claim")
        .expect("it is listed");
    let object = infers(volume, templates, json!(null));
    let expected = vec![
        // The claim is for the case that the DataVolume is gone; asking at once saves a round.
        vec!["/PersistentVolumeClaim ns/dv".to_owned(), "cdi.kubevirt.io/DataVolume ns/dv".to_owned()],
        vec!["cdi.kubevirt.io/DataSource ns/ds".to_owned()],
        vec!["/PersistentVolumeClaim ns/pvc".to_owned()],
        vec![
            "instancetype.kubevirt.io/VirtualMachineClusterPreference /linux".to_owned(),
            "instancetype.kubevirt.io/VirtualMachineInstancetype ns/small".to_owned(),
        ],
    ];
    assert_eq!(rounds(&object, &world), expected);
}

#[test]
fn a_machine_that_names_nothing_needs_nothing() {
    assert_eq!(rounds(&vm(json!({})), &[]), Vec::<Vec<String>>::new());
}

#[test]
fn revisions_are_asked_for_before_live_objects() {
    let object = vm(json!({
        "spec": { "instancetype": { "name": "a", "revisionName": "r" }, "preference": { "name": "p", "kind": "virtualmachinepreference" } },
        "status": { "preferenceRef": { "controllerRevisionRef": { "name": "recorded" } } },
    }));
    let expected =
        vec![vec!["apps/ControllerRevision ns/r".to_owned(), "apps/ControllerRevision ns/recorded".to_owned()]];
    assert_eq!(rounds(&object, &[]), expected);
}
