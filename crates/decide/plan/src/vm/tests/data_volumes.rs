use api::cdi::DataVolume;
use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use std::time::Duration;

use super::*;
use crate::SyncError;
use crate::vm::{Access, access, is_populated_already};

fn with_template(strategy: &str, spec: Value) -> VirtualMachine {
    let template = json!({"metadata": {"name": "root", "labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": spec});
    let volumes = json!([{"name": "root", "dataVolume": {"name": "root"}}]);
    with(
        vm(strategy),
        json!({"spec": {"dataVolumeTemplates": [template],
                        "template": {"spec": {"volumes": volumes, "priorityClassName": "high"}}}}),
    )
}

fn blank() -> Value {
    json!({"source": {"blank": {}}, "storage": {}})
}

fn world_with(strategy: &str, status: Value) -> World {
    let mut w = world(with_template(strategy, blank()), None);
    w.claims.data_volumes.insert("root".into(), data_volume("root", status));
    w
}

/// What is created, and what has to be asked before.
fn created(w: &World) -> Vec<(DataVolume, Vec<Vec<SubjectAccessReviewSpec>>)> {
    let mut found = vec![];
    for action in decide(w) {
        match action {
            Action::Own(Own::CreateDataVolume { data_volume, .. }) => found.push((*data_volume, vec![])),
            Action::Own(Own::Authorize { any_of, then, .. }) => {
                let Action::Own(Own::CreateDataVolume { data_volume, .. }) = then.into_iter().next().unwrap() else {
                    panic!()
                };
                found.push((*data_volume, any_of));
            }
            _ => {}
        }
    }
    found
}

#[test]
fn a_missing_data_volume_is_made_from_its_template_before_anything_starts() {
    let w = world(with_template("Always", blank()), None);
    let actions = decide(&w);
    assert!(creates(&actions).is_none());
    let made = created(&w);
    let [(made, questions)] = made.as_slice() else { panic!("{made:#?}") };
    assert!(questions.is_empty(), "nothing is copied");
    assert_eq!((made.metadata.name.as_deref(), made.metadata.namespace.as_deref()), (Some("root"), Some("ns")));
    let labels = made.metadata.labels.clone().unwrap();
    assert_eq!((labels["a"].as_str(), labels["kubevirt.io/created-by"].as_str()), ("b", "vm-uid"));
    let noted = made.metadata.annotations.clone().unwrap();
    assert_eq!((noted["c"].as_str(), noted["cdi.kubevirt.io/allowClaimAdoption"].as_str()), ("d", "true"));
    assert!(machinery::meta::is_controlled_by(&made.metadata, "vm-uid"));
    assert_eq!(made.spec.priority_class_name.as_deref(), Some("high"));
    assert!(actions.iter().any(|a| matches!(a, Action::Note(n) if n.reason == "SuccessfulDataVolumeCreate")));
    assert!(!actions.iter().any(|a| matches!(a, Action::ReplaceStatus(_))), "its event brings us back");
}

#[test]
fn each_state_of_a_data_volume_lets_the_machine_start_or_says_what_it_waits_for() {
    let rows = [
        (json!({"phase": "Succeeded"}), None),
        (json!({"phase": "WaitForFirstConsumer"}), None),
        (json!({"phase": "PendingPopulation"}), None),
        (
            json!({"phase": "ImportInProgress", "progress": "12.0%"}),
            Some("DataVolume root is in phase ImportInProgress"),
        ),
        (json!({"phase": "Failed"}), Some("has failed")),
        (json!({}), Some("Data Importer running?")),
        (
            json!({"phase": "ImportInProgress", "conditions":
                [{"type": "Running", "status": "False", "reason": "Error", "message": "no route to host"}]}),
            Some("makes no progress: no route to host"),
        ),
    ];
    for (status, waits) in rows {
        let w = world_with("Always", status.clone());
        assert_eq!(creates(&decide(&w)).is_some(), waits.is_none(), "{status}");
        if let Some(words) = waits {
            assert!(waits_for(&w).contains(words), "{status}: {}", waits_for(&w));
            assert_eq!(failure(&w), None, "a wait is no failure");
        }
    }
    let progress =
        |percent: &str| waits_for(&world_with("Always", json!({"phase": "ImportInProgress", "progress": percent})));
    assert_eq!(progress("1.0%"), progress("99.0%"), "progress alone is not worth a write");
}

#[test]
fn a_failed_import_is_told_once() {
    let w = world_with("Always", json!({"phase": "Failed"}));
    let told = |w: &World| {
        decide(w).iter().any(|a| matches!(a, Action::Note(n) if n.warning && n.reason == "FailedDataVolumeImport"))
    };
    assert!(told(&w));
    let again = World { vm: Arc::new(status_after(&w)), ..w };
    assert!(!told(&again));
    assert_eq!(decide(&again), [], "settled");
}

#[test]
fn a_quota_without_room_is_a_failure_with_the_importers_words() {
    let over = json!({"phase": "Pending", "conditions":
        [{"type": "Bound", "status": "Unknown", "reason": "ErrExceededQuota", "message": "needs 10Gi"}]});
    let w = world_with("Always", over);
    let (reason, message) = failure(&w).unwrap();
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("needs 10Gi"), "{message}");
    assert!(decide(&w).iter().any(|a| matches!(a, Action::Note(n) if n.reason == "FailedDataVolumeImport")));
}

