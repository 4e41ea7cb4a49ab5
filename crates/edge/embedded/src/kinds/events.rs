//! Events: stored in the core format, served in two formats.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

use super::{Definition, Fields, KIND, Strategy, at, text_at};
use crate::table::{Column, since};
use crate::views::View;

pub(super) struct Events;

const DEFINITION: Definition = Definition {
    group: "",
    version: "v1",
    kind: "Event",
    plural: "events",
    singular: "event",
    short_names: &["ev"],
    namespaced: true,
    fields: Fields::of::<Event>(),
    ..KIND
};

/// The same events in the format of `events.k8s.io/v1`.
pub(crate) const EVENTS_V1: View = View {
    definition: Definition {
        group: "events.k8s.io",
        fields: Fields::of::<k8s_openapi::api::events::v1::Event>(),
        ..DEFINITION
    },
    stored_group: "",
    renames: &[
        ("involvedObject", "regarding"),
        ("message", "note"),
        ("source", "deprecatedSource"),
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("count", "deprecatedCount"),
        ("reportingComponent", "reportingController"),
    ],
};

const COLUMNS: &[Column] = &[
    Column::with("Last Seen", |event, now| json!(last_seen(event, now))),
    Column::text("Type", ".type"),
    Column::text("Reason", ".reason"),
    Column::with("Object", |event, _| json!(object(event))),
    Column::text("Subobject", ".involvedObject.fieldPath").wide(),
    Column::with("Source", |event, _| json!(source(event))).wide(),
    Column::with("Message", |event, _| json!(text_at(event, "message").trim())),
    Column::with("First Seen", |event, now| json!(first_seen(event, now))).wide(),
    Column::with("Count", |event, _| json!(count(event))).wide(),
    Column::text("Name", ".metadata.name").wide(),
];

impl Strategy for Events {
    fn definition(&self) -> &Definition {
        &DEFINITION
    }

    fn columns(&self) -> &[Column] {
        COLUMNS
    }

    fn selectable_fields(&self, event: &Value) -> Vec<(&'static str, String)> {
        const FIELDS: &[&str] = &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "type",
        ];
        let mut fields: Vec<_> = FIELDS.iter().map(|&path| (path, text_at(event, path).to_owned())).collect();
        fields.push(("source", source_component(event).to_owned()));
        fields
    }
}

/// The time of the last occurrence, from whichever field the writer sets.
pub(crate) fn last_time(event: &Value) -> &str {
    let times = [
        text_at(event, "series.lastObservedTime"),
        text_at(event, "lastTimestamp"),
        text_at(event, "eventTime"),
        text_at(event, "metadata.creationTimestamp"),
    ];
    times.into_iter().find(|time| !time.is_empty()).unwrap_or_default()
}

fn first_time(event: &Value) -> &str {
    let times = [text_at(event, "firstTimestamp"), text_at(event, "eventTime")];
    times.into_iter().find(|time| !time.is_empty()).unwrap_or_default()
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    since(last_time(event), now)
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    since(first_time(event), now)
}

fn count(event: &Value) -> i64 {
    let counts = [at(event, "series.count"), at(event, "count")];
    counts.into_iter().find_map(Value::as_i64).unwrap_or(1)
}

fn object(event: &Value) -> String {
    format!("{}/{}", text_at(event, "involvedObject.kind").to_lowercase(), text_at(event, "involvedObject.name"))
}

fn source_component(event: &Value) -> &str {
    match text_at(event, "source.component") {
        "" => text_at(event, "reportingComponent"),
        component => component,
    }
}

fn source(event: &Value) -> String {
    match text_at(event, "source.host") {
        "" => source_component(event).to_owned(),
        host => format!("{}, {host}", source_component(event)),
    }
}
