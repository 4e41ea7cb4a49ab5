mod counters;
mod health;

use std::sync::Arc;

use api::{annotations, labels};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

fn time(seconds: i64) -> Time {
    Time(jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap())
}

/// A node with these labels; its agent was last heard of at a time, or never.
fn node(name: &str, labels: Value, heartbeat: Option<&str>) -> Node {
    let mut value = json!({"metadata": {"name": name, "uid": format!("uid-of-{name}"), "resourceVersion": "7",
                                        "labels": labels}});
    if let Some(heartbeat) = heartbeat {
        value["metadata"]["annotations"] = json!({annotations::HEARTBEAT: heartbeat});
    }
    serde_json::from_value(value).unwrap()
}

fn schedulable() -> Value {
    json!({labels::SCHEDULABLE: "true"})
}

fn arc<T>(values: impl IntoIterator<Item = T>) -> Vec<Arc<T>> {
    values.into_iter().map(Arc::new).collect()
}