#[test]
fn a_halted_machine_gets_its_volumes_and_goes_on_without_them() {
    assert_eq!(created(&world(with_template("Halted", blank()), None)).len(), 1);
    let mut w = world_with("Halted", json!({"phase": "ImportInProgress"}));
    w.vm = Arc::new(with_requests((*w.vm).clone(), json!([{"action": "Start"}])));
    assert!(machine_after(&w).is_some(), "a start request is heard");
}

#[test]
fn volumes_can_be_put_off_until_the_start() {
    let put_off = |strategy: &str| {
        let mut vm = with_template(strategy, blank());
        let annotations = vm.metadata.annotations.as_mut().unwrap();
        annotations.insert("kubevirt.io/immediate-data-volume-creation".into(), "false".into());
        world(vm, None)
    };
    assert_eq!(created(&put_off("Manual")).len(), 0);
    assert_eq!(created(&put_off("Always")).len(), 1);
}

#[test]
fn a_stop_does_not_wait_for_volumes() {
    let mut w = world_with("Manual", json!({"phase": "ImportInProgress"}));
    w.vmi = Some(Arc::new(vmi("Running")));
    w.vm = Arc::new(with_requests((*w.vm).clone(), json!([{"action": "Stop", "uid": "vmi-uid"}])));
    assert!(deletes(&decide(&w)));
}

#[test]
fn a_running_guest_is_changed_while_a_further_volume_is_on_its_way() {
    let mut w = world_with("Manual", json!({"phase": "ImportInProgress"}));
    w.vmi = Some(Arc::new(vmi("Running")));
    let evict =
        json!({"spec": {"template": {"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/evict": "true"}}}}});
    w.vm = Arc::new(with((*w.vm).clone(), evict));
    assert!(instance_after(&w).is_some());
}

#[test]
fn nothing_is_made_twice_while_the_first_does_not_show() {
    let mut w = world(with_template("Always", blank()), None);
    w.expects_data_volumes = Some(Duration::from_secs(7));
    let actions = decide(&w);
    assert!(created(&w).is_empty());
    assert!(actions.contains(&Action::RequeueAfter(Duration::from_secs(7))), "{actions:#?}");
}

