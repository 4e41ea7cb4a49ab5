//! Answers, free of what each server draws for itself, and where two of them differ.

use std::collections::BTreeSet;

use http::response::Parts;
use serde_json::{Map, Value, json};

/// What a server said. A watch's events are a list.
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) body: Value,
    warnings: Vec<String>,
}

/// One place where answers differ.
pub(super) struct Difference {
    /// `code`, `warnings`, or a JSON pointer into the body.
    pub(super) place: String,
    pub(super) theirs: String,
    pub(super) ours: String,
}

impl Answer {
    /// What is no request is always answered well.
    pub(super) fn done() -> Answer {
        Answer { code: 200, body: Value::Null, warnings: Vec::new() }
    }

    pub(super) fn new(head: &Parts, body: &[u8]) -> Answer {
        let warnings = head.headers.get_all("warning").iter();
        let warnings = warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned()).collect();
        let mut documents: Vec<Value> =
            serde_json::Deserializer::from_slice(body).into_iter().map_while(Result::ok).collect();
        let watched = documents.first().is_some_and(|first| first["type"].is_string() && !first["object"].is_null());
        let body = match documents.len() {
            0 => json!(String::from_utf8_lossy(body)),
            1 if !watched => documents.remove(0),
            _ => Value::Array(documents),
        };
        Answer { code: head.status.as_u16(), body, warnings }
    }

    /// The code, and the reason if it is a failure.
    pub(super) fn verdict(&self) -> String {
        let reason = self.body["reason"].as_str().filter(|_| self.code >= 400).unwrap_or_default();
        format!("{} {reason}", self.code).trim_end().to_owned()
    }
}

/// Where two answers differ.
pub(super) fn compare(theirs: &Answer, ours: &Answer) -> Vec<Difference> {
    let mut found = Vec::new();
    differ(&json!(theirs.verdict()), &json!(ours.verdict()), "code", &mut found);
    if theirs.code == ours.code {
        differ(&json!(theirs.warnings), &json!(ours.warnings), "warnings", &mut found);
        differ(&plain(&theirs.body), &plain(&ours.body), "", &mut found);
    }
    found
}

/// What each server draws for itself. A value of it stands for any other.
const DRAWN: &[&str] = &[
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "continue",
    "startTime",
    "lastTransitionTime",
];

/// A bookmark that tells nothing but a version. Servers send them when they like.
fn is_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

/// What is for people and worded by each server in its own way, or says nothing.
fn is_prose(name: &str, value: &Value, of: &Map<String, Value>) -> bool {
    let about_failure = of.get("reason").is_some() || of.get("status").is_some_and(|status| status == "Failure");
    name == "message" && about_failure || name == "description" || name == "details" && *value == json!({})
}

/// Lists whose order says nothing, and what their items are told apart by.
const UNORDERED: &[(&str, &str)] = &[("resources", "name"), ("verbs", "")];

fn sorted(name: &str, value: Value) -> Value {
    match (value, UNORDERED.iter().find(|(list, _)| *list == name)) {
        (Value::Array(mut items), Some((_, key))) => {
            items.sort_by_key(|item| item.get(key).unwrap_or(item).to_string());
            Value::Array(items)
        }
        (value, _) => value,
    }
}

/// The value with everything drawn replaced, wherever it is.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let drawn = |name: &str, value: &Value| {
                DRAWN.contains(&name) && value.as_str().is_some_and(|text| !text.is_empty())
            };
            let members = map.iter().filter(|(name, value)| !is_prose(name, value, map)).map(|(name, value)| {
                let value = if drawn(name, value) { json!(format!("<{name}>")) } else { plain(value) };
                (name.clone(), sorted(name, value))
            });
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().filter(|item| !is_bookmark(item)).map(plain).collect(),
        Value::String(text) => json!(plain_text(text)),
        other => other.clone(),
    }
}

/// Numbers and identifiers in sentences are drawn, too: words with digits in them are not compared, but for those that
/// are all there is.
fn plain_text(text: &str) -> String {
    if text.len() == 9 && text.starts_with("gen-") {
        return "gen-<drawn>".to_owned();
    }
    let word = |word: &str| {
        let long = word.len() > 20 && word.chars().filter(char::is_ascii_digit).count() > 3;
        let number = word.parse::<u64>().is_ok();
        if (long || number) && word.len() < text.len() { "<drawn>".to_owned() } else { word.to_owned() }
    };
    let words: Vec<String> = text
        .split_inclusive([' ', ',', '"', ':', '(', ')'])
        .map(|piece| {
            let end = piece.trim_end_matches([' ', ',', '"', ':', '(', ')']);
            word(end) + &piece[end.len()..]
        })
        .collect();
    words.concat()
}

fn differ(theirs: &Value, ours: &Value, place: &str, found: &mut Vec<Difference>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            let names: BTreeSet<&String> = theirs.keys().chain(ours.keys()).collect();
            let null = Value::Null;
            for name in names {
                let (theirs, ours) = (theirs.get(name).unwrap_or(&null), ours.get(name).unwrap_or(&null));
                differ(theirs, ours, &format!("{place}/{}", name.replace('/', "~1")), found);
            }
        }
        (Value::Array(theirs), Value::Array(ours)) if theirs.len() == ours.len() => {
            for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                differ(theirs, ours, &format!("{place}/{index}"), found);
            }
        }
        _ if theirs == ours => {}
        _ => found.push(Difference { place: place.to_owned(), theirs: theirs.to_string(), ours: ours.to_string() }),
    }
}
