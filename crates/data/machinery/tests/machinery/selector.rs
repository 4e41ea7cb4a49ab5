//! Label and field selectors against what Kubernetes answers.

use std::collections::BTreeMap;

use crate::recorded::cases;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use machinery::selector::{FieldSelector, Selector};
use proptest::prelude::*;
use serde_json::json;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn label_selectors_are_read_and_match_as_in_kubernetes() {
    let object =
        labels(&[("app", "web"), ("tier", "front"), ("rank", "7"), ("empty", ""), ("kubevirt.io/nodeName", "n1")]);
    for case in cases(include_str!("recorded/label_selectors.txt")) {
        match case.columns.as_slice() {
            &[text, written, matches] => {
                let selector = Selector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
                assert_eq!(selector.to_string(), written, "{text}");
                assert_eq!(selector.matches(&object).to_string(), matches, "{text}");
                assert_eq!(Selector::parse(written).as_ref(), Ok(&selector), "{text} changes when read again");
            }
            &[text, error] => {
                let found = Selector::parse(text).map(|selector| selector.to_string());
                assert_eq!(found.map_err(|found| format!("error: {found}")), Err(error.to_owned()), "{text}");
            }
            other => panic!("a case of {other:?}"),
        }
    }
}

#[test]
fn field_selectors_are_read_and_match_as_in_kubernetes() {
    let pod = json!({
        "metadata": { "name": "a", "namespace": "default" },
        "spec": { "nodeName": "n1", "odd": "x,y=z\\" },
        "status": { "phase": "Running" },
    });
    for case in cases(include_str!("recorded/field_selectors.txt")) {
        match case.columns.as_slice() {
            &[text, written, matches] => {
                let selector = FieldSelector::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
                assert_eq!(selector.to_string(), written, "{text}");
                assert_eq!(selector.matches(&pod).to_string(), matches, "{text}");
            }
            &[text, error] => {
                let found = FieldSelector::parse(text).map(|selector| selector.to_string());
                assert_eq!(found.map_err(|found| format!("error: {found}")), Err(error.to_owned()), "{text}");
            }
            other => panic!("a case of {other:?}"),
        }
    }
}

#[test]
fn fields_of_other_types_are_compared_as_json() {
    let object = json!({ "spec": { "priority": 5, "on": true, "none": null } });
    for (text, want) in [("spec.priority=5", true), ("spec.on=true", true), ("spec.none=", true), ("spec.on=", false)] {
        assert_eq!(FieldSelector::parse(text).unwrap().matches(&object), want, "{text}");
    }
}

#[test]
fn selectors_in_objects_need_labels_and_expressions_to_hold() {
    let expression = |key: &str, operator: &str, values: &[&str]| LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: (!values.is_empty()).then(|| values.iter().map(|&v| v.to_owned()).collect()),
    };
    let selector = LabelSelector {
        match_labels: Some(labels(&[("app", "web")])),
        match_expressions: Some(vec![
            expression("tier", "In", &["front", "back"]),
            expression("old", "DoesNotExist", &[]),
        ]),
    };
    let read = Selector::from_label_selector(&selector).unwrap();
    assert!(read.matches(&labels(&[("app", "web"), ("tier", "back")])));
    assert!(!read.matches(&labels(&[("app", "web")])));
    assert!(!read.matches(&labels(&[("app", "web"), ("tier", "back"), ("old", "")])));
    assert!(Selector::from_label_selector(&LabelSelector::default()).unwrap().matches(&labels(&[])));
    let name_rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let cases: [(&str, &str, &[&str], &str); 6] = [
        ("a", "In", &[], "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        ("a", "NotIn", &[], "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty"),
        (
            "a",
            "Exists",
            &["x"],
            r#"values: Invalid value: ["x"]: values set must be empty for exists and does not exist"#,
        ),
        (
            "a",
            "DoesNotExist",
            &["x"],
            r#"values: Invalid value: ["x"]: values set must be empty for exists and does not exist"#,
        ),
        ("a", "Near", &["x"], r#""Near" is not a valid label selector operator"#),
        ("-a", "Exists", &[], &format!(r#"key: Invalid value: "-a": name part {name_rule}"#)),
    ];
    for (key, operator, values, want) in cases {
        let broken =
            LabelSelector { match_expressions: Some(vec![expression(key, operator, values)]), ..Default::default() };
        assert_eq!(Selector::from_label_selector(&broken).unwrap_err().to_string(), want);
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parsers_panic_and_what_they_read_prints_and_reads_again(text in "[a-c0-9=!(),<>in \\\\.-]{0,24}") {
        if let Ok(selector) = Selector::parse(&text) {
            prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            prop_assert_eq!(FieldSelector::parse(&selector.to_string()), Ok(selector));
        }
    }
}
