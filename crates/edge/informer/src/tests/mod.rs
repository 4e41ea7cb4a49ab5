mod client;
mod events;
mod expectations;
mod fake_api;
mod leader;
mod queue;
mod store;
mod watch;
mod workers;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// An object with just enough identity. Its data holds one entry for index functions to look at.
fn object(name: &str, uid: &str, version: u32, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            namespace: Some("ns".into()),
            name: Some(name.into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            ..Default::default()
        },
        data: Some([("value".to_owned(), value.to_owned())].into()),
        ..Default::default()
    }
}

fn value(object: &ConfigMap) -> String {
    object.data.as_ref().and_then(|data| data.get("value")).cloned().unwrap_or_default()
}
