//! The events of a history in readable lines.

use std::time::Duration;

use informer::{Key, Requeue};
use serde_json::Value;
use virt_controller::Error;

use crate::hub::{Op, Request};
use crate::kinds::Object;
use crate::server::{Change, Server, Verb, Writer};

/// Collects lines, if enabled.
pub(crate) struct Timeline {
    everything: bool,
    writes: bool,
    pub(crate) lines: Vec<String>,
}

impl Timeline {
    pub(crate) fn new(everything: bool, writes: bool) -> Self {
        Self { everything, writes, lines: Vec::new() }
    }

    fn push(&mut self, at: Duration, who: &str, what: &str) {
        self.lines.push(format!("{:>9.3}s  {who:<15} {what}", at.as_secs_f64()));
    }

    pub(crate) fn line(&mut self, at: Duration, who: &str, what: &str) {
        if self.everything || (self.writes && matches!(who, "user" | "fault" | "node" | "judge")) {
            self.push(at, who, what);
        }
    }

    /// Adds a change of an object: what is different afterwards.
    pub(crate) fn change(&mut self, change: &Change) {
        let heartbeat = matches!((&change.last, change.by), (Object::Node(_), Writer::NodeAgent));
        if !(self.everything || self.writes) || change.at.is_zero() || heartbeat {
            return;
        }
        let verb = match change.verb {
            Verb::Create => "creates",
            Verb::Update => "updates",
            Verb::UpdateStatus => "updates status of",
            Verb::Patch => "patches",
            Verb::PatchStatus => "patches status of",
            Verb::Delete if change.is.is_some() => "asks to delete",
            Verb::Delete => "deletes",
        };
        let gone = if change.is.is_none() && change.verb != Verb::Delete { "; it is gone" } else { "" };
        let changes = differences(change);
        self.push(change.at, change.by.name(), &format!("{verb} {}{changes}{gone}", change.last.title()));
    }

    pub(crate) fn pass(&mut self, at: Duration, controller: &str, key: &Key) {
        if self.everything {
            self.push(at, controller, &format!("looks at {key}"));
        }
    }

    pub(crate) fn pass_end(&mut self, at: Duration, key: &Key, result: &Result<Requeue, Error>) {
        if self.everything {
            match result {
                Ok(Requeue::No) => {}
                Ok(Requeue::After(delay)) => self.push(at, "", &format!("{key}: looks again after {delay:?}")),
                Err(error) => {
                    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
                    self.push(at, "", &format!("{key}: {error}{cause}"));
                }
            }
        }
    }

    pub(crate) fn request(&mut self, at: Duration, number: u64, request: &Request) {
        if self.everything {
            let op = match &request.op {
                Op::Get => "get",
                Op::List => "list",
                Op::Create => "create",
                Op::Delete { .. } => "delete",
                Op::Evict => "evict",
                Op::Replace => "replace",
                Op::Patch(_) => "patch",
            };
            let kind = request.kind.map_or_else(|| "something".to_owned(), |kind| format!("{kind:?}"));
            self.push(at, "", &format!("request {number}: {op} {kind} {}", request.key));
        }
    }
}

fn value(object: &Object) -> Value {
    match object {
        Object::Vm(object) => serde_json::to_value(object.as_ref()),
        Object::Vmi(object) => serde_json::to_value(object.as_ref()),
        Object::Pod(object) => serde_json::to_value(object.as_ref()),
        Object::Claim(object) => serde_json::to_value(object.as_ref()),
        Object::DataVolume(object) => serde_json::to_value(object.as_ref()),
        Object::Migration(object) => serde_json::to_value(object.as_ref()),
        Object::Node(object) => serde_json::to_value(object.as_ref()),
        Object::Revision(object) => serde_json::to_value(object.as_ref()),
        Object::Job(object) => serde_json::to_value(object.as_ref()),
        _ => Ok(Value::Null),
    }
    .unwrap_or_default()
}

