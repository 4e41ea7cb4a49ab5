//! What the schemas say of objects, against what Kubernetes says of them by KubeVirt's definitions.

use api::schema::{apply_defaults, check, validate, validations};
use serde_json::Value;

/// An object of a kind and the lines below it.
struct Case {
    kind: &'static str,
    text: &'static str,
    lines: Vec<&'static str>,
}

fn cases(table: &'static str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match (line.strip_prefix("  "), cases.last_mut()) {
            (Some(answer), Some(case)) => case.lines.push(answer),
            _ => {
                let (kind, text) = line.split_once(' ').expect("a kind, then an object");
                cases.push(Case { kind, text, lines: Vec::new() });
            }
        }
    }
    cases
}

fn object(text: &str) -> Value {
    serde_json::from_str(&text.replace("<4096a>", &"a".repeat(4096))).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// A cause as the table writes it. Of a number that is too wide, or of neither alternative, Kubernetes says where it is only
/// in the sentence, and gives no field; ours does.
fn told(line: &str) -> String {
    let Some(sentence) = line.strip_prefix("FieldValueInvalid <nil> | Invalid value: \"\": ") else {
        return line.to_owned();
    };
    let field = match sentence.strip_prefix("Checked value must be of type integer ") {
        Some(rest) => rest.split_once(" in ").expect("the sentence ends with the field").1,
        None => sentence.split('"').nth(1).expect("the sentence begins with the field"),
    };
    line.replacen("<nil>", field, 1)
}

const NOT_JUDGED: &str = "some validation rules were not checked because the object was invalid";

#[test]
fn kubernetes_messages_are_ours() {
    let cases = cases(include_str!("recorded/messages.txt"));
    assert!(cases.len() > 100, "the table has {} cases", cases.len());
    for Case { kind, text, lines } in cases {
        let new = object(text);
        let old = lines.first().and_then(|line| line.strip_prefix("old ")).map(object);
        let mut want: Vec<String> =
            lines.iter().filter(|line| !line.starts_with("old ")).map(|line| told(line)).collect();
        let mut found: Vec<String> = validate(kind, &new, old.as_ref())
            .iter()
            .map(|error| format!("{} {} | {}", error.cause.as_str(), error.field, error.message))
            .collect();
        want.sort();
        found.sort();
        assert_eq!(found, want, "{kind} {text}");
    }
}

#[test]
fn fields_and_rules_are_judged_apart_or_together_with_the_same_outcome() {
    for Case { kind, text, lines } in cases(include_str!("recorded/messages.txt")) {
        if lines.iter().any(|line| line.starts_with("old ")) {
            continue;
        }
        let object = object(text);
        let mut apart = check(kind, &object);
        if !lines.iter().any(|line| line.contains(NOT_JUDGED)) {
            apart.extend(validations(kind, &object, None));
        }
        let mut together = validate(kind, &object, None);
        together.retain(|error| !error.message.contains(NOT_JUDGED));
        assert_eq!(apart, together, "{kind} {text}");
    }
}

#[test]
fn kubernetes_defaults_are_ours() {
    let cases = cases(include_str!("recorded/defaults.txt"));
    assert!(cases.len() > 20, "the table has {} cases", cases.len());
    for Case { kind, text, lines } in cases {
        let &[answer] = lines.as_slice() else { panic!("{kind} {text}: one answer expected") };
        let mut defaulted = object(text);
        apply_defaults(kind, &mut defaulted);
        assert_eq!(defaulted, object(answer), "{kind} {text}");
    }
}