#[test]
fn an_ownerless_data_volume_of_a_template_is_adopted_unless_it_goes() {
    let mut w = world_with("Always", json!({"phase": "Succeeded"}));
    let orphan = |deletion: Option<i64>| {
        let mut orphan = (*data_volume("root", json!({"phase": "Succeeded"}))).clone();
        orphan.metadata.owner_references = None;
        orphan.metadata.deletion_timestamp = deletion.map(time);
        Arc::new(orphan)
    };
    w.claims.data_volumes.insert("root".into(), orphan(None));
    let actions = decide(&w);
    let [adoption] = actions.as_slice() else { panic!("{actions:#?}") };
    let (kind, name, set) = adopts(adoption).unwrap();
    assert_eq!((kind, name, &set["uid"]), (Kind::DataVolume, "root", &json!("dv-uid")));
    assert_eq!(set["ownerReferences"][0]["uid"], "vm-uid");
    w.claims.data_volumes.insert("root".into(), orphan(Some(1)));
    assert!(!decide(&w).iter().any(|action| adopts(action).is_some()));
}

#[test]
fn an_existing_claim_that_is_called_a_duplicate_is_no_failure() {
    let cases = [
        (true, ["FieldValueDuplicate"].as_slice(), true),
        (true, &["FieldValueInvalid", "FieldValueDuplicate"], true),
        (true, &["FieldValueInvalid"], false),
        (true, &[], false),
        (false, &["FieldValueDuplicate"], false),
    ];
    for (claim_exists, causes, fine) in cases {
        let found = is_populated_already(claim_exists, causes.iter().copied());
        assert_eq!(found, fine, "claim {claim_exists}, causes {causes:?}");
    }
}

#[test]
fn a_copy_is_allowed_if_all_requests_of_one_list_are() {
    let ask = |user: &str| SubjectAccessReviewSpec { user: Some(user.into()), ..SubjectAccessReviewSpec::default() };
    let any_of = [vec![ask("a")], vec![ask("b"), ask("c")]];
    let cases = [
        ([].as_slice(), Access::Ask(&any_of[0][0])),
        (&[true], Access::Granted),
        (&[false], Access::Ask(&any_of[1][0])),
        (&[false, false], Access::Denied),
        (&[false, true], Access::Ask(&any_of[1][1])),
        (&[false, true, false], Access::Denied),
        (&[false, true, true], Access::Granted),
    ];
    for (answers, expected) in cases {
        assert_eq!(access(&any_of, answers), expected, "{answers:?}");
    }
    assert_eq!(access(&[], &[]), Access::Denied, "nothing that would be enough");
    assert_eq!(access(&[vec![]], &[]), Access::Granted, "nothing is needed");
}

fn data_source(namespace: &str, name: &str, source: Value) -> Arc<api::cdi::DataSource> {
    let value = json!({"metadata": {"namespace": namespace, "name": name}, "spec": {"source": source}});
    Arc::new(serde_json::from_value(value).unwrap())
}

#[test]
fn a_data_source_is_followed_to_what_it_stands_for() {
    let spec = json!({"sourceRef": {"kind": "DataSource", "name": "fedora", "namespace": "images"}, "storage": {}});
    let mut w = world(with_template("Always", spec), None);
    let place = |name: &str| ("images".to_owned(), name.to_owned());
    let (reason, message) = failure(&w).unwrap();
    assert_eq!(reason, "FailedCreate");
    assert!(message.contains("spec.dataVolumeTemplates[0].spec.sourceRef") && message.contains("fedora"), "{message}");
    assert!(decide(&w).iter().any(|action| matches!(action, Action::RequeueAfter(_))), "it may come");

    w.data_sources.insert(place("fedora"), data_source("images", "fedora", json!({"dataSource": {"name": "f40"}})));
    assert!(failure(&w).unwrap().1.contains("f40"));
    w.data_sources
        .insert(place("f40"), data_source("images", "f40", json!({"pvc": {"name": "disk", "namespace": ""}})));
    let made = created(&w);
    let (made, questions) = &made[0];
    assert_eq!(made.spec.source_ref, None);
    let source = made.spec.source.clone().unwrap().pvc.unwrap();
    assert_eq!((source.namespace.as_str(), source.name.as_str()), ("images", "disk"));
    assert!(!questions.is_empty(), "it is another namespace's");
    let missing =
        |w: &World| decide(w).iter().any(|a| matches!(a, Action::Note(n) if n.reason == "SourcePVCNotAvailabe"));
    assert!(missing(&w));
    w.copied_claims.insert(place("disk"));
    assert!(!missing(&w));

    let wanted = crate::vm::wanted(&w.vm, None, &w.data_sources);
    assert!(wanted.data_sources.contains(&place("f40")) && wanted.copied_claims.contains(&place("disk")), "{wanted:?}");
    w.data_sources.insert(place("f40"), data_source("images", "f40", json!({"dataSource": {"name": "fedora"}})));
    assert!(failure(&w).unwrap().1.contains("followed once"), "no circles");
}

