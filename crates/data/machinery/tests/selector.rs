//! Label and field selectors.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use machinery::selector::{FieldSelector, Selector};
use serde_json::json;

fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn label_selectors_match_as_in_kubernetes() {
    let object =
        labels(&[("app", "web"), ("tier", "front"), ("rank", "7"), ("empty", ""), ("kubevirt.io/nodeName", "n1")]);
    let cases = [
        ("", true),
        ("app", true),
        ("!app", false),
        ("missing", false),
        ("!missing", true),
        ("app=web", true),
        ("app==web", true),
        ("app=db", false),
        ("app!=db", true),
        ("missing!=db", true),
        ("app in (web,db)", true),
        ("app in (db)", false),
        ("app notin (db,cache)", true),
        ("missing notin (db)", true),
        ("missing in (db)", false),
        ("rank>6", true),
        ("rank<7", false),
        ("app>1", false),
        ("empty=", true),
        ("app=", false),
        ("app=web,tier=front", true),
        ("app=web,tier=back", false),
        (" app = web , tier in ( front , back ) ", true),
        ("kubevirt.io/nodeName=n1", true),
        ("kubevirt.io/nodeName in (n1,n2),!gone", true),
        ("in=x", false),
    ];
    for (text, want) in cases {
        let selector = Selector::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(selector.matches(&object), want, "{text}");
        let again = Selector::parse(&selector.to_string()).unwrap();
        assert_eq!(again, selector, "{text} changes when printed and read again");
    }
}

#[test]
fn broken_label_selectors_are_refused() {
    for text in
        ["=a", "a=b c", "a in b", "a in (b", "a,,b", ",", "a>b", "a=b!", "!", "a b", "-a=b", "a=-b", "a/b/c", "a=b,"]
    {
        assert!(Selector::parse(text).is_err(), "{text:?} was read");
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
    for (operator, values) in [("In", &[][..]), ("Exists", &["x"][..]), ("Near", &["x"][..])] {
        let broken =
            LabelSelector { match_expressions: Some(vec![expression("a", operator, values)]), ..Default::default() };
        assert!(Selector::from_label_selector(&broken).is_err(), "{operator} {values:?} was read");
    }
}

#[test]
fn field_selectors_compare_the_text_of_fields() {
    let pod = json!({
        "metadata": { "name": "a", "namespace": "default" },
        "spec": { "nodeName": "n1", "priority": 5, "odd": "x,y=z" },
        "status": { "phase": "Running" },
    });
    let cases = [
        ("", true),
        ("metadata.name=a", true),
        ("metadata.name==a,spec.nodeName!=n2", true),
        ("spec.nodeName=", false),
        ("spec.missing=", true),
        ("spec.missing!=x", true),
        ("spec.priority=5", true),
        (r"spec.odd=x\,y\=z", true),
        ("status.phase!=Running", false),
    ];
    for (text, want) in cases {
        let selector = FieldSelector::parse(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(selector.matches(&pod), want, "{text}");
    }
    for text in ["metadata.name", "a=b=c", r"a=b\", r"a=\x", "a!b"] {
        assert!(FieldSelector::parse(text).is_err(), "{text:?} was read");
    }
}