/// The fields that differ, with their new values where those are short.
fn differences(change: &Change) -> String {
    let Some(was) = &change.was else { return String::new() };
    let mut found = Vec::new();
    compare("", &value(was), &value(&change.last), &mut found);
    if found.is_empty() { String::new() } else { format!(": {}", found.join(", ")) }
}

/// Fields without interest to a reader.
const NOISE: [&str; 5] = [
    "metadata.resourceVersion",
    "metadata.generation",
    "metadata.deletionGracePeriodSeconds",
    "status.phaseTransitionTimestamps",
    "status.containerStatuses",
];

fn compare(path: &str, was: &Value, is: &Value, found: &mut Vec<String>) {
    if was == is || NOISE.contains(&path) {
        return;
    }
    let name = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            let keys: std::collections::BTreeSet<&String> = was.keys().chain(is.keys()).collect();
            for key in keys {
                let (old, new) = (was.get(key).unwrap_or(&Value::Null), is.get(key).unwrap_or(&Value::Null));
                compare(&name(key), old, new, found);
            }
        }
        (Value::Null, Value::Object(is)) if path.matches('.').count() < 2 => {
            is.iter().for_each(|(key, new)| compare(&name(key), &Value::Null, new, found));
        }
        (_, Value::Array(items)) if path.ends_with("conditions") => found.push(conditions(path, was, items)),
        (_, Value::Null) => found.push(format!("no {path}")),
        (_, Value::Array(items)) => found.push(format!("{path}[{}]", items.len())),
        (_, Value::Object(_)) => found.push(format!("{path}={{…}}")),
        (_, Value::String(text)) => found.push(format!("{path}={text}")),
        (_, other) => found.push(format!("{path}={other}")),
    }
}

/// Conditions that changed, as `Type=Status/Reason`.
fn conditions(path: &str, was: &Value, items: &[Value]) -> String {
    let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or_default().to_owned();
    let short = |condition: &Value| {
        let reason = text(condition, "reason");
        let reason = if reason.is_empty() { reason } else { format!("/{reason}") };
        format!("{}={}{reason}", text(condition, "type"), text(condition, "status"))
    };
    let old: Vec<String> = was.as_array().into_iter().flatten().map(short).collect();
    let new: Vec<String> = items.iter().map(short).collect();
    let came = new.iter().filter(|condition| !old.contains(condition)).cloned();
    let types: Vec<String> = items.iter().map(|condition| text(condition, "type")).collect();
    let gone = was.as_array().into_iter().flatten().map(|condition| text(condition, "type"));
    let gone = gone.filter(|type_| !types.contains(type_)).map(|type_| format!("no {type_}"));
    let all: Vec<String> = came.chain(gone).collect();
    if all.is_empty() { format!("{path}[{}]", items.len()) } else { all.join(", ") }
}

/// All existing objects, one line each.
pub(crate) fn left(server: &Server) -> Vec<String> {
    let mut lines = vec!["at rest:".to_owned()];
    for vm in server.tables.vms.all() {
        let status = vm.status.clone().unwrap_or_default();
        let word = status.printable_status.as_ref().map_or("no status", |word| word.as_str());
        lines.push(format!("  {} {word}", Object::Vm(vm.clone()).title()));
    }
    for vmi in server.tables.vmis.all() {
        let phase = vmi.phase().map_or("no phase", |phase| phase.as_str());
        let node = vmi.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
        lines.push(format!("  {} {phase} {node}", Object::Vmi(vmi.clone()).title()).trim_end().to_owned());
    }
    for migration in server.tables.migrations.all() {
        let phase = migration.phase().map_or("no phase", |phase| phase.as_str());
        lines.push(format!("  {} {phase}", Object::Migration(migration.clone()).title()));
    }
    for pod in server.tables.pods.all() {
        let node = crate::actors::node_of(pod).unwrap_or_default();
        lines.push(format!("  {} {} {node}", Object::Pod(pod.clone()).title(), crate::actors::phase_of(pod)));
    }
    lines
}
