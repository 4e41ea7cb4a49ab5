use api::cdi::DataSource;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Objects, of};
use crate::data_source::decide;
use crate::installation;

fn source(name: &str, source: Value) -> DataSource {
    of(json!({"metadata": {"namespace": "ns", "name": name}, "spec": {"source": source}}))
}

#[test]
fn a_data_source_says_whether_it_can_be_used() {
    let label = "instancetype.kubevirt.io/default-preference";
    let claim =
        |name: &str| of(json!({"metadata": {"namespace": "ns", "name": name, "labels": {label: "linux", "x": "y"}}}));
    let dv = |name: &str, phase: &str| {
        of(json!({"metadata": {"namespace": "ns", "name": name}, "spec": {}, "status": {"phase": phase}}))
    };
    let pvc = |name: &str| json!({"pvc": {"namespace": "ns", "name": name}});
    let snapshot = |name: &str| json!({"snapshot": {"namespace": "ns", "name": name}});
    let other = |name: &str, namespace: &str| json!({"dataSource": {"namespace": namespace, "name": name}});
    let objects = Objects {
        claims: vec![claim("plain"), claim("done"), claim("half")],
        data_volumes: vec![dv("done", "Succeeded"), dv("half", "ImportInProgress")],
        snapshots: vec![
            of(
                json!({"metadata": {"namespace": "ns", "name": "ready"}, "spec": {"source": {}}, "status": {"readyToUse": true}}),
            ),
            of(json!({"metadata": {"namespace": "ns", "name": "early"}, "spec": {"source": {}}})),
        ],
        data_sources: vec![source("one", pvc("plain")), source("two", other("one", "ns"))],
        ..Objects::default()
    };
    let now = Timestamp::from_second(7).unwrap();
    for (spec, status, reason, end) in [
        (pvc("plain"), "True", "Ready", json!({"pvc": {"namespace": "ns", "name": "plain"}})),
        (pvc("done"), "True", "Ready", json!({"pvc": {"namespace": "ns", "name": "done"}})),
        (pvc("half"), "False", "ImportInProgress", json!({})),
        (pvc("gone"), "False", "NotFound", json!({})),
        (snapshot("ready"), "True", "Ready", json!({"snapshot": {"namespace": "ns", "name": "ready"}})),
        (snapshot("early"), "False", "SnapshotNotReady", json!({})),
        (snapshot("gone"), "False", "NotFound", json!({})),
        (json!({}), "False", "NoSource", json!({})),
        (other("one", "ns"), "True", "Ready", json!({"pvc": {"namespace": "ns", "name": "plain"}})),
        (other("two", "ns"), "False", "MaxReferenceDepthReached", json!({})),
        (other("tested", "ns"), "False", "SelfReference", json!({})),
        (other("one", "there"), "False", "CrossNamespaceReference", json!({})),
        (other("gone", "ns"), "False", "NotFound", json!({})),
    ] {
        let mut tested = source("tested", spec.clone());
        let update = decide(&tested, &objects, now);
        let told = json!(update.status.as_ref().unwrap());
        assert_eq!(
            (&told["conditions"][0]["status"], &told["conditions"][0]["reason"]),
            (&json!(status), &json!(reason)),
            "{spec}"
        );
        assert_eq!(told["source"], end, "{spec}");
        tested.status = update.status;
        assert_eq!(decide(&tested, &objects, now).status, None, "it is told once");
    }
    let labels = decide(&source("tested", pvc("plain")), &objects, now).labels;
    assert_eq!(labels.into_iter().collect::<Vec<_>>(), [(label.to_owned(), "linux".to_owned())]);
}

#[test]
fn profiles_say_what_our_classes_can_and_administrators_may_differ() {
    let classes = super::classes();
    let mut profile = installation::profile(&classes[0]);
    let told = installation::profile_status(&profile, &classes[0]);
    let first = &told.claim_property_sets[0];
    assert_eq!(
        (first.access_modes.as_slice(), first.volume_mode.as_deref()),
        (&["ReadWriteMany".to_owned()][..], Some("Filesystem"))
    );
    assert_eq!(told.claim_property_sets.len(), 4);
    assert!(installation::profile_status(&profile, &classes[2]).claim_property_sets.is_empty());
    profile.spec.claim_property_sets = vec![first.clone()];
    assert_eq!(
        installation::profile_status(&profile, &classes[2]).claim_property_sets,
        profile.spec.claim_property_sets
    );
}