#[test]
fn a_copy_from_another_namespace_is_asked_for_in_the_name_of_the_guests_account() {
    let from = |source: Value| json!({"source": source, "storage": {}});
    let ask = |source: Value, change: Value| {
        let w = world(with(with_template("Always", from(source)), change), None);
        created(&w).into_iter().next().unwrap().1
    };
    let claim = json!({"pvc": {"name": "disk", "namespace": "images"}});
    let asked = ask(claim.clone(), json!({}));
    assert_eq!(asked.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1], "either is enough");
    let question = &asked[0][0];
    assert_eq!(question.user.as_deref(), Some("system:serviceaccount:ns:default"));
    assert!(question.groups.as_ref().unwrap().contains(&"system:serviceaccounts:ns".to_owned()));
    let about = question.resource_attributes.clone().unwrap();
    let about = [about.verb, about.group, about.resource, about.subresource, about.namespace, about.name];
    let about: Vec<_> = about.into_iter().map(Option::unwrap).collect();
    assert_eq!(about, ["create", "cdi.kubevirt.io", "datavolumes", "source", "images", "disk"]);
    assert_eq!(asked[1][0].resource_attributes.clone().unwrap().resource.as_deref(), Some("pods"));

    let snapshot = ask(json!({"snapshot": {"name": "s", "namespace": "images"}}), json!({}));
    assert_eq!(snapshot.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2], "Pods and claims together");
    let named = ask(claim.clone(), json!({"spec": {"template": {"spec": {"serviceAccountName": "builder"}}}}));
    assert_eq!(named[0][0].user.as_deref(), Some("system:serviceaccount:ns:builder"));
    let mounted = json!([{"name": "root", "dataVolume": {"name": "root"}},
                         {"name": "sa", "serviceAccount": {"serviceAccountName": "mounted"}}]);
    let mounted = ask(claim, json!({"spec": {"template": {"spec": {"volumes": mounted}}}}));
    assert_eq!(mounted[0][0].user.as_deref(), Some("system:serviceaccount:ns:mounted"));
    assert!(ask(json!({"pvc": {"name": "disk", "namespace": "ns"}}), json!({})).is_empty(), "its own namespace");
    assert!(ask(json!({"pvc": {"name": "disk", "namespace": ""}}), json!({})).is_empty());
}

#[test]
fn failures_around_data_volumes_have_events_of_their_own_and_one_reason() {
    for event in ["UnauthorizedDataVolumeCreate", "FailedDataVolumeCreate"] {
        let failed = Some(SyncError::new(event, "no"));
        let w = World { failed, ..world(with_template("Always", blank()), None) };
        assert_eq!(failure(&w), Some(("FailedCreate".into(), "no".into())));
        assert!(decide(&w).iter().any(|a| matches!(a, Action::Note(n) if n.warning && n.reason == event)));
        assert!(created(&w).is_empty(), "one attempt per pass");
    }
}
