//! Valid names and derived names.

use std::collections::BTreeMap;

use crate::recorded::cases;
use machinery::field::{Cause, FieldPath};
use machinery::names::*;
use proptest::prelude::*;

#[test]
fn names_are_valid_or_wrong_as_kubernetes_says() {
    for case in cases(include_str!("recorded/names.txt")) {
        let &[rule, name] = case.columns.as_slice() else { panic!("a case of {:?}", case.columns) };
        let name = [63, 64, 254]
            .iter()
            .fold(name.to_owned(), |name, &count| name.replace(&format!("<{count}a>"), &"a".repeat(count)));
        let map = || -> BTreeMap<String, String> { serde_json::from_str(&name).unwrap() };
        let errors = |errors: Vec<machinery::field::FieldError>| {
            errors.iter().map(|error| format!("{} {error}", error.cause.as_str())).collect()
        };
        let problems: Vec<String> = match rule {
            "label" => check_dns1123_label(&name),
            "subdomain" => check_dns1123_subdomain(&name),
            "service" => check_dns1035_label(&name),
            "key" => check_qualified_name(&name),
            "value" => check_label_value(&name),
            "labels" => errors(check_labels(&FieldPath::from("metadata.labels"), &map())),
            "annotations" => errors(check_annotations(&FieldPath::from("metadata.annotations"), &map())),
            other => panic!("a rule {other}"),
        };
        assert_eq!(problems, case.answers, "{name:?} as {rule}");
    }
}

#[test]
fn annotations_have_a_total_size() {
    let path = FieldPath::from("metadata.annotations");
    let annotations = |length: usize| BTreeMap::from([("a".to_owned(), "x".repeat(length))]);
    assert_eq!(check_annotations(&path, &annotations(ANNOTATIONS_MAX - 1)), []);
    let [error] = check_annotations(&path, &annotations(ANNOTATIONS_MAX)).try_into().unwrap();
    assert_eq!(error.cause, Cause::TooLong);
    assert_eq!(error.to_string(), "metadata.annotations: Too long: may not be more than 262144 bytes");
}

#[test]
fn a_launcher_pod_is_named_after_its_instance_and_uid() {
    let name = launcher_pod_name("web", "6a1a24a1-4061-4607-8bf4-a3963d0c5895");
    assert_eq!(name, launcher_pod_name("web", "6a1a24a1-4061-4607-8bf4-a3963d0c5895"), "the same owner, the same name");
    assert_ne!(name, launcher_pod_name("web", "00000000-4061-4607-8bf4-a3963d0c5895"));
    assert_eq!(name.strip_prefix("virt-launcher-web-").map(str::len), Some(5));
}

#[test]
fn long_names_are_cut_and_keep_a_hash_of_what_is_lost() {
    assert_eq!(truncated_name("short", "x", 63), "short-x");
    let long = "a".repeat(80);
    let cut = truncated_name(&long, "xyz12", 63);
    assert_eq!(cut.len(), 63);
    assert!(cut.ends_with("-xyz12"));
    assert_ne!(cut, truncated_name(&format!("{long}b"), "xyz12", 63), "the lost part still counts");
    assert_eq!(truncated_name("prefix", &"s".repeat(70), 20).len(), 15);
    assert_ne!(truncated_name("p", &"s".repeat(70), 20), truncated_name("p", &"s".repeat(71), 20));
}

proptest! {
    #[test]
    fn launcher_pod_names_are_valid_for_every_instance(name in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?([.][a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?){0,4}", uid in "[0-9a-f-]{36}") {
        let pod = launcher_pod_name(&name, &uid);
        prop_assert!(pod.len() <= LABEL_MAX);
        prop_assert_eq!(check_dns1123_subdomain(&pod), Vec::<String>::new(), "{}", pod);
    }
}
