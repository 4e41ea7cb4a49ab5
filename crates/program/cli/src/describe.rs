//! `describe`: one object in readable form, with its conditions, its events and what it waits for.

use std::process::ExitCode;

use api::v1::{VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Api;
use kube::api::ListParams;
use machinery::age::since;
use serde_json::{Map, Value};
use terminal::output::print;
use virtctl::connect::{ConnectArgs, Session};
use waits::guest::Outlook;

use super::errors::server_error;
use super::manifest::to_yaml;
use super::resources::Catalogue;
use super::table::align;
use super::targets;
use super::three_way::LAST_APPLIED;

/// Show objects with their conditions and events, and what they wait for
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// What to show: KIND NAME… or KIND/NAME…; KIND alone shows all objects of the kind
    #[arg(required = true, value_name = "KIND [NAME]")]
    targets: Vec<String>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let session = args.connect.connect().await?;
    let catalogue = Catalogue::load(&session).await?;
    let failed = |error| server_error(error, &session.server);
    let mut first = true;
    for target in targets::resolve(&catalogue, &args.targets)? {
        let objects = target.resource.objects(&session, &session.namespace);
        let mut names = target.names;
        if names.is_empty() {
            let list = objects.list_metadata(&ListParams::default()).await.map_err(failed)?;
            names = list.items.into_iter().filter_map(|object| object.metadata.name).collect();
        }
        for name in names {
            let object = objects.get(&name).await.map_err(failed)?;
            let object = serde_json::to_value(object)?;
            let events = events(&session, &object).await;
            let waits = waits_for(&session, &object).await;
            let gap = if first { "" } else { "\n\n" };
            first = false;
            print(&format!("{gap}{}", render(&object, &events, waits.as_deref(), Timestamp::now())?))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The events about the object, oldest first. Empty if the user may not read them.
async fn events(session: &Session, object: &Value) -> Vec<Event> {
    let Some(uid) = text(object, "/metadata/uid") else { return Vec::new() };
    // Events about cluster-scoped objects are in the default namespace.
    let namespace = text(object, "/metadata/namespace").unwrap_or("default");
    let api: Api<Event> = Api::namespaced(session.client.clone(), namespace);
    let params = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
    let mut events = api.list(&params).await.map(|list| list.items).unwrap_or_default();
    events.retain(|event| event.involved_object.uid.as_deref() == Some(uid));
    events.sort_by_key(last_seen);
    events
}

fn last_seen(event: &Event) -> Option<Timestamp> {
    let times =
        [event.last_timestamp.as_ref(), event.first_timestamp.as_ref(), event.metadata.creation_timestamp.as_ref()];
    event.event_time.as_ref().map(|time| time.0).or_else(|| times.into_iter().flatten().map(|time| time.0).next())
}

/// What a VM, a VMI or a Pod waits for.
async fn waits_for(session: &Session, object: &Value) -> Option<String> {
    let session = Session {
        namespace: text(object, "/metadata/namespace").unwrap_or(&session.namespace).to_owned(),
        ..session.clone()
    };
    let name = text(object, "/metadata/name")?;
    match text(object, "/kind")? {
        "VirtualMachine" | "VirtualMachineInstance" if is_ours(object) => {
            match virtctl::guest::look(&session, name).await.ok()? {
                Outlook::Running => None,
                Outlook::Waiting(sentence) | Outlook::Never(sentence) => Some(sentence),
            }
        }
        "Pod" => waits::guest::pod(&serde_json::from_value::<Pod>(object.clone()).ok()?),
        _ => None,
    }
}

fn is_ours(object: &Value) -> bool {
    serde_json::from_value::<VirtualMachine>(object.clone()).is_ok()
        || serde_json::from_value::<VirtualMachineInstance>(object.clone()).is_ok()
}

/// The whole text. Pure, so that it can be tested.
fn render(object: &Value, events: &[Event], waits: Option<&str>, now: Timestamp) -> anyhow::Result<String> {
    let mut text = header(object, waits, now);
    let empty = Map::new();
    for (key, value) in object.as_object().unwrap_or(&empty) {
        if matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        text += &section(object, key, value)?;
    }
    text += &conditions(object, now);
    text += &event_table(events, now);
    Ok(text)
}

fn header(object: &Value, waits: Option<&str>, now: Timestamp) -> String {
    let get = |pointer: &str| text(object, pointer).unwrap_or_default().to_owned();
    let moment = |pointer: &str| {
        let time: Timestamp = text(object, pointer)?.parse().ok()?;
        Some(format!("{time} ({} ago)", since(time, now)))
    };
    let owners = object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owners = owners.map(|owner| {
        format!("{}/{}", text(owner, "/kind").unwrap_or_default(), text(owner, "/name").unwrap_or_default())
    });
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    let finalizers = finalizers.filter_map(|finalizer| finalizer.as_str().map(str::to_owned));
    let rows: [(&str, Vec<String>); 11] = [
        ("Name", vec![get("/metadata/name")]),
        ("Namespace", some(get("/metadata/namespace"))),
        ("Kind", vec![format!("{} ({})", get("/kind"), get("/apiVersion"))]),
        ("UID", some(get("/metadata/uid"))),
        ("Created", moment("/metadata/creationTimestamp").into_iter().collect()),
        ("Deleted", moment("/metadata/deletionTimestamp").into_iter().collect()),
        ("Owner", owners.collect()),
        ("Labels", pairs(object.pointer("/metadata/labels"))),
        ("Annotations", pairs(object.pointer("/metadata/annotations"))),
        ("Finalizers", finalizers.collect()),
        ("Waiting", waits.map(str::to_owned).into_iter().collect()),
    ];
    let mut out = String::new();
    for (title, lines) in rows {
        for (index, line) in lines.iter().enumerate() {
            let title = if index == 0 { format!("{title}:") } else { String::new() };
            out += &format!("{title:<14}{line}\n");
        }
    }
    out
}

fn some(text: String) -> Vec<String> {
    if text.is_empty() { Vec::new() } else { vec![text] }
}

/// Labels or annotations, without the last applied manifest, which just repeats the object.
fn pairs(map: Option<&Value>) -> Vec<String> {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    map.filter(|(key, _)| *key != LAST_APPLIED)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect()
}

/// A part of the object as indented YAML. Conditions have their own table; values of Secrets are hidden.
fn section(object: &Value, key: &str, value: &Value) -> anyhow::Result<String> {
    let mut value = value.clone();
    if let (Some("Secret"), Value::Object(entries), "data" | "stringData") = (text(object, "/kind"), &mut value, key) {
        entries
            .values_mut()
            .for_each(|value| *value = format!("{} characters", value.as_str().map_or(0, str::len)).into());
    }
    if let ("status", Value::Object(status)) = (key, &mut value) {
        status.remove("conditions");
        if status.is_empty() {
            return Ok(String::new());
        }
    }
    let mut title = key.to_owned();
    title[..1].make_ascii_uppercase();
    let body = to_yaml(&value)?;
    let body = body.lines().map(|line| format!("  {line}\n")).collect::<String>();
    Ok(format!("{title}:\n{body}"))
}

fn conditions(object: &Value, now: Timestamp) -> String {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let rows = conditions.map(|condition| {
        let get = |key: &str| text(condition, key).unwrap_or("-").to_owned();
        let since = text(condition, "/lastTransitionTime").and_then(|time| Some(since(time.parse().ok()?, now)));
        vec![get("/type"), get("/status"), since.unwrap_or_else(|| "-".into()), get("/reason"), get("/message")]
    });
    titled("Conditions", &["TYPE", "STATUS", "SINCE", "REASON", "MESSAGE"], rows.collect())
}

fn event_table(events: &[Event], now: Timestamp) -> String {
    let rows = events.iter().map(|event| {
        let or_dash =
            |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned().unwrap_or_else(|| "-".into());
        let from =
            event.source.as_ref().and_then(|source| source.component.as_ref()).or(event.reporting_component.as_ref());
        let count = event.series.as_ref().and_then(|series| series.count).or(event.count).filter(|count| *count > 1);
        let age = last_seen(event).map_or("-".into(), |time| since(time, now));
        let age = count.map_or(age.clone(), |count| format!("{age} (x{count})"));
        vec![
            or_dash(event.type_.as_ref()),
            or_dash(event.reason.as_ref()),
            age,
            or_dash(from),
            or_dash(event.message.as_ref()),
        ]
    });
    titled("Events", &["TYPE", "REASON", "AGE", "FROM", "MESSAGE"], rows.collect())
}

fn titled(title: &str, header: &[&str], mut rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return if title == "Events" { "Events: none\n".to_owned() } else { String::new() };
    }
    for cell in rows.iter_mut().flatten() {
        *cell = cell.replace('\n', " ");
    }
    let lines = align(header, &rows).into_iter().map(|line| format!("  {line}\n")).collect::<String>();
    format!("{title}:\n{lines}")
}

fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOW: &str = "2026-01-02T03:05:00Z";

    fn show(object: &Value, events: &[Event], waits: Option<&str>) -> String {
        render(object, events, waits, NOW.parse().unwrap()).unwrap()
    }

    #[test]
    fn a_machine_is_described_with_conditions_events_and_its_wait() {
        let vm = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "demo", "namespace": "default", "uid": "u-1", "creationTimestamp": "2026-01-02T03:04:00Z",
                "labels": {"a": "1", "b": "2"}, "annotations": {LAST_APPLIED: "{}"}, "finalizers": ["f"],
                "ownerReferences": [{"kind": "Pool", "name": "p"}]},
            "spec": {"runStrategy": "Always"},
            "status": {"created": true, "conditions": [
                {"type": "Ready", "status": "False", "reason": "GuestNotRunning", "message": "not\nyet",
                 "lastTransitionTime": "2026-01-02T03:04:30Z"}]}});
        let event: Event = serde_json::from_value(json!({"metadata": {}, "involvedObject": {}, "type": "Normal",
            "reason": "SuccessfulCreate", "message": "Started", "count": 3, "lastTimestamp": "2026-01-02T03:04:50Z",
            "source": {"component": "virt-controller"}}))
        .unwrap();
        let want = "\
Name:         demo
Namespace:    default
Kind:         VirtualMachine (kubevirt.io/v1)
UID:          u-1
Created:      2026-01-02T03:04:00Z (60s ago)
Owner:        Pool/p
Labels:       a=1
              b=2
Finalizers:   f
Waiting:      a node
Spec:
  runStrategy: Always
Status:
  created: true
Conditions:
  TYPE    STATUS   SINCE   REASON            MESSAGE
  Ready   False    30s     GuestNotRunning   not yet
Events:
  TYPE     REASON             AGE        FROM              MESSAGE
  Normal   SuccessfulCreate   10s (x3)   virt-controller   Started
";
        assert_eq!(show(&vm, &[event], Some("a node")), want);
    }

    #[test]
    fn a_secret_keeps_its_values() {
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": "aHVudGVyMg=="}});
        let shown = show(&secret, &[], None);
        assert!(shown.contains("key: 12 characters") && !shown.contains("aHVudGVyMg"), "{shown}");
        assert!(shown.ends_with("Events: none\n"), "{shown}");
    }
}
