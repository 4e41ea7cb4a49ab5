//! Where our verdicts and kube-apiserver's part, and where they are meant to.

use std::fmt::Write as _;

use serde_json::Value;

use super::places::{Place, children};
use super::spoil::Change;
use super::verdict::{Case, Cause, Outcome, Verdict, Way};

/// What we say otherwise on purpose. Each row changes their verdict, or ours, to what the other would have said.
const ROWS: &[fn(&Case, ours: &mut Verdict, theirs: &mut Verdict)] = &[
    // They judge a status as if it stood alone: the path in the message begins in it, and only the cause's begins with it.
    |case, _, theirs| {
        for cause in theirs.causes().iter_mut().filter(|_| case.way == Way::Status) {
            if cause.field == "status" && cause.message.contains(":  in body ") {
                cause.message = cause.message.replacen(":  in body ", ": status in body ", 1);
            }
            let field = cause.field.strip_prefix("status.").or(field_in_message(&cause.message)).map(str::to_owned);
            if let Some(field) = field.filter(|field| !field.is_empty()) {
                cause.message = cause.message.replacen(&field, &format!("status.{field}"), 1);
            }
        }
    },
    // Some of their causes name the field in the message only. A client that looks for it in ours finds it.
    |_, _, theirs| {
        for cause in theirs.causes() {
            if let Some(field) = field_in_message(&cause.message) {
                cause.field = field.to_owned();
            }
        }
    },
    // What cannot be scaled they tell once more, in other words and with a path that begins with a dot; also if it was so before.
    |_, ours, theirs| forget(theirs, ours, |cause| cause.field.starts_with('.')),
    // To us 2.0 is 2 from the start, to them from the store on: in messages theirs is a floating-point number.
    |_, ours, theirs| {
        for cause in ours.causes().iter_mut().chain(theirs.causes()) {
            cause.message = with_whole_numbers(&cause.message);
        }
    },
    // In a stored object, a missing value or one of the wrong type may stay. They complain that a rule about it cannot be judged;
    // we judge it, or let it stay too.
    |_, ours, theirs| {
        let rule = |cause: &Cause| Some(cause.message.split_once(" evaluating rule: ")?.1.to_owned());
        let rules: Vec<String> = theirs.causes().iter().filter_map(rule).collect();
        forget(theirs, ours, |cause| rule(cause).is_some());
        forget(ours, theirs, |cause| rules.iter().any(|rule| cause.message.ends_with(rule)));
    },
    // Their pattern for quantities lets texts through that no component can read. We refuse them.
    |_, ours, theirs| {
        forget(ours, theirs, |cause| {
            cause.message.contains("is not a quantity") || cause.message.contains("than any quantity")
        });
    },
];

/// Takes causes away from one side; where that leaves none, the side has nothing of its own to say.
fn forget(side: &mut Verdict, other: &Verdict, deliberate: impl Fn(&Cause) -> bool) {
    if let Outcome::Refused(causes) = &mut side.outcome {
        causes.retain(|cause| !deliberate(cause));
        if causes.is_empty() {
            side.outcome = other.outcome.clone();
        }
    }
}

/// What is not compared at all. Where a time belongs, they let a list pass; we refuse it.
pub(crate) fn is_deliberate(place: &Place, change: &Change) -> bool {
    place.schema["format"] == "date-time" && matches!(change, Change::Set(Value::Array(_)))
}

/// What is not stored to be updated, because they cannot tell that it did not change and refuse it therefore: a list whose items
/// have keys, with an item that lacks them or two that share them. To us what did not change may stay.
pub(crate) fn is_deliberate_in_store(schema: &Value, value: &Value) -> bool {
    let confused = match (value, schema["x-kubernetes-list-map-keys"].as_array()) {
        (Value::Array(items), Some(keys)) => {
            let keys = |item: &Value| keys.iter().map(|key| item.get(key.as_str()?)).map(|key| key.cloned()).collect();
            let keys: Vec<Option<Vec<Value>>> = items.iter().map(keys).collect();
            keys.iter().enumerate().any(|(index, key)| key.is_none() || keys[..index].contains(key))
        }
        _ => false,
    };
    confused || children(schema, value).iter().any(|(_, schema, value)| is_deliberate_in_store(schema, value))
}

fn with_whole_numbers(message: &str) -> String {
    let words = message.split(' ').map(|word| {
        let (number, rest) = word.strip_suffix(':').map_or((word, ""), |number| (number, ":"));
        let whole = number.parse::<f64>().ok().filter(|number| number.fract() == 0.0 && number.abs() < 1e15);
        whole.map_or(word.to_owned(), |whole| format!("{}{rest}", whole as i64))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn field_in_message(message: &str) -> Option<&str> {
    if let Some((quoted, _)) = message.split_once("\" must validate at least one schema (anyOf)") {
        return quoted.rsplit_once('"').map(|(_, field)| field);
    }
    let (_, field) = message.split_once("Checked value must be of type ")?.1.rsplit_once(" in ")?;
    Some(field)
}

/// How the verdicts differ, but for what the list above allows; nothing if they agree.
pub(crate) fn between(case: &Case, mut ours: Verdict, mut theirs: Verdict) -> Vec<String> {
    let mut found = Vec::new();
    ROWS.iter().for_each(|adapt| adapt(case, &mut ours, &mut theirs));
    sides(&ours.unknown, &theirs.unknown, "unknown field", &mut found);
    match (&ours.outcome, &theirs.outcome) {
        (Outcome::Refused(ours), Outcome::Refused(theirs)) => sides(ours, theirs, "cause", &mut found),
        (Outcome::Stored(ours), Outcome::Stored(theirs)) => values(ours, theirs, "", &mut found),
        (ours, theirs) if ours != theirs => found.push(format!("outcome: ours {ours:?}\n    theirs {theirs:?}")),
        _ => {}
    }
    found
}

fn sides<T: PartialEq + std::fmt::Debug>(ours: &[T], theirs: &[T], what: &str, found: &mut Vec<String>) {
    let count = |all: &[T], one: &T| all.iter().filter(|other| *other == one).count();
    found.extend(
        ours.iter()
            .filter(|one| count(theirs, one) < count(ours, one))
            .map(|one| format!("{what} of ours only: {one:?}")),
    );
    found.extend(
        theirs
            .iter()
            .filter(|one| count(ours, one) < count(theirs, one))
            .map(|one| format!("{what} of theirs only: {one:?}")),
    );
}

fn values(ours: &Value, theirs: &Value, path: &str, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(our_fields), Value::Object(their_fields)) => {
            let names = our_fields.keys().chain(their_fields.keys().filter(|name| !our_fields.contains_key(*name)));
            for name in names {
                let missing = Value::String("(missing)".to_owned());
                let [ours, theirs] = [our_fields, their_fields].map(|fields| fields.get(name).unwrap_or(&missing));
                values(ours, theirs, &format!("{path}.{name}"), found);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                values(ours, theirs, &format!("{path}[{index}]"), found);
            }
        }
        // However it is written.
        (Value::Number(ours), Value::Number(theirs)) if ours.as_f64() == theirs.as_f64() => {}
        _ if ours != theirs => found.push(format!("stored {path}: ours {ours}, theirs {theirs}")),
        _ => {}
    }
}

/// A case and what differs about it, for a person to read.
pub(crate) fn text(case: &Case, differences: &[String]) -> String {
    let mut text = format!("{}\n  {}", case.story, case.object);
    for difference in differences {
        let _ = write!(text, "\n  - {difference}");
    }
    text
}
