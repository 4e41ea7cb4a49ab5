//! Where two verdicts part.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::misnomers;
use crate::verdict::{Cause, Verdict};

/// One difference between two verdicts.
#[derive(Clone, Debug)]
pub struct Difference {
    /// What differs, the same for all objects that differ in this way: `cause ours`, `cause theirs`, `value ours`,
    /// `value theirs`, `value both`, `refusal ours`, `refusal theirs`, `schema theirs` or `panic ours`, then the cause's type and the
    /// path without its indexes.
    pub key: String,
    /// The path with its indexes.
    pub path: String,
    /// What we say.
    pub ours: String,
    /// What KubeVirt says.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})\n    ours:     {}\n    KubeVirt: {}", self.key, self.path, self.ours, self.theirs)
    }
}

/// All differences between our verdict and KubeVirt's on an object of this kind.
pub fn compare(kind: &str, ours: &Verdict, theirs: &Verdict) -> Vec<Difference> {
    if ours.panicked {
        return vec![whole("panic ours", "", &said(theirs))];
    }
    if theirs.panicked {
        return Vec::new(); // Nothing to compare with. How often that may happen is limited elsewhere.
    }
    let refused = !ours.causes.is_empty() || ours.refusal.is_some();
    if let Some(message) = theirs.schema.first() {
        // KubeVirt checks a schema of its own, made from its Go types, and says neither type nor field.
        return if refused { Vec::new() } else { vec![whole("schema theirs", "accepted", message)] };
    }
    match (&ours.refusal, &theirs.refusal) {
        (None, None) => {}
        (Some(ours), None) => return vec![whole("refusal ours", ours, &said(theirs))],
        (_, Some(text)) => return if refused { Vec::new() } else { vec![whole("refusal theirs", "accepted", text)] },
    }
    let spec = if kind == "VirtualMachine" { "spec.template.spec." } else { "spec." };
    let mut differences = causes(&ours.causes, &theirs.causes, spec);
    // What a refused object would have become is never seen.
    if let (Some(ours), Some(theirs), true) = (&ours.object, &theirs.object, theirs.causes.is_empty()) {
        values(Some(ours), Some(theirs), &mut String::new(), &mut differences);
    }
    differences
}

fn said(verdict: &Verdict) -> String {
    let causes: Vec<String> = verdict.causes.iter().map(|cause| format!("{} {}", cause.type_, cause.field)).collect();
    if causes.is_empty() { "accepted".to_owned() } else { causes.join(", ") }
}

fn whole(key: &str, ours: &str, theirs: &str) -> Difference {
    Difference { key: key.to_owned(), path: String::new(), ours: ours.to_owned(), theirs: theirs.to_owned() }
}

/// Messages by type and field.
type Set<'a> = BTreeMap<(&'a str, String), &'a str>;

fn set(causes: &[Cause], field: impl Fn(&Cause) -> String) -> Set<'_> {
    let named = |cause: &Cause| {
        let field = field(cause);
        misnomers::vaguely(&field).unwrap_or(field)
    };
    causes.iter().map(|cause| ((cause.type_.as_str(), named(cause)), cause.message.as_str())).collect()
}

/// Causes are compared as sets: KubeVirt runs the network rules twice and says some things twice.
fn causes(ours: &[Cause], theirs: &[Cause], spec: &str) -> Vec<Difference> {
    let ours = set(ours, |cause| cause.field.clone());
    let theirs =
        set(theirs, |cause| misnomers::corrected(cause, spec).map_or_else(|| cause.field.clone(), |(_, field)| field));
    let only = |side: &str, these: &Set<'_>, others: &Set<'_>| -> Vec<Difference> {
        let missing = these.iter().filter(|(cause, _)| !others.contains_key(*cause));
        let difference = |((type_, field), message): (&(&str, String), &&str)| {
            let (ours, theirs) = if side == "ours" { (*message, "") } else { ("", *message) };
            Difference {
                key: format!("cause {side} {type_} {}", pattern(field)),
                path: field.clone(),
                ours: ours.to_owned(),
                theirs: theirs.to_owned(),
            }
        };
        missing.map(difference).collect()
    };
    let mut differences = only("ours", &ours, &theirs);
    differences.extend(only("theirs", &theirs, &ours));
    differences
}

/// A path without its indexes.
pub fn pattern(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open);
        text.push_str(before);
        match after.find(']') {
            Some(close) if after[1..close].bytes().all(|byte| byte.is_ascii_digit()) => {
                text.push_str("[]");
                rest = &after[close + 1..];
            }
            _ => {
                text.push('[');
                rest = &after[1..];
            }
        }
    }
    text.push_str(rest);
    text
}

pub(crate) fn values(
    ours: Option<&Value>,
    theirs: Option<&Value>,
    path: &mut String,
    differences: &mut Vec<Difference>,
) {
    let length = path.len();
    match (ours, theirs) {
        (Some(Value::Object(ours)), Some(Value::Object(theirs))) => {
            let names = ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name)));
            for name in names {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(name);
                values(ours.get(name), theirs.get(name), path, differences);
                path.truncate(length);
            }
        }
        (Some(Value::Array(ours)), Some(Value::Array(theirs))) => {
            for index in 0..ours.len().max(theirs.len()) {
                path.push_str(&format!("[{index}]"));
                values(ours.get(index), theirs.get(index), path, differences);
                path.truncate(length);
            }
        }
        (ours, theirs) if ours == theirs => {}
        (ours, theirs) => {
            let side = match (ours, theirs) {
                (Some(_), None) => "ours",
                (None, Some(_)) => "theirs",
                _ => "both",
            };
            let text = |value: Option<&Value>| value.map(Value::to_string).unwrap_or_default();
            differences.push(Difference {
                key: format!("value {side} {}", pattern(path)),
                path: path.clone(),
                ours: text(ours),
                theirs: text(theirs),
            });
        }
    }
}
