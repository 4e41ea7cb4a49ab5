//! Objects as clients send them, with the labels and annotations of an installation.

use std::collections::BTreeMap;

use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Settings;

/// Labels on every object, and on the Pods of our workloads.
const COMPONENT: &str = "app.kubernetes.io/component";
/// See [`COMPONENT`].
const MANAGER: &str = crate::names::app::OPERATOR;

/// Annotations with the version of the installation that an object belongs to.
const VERSION: &str = "kubevirt.io/install-strategy-version";
const REGISTRY: &str = "kubevirt.io/install-strategy-registry";
const IDENTIFIER: &str = "kubevirt.io/install-strategy-identifier";

pub(crate) type Texts = BTreeMap<String, String>;

pub(crate) fn texts<const N: usize>(pairs: [(&str, &str); N]) -> Texts {
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The labels of every managed object.
pub(crate) fn managed(settings: &Settings) -> Texts {
    let installation = (crate::names::INSTALLATION_LABEL, settings.namespace.as_str());
    texts([(api::labels::MANAGED_BY, MANAGER), (COMPONENT, "kubevirt"), installation])
}

/// Which version of the installation an object belongs to.
pub(crate) fn version(settings: &Settings) -> Texts {
    texts([(VERSION, &settings.image_tag), (REGISTRY, &settings.image_prefix), (IDENTIFIER, &settings.identifier())])
}

/// The metadata of an object without a namespace.
pub(crate) fn of_cluster(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}

/// The metadata of an object in the installation's namespace.
pub(crate) fn of_installation(name: &str, settings: &Settings) -> ObjectMeta {
    ObjectMeta { namespace: Some(settings.namespace.clone()), ..of_cluster(name) }
}

/// The same with the label of one of our programs.
pub(crate) fn of_program(app: &str, settings: &Settings) -> ObjectMeta {
    ObjectMeta { labels: Some(texts([(api::labels::APP, app)])), ..of_installation(app, settings) }
}

/// An object with its kind, marked as one of this installation.
pub(crate) fn typed<K: Resource + Serialize>(object: &K, settings: &Settings) -> Value {
    // Plain data always serializes; tests look at every kind.
    let mut value = serde_json::to_value(object).unwrap_or_default();
    value["apiVersion"] = json!(K::API_VERSION);
    value["kind"] = json!(K::KIND);
    mark(value, settings)
}

/// Marks an object as one of this installation.
pub(crate) fn mark(mut object: Value, settings: &Settings) -> Value {
    for (key, value) in managed(settings) {
        object["metadata"]["labels"][key] = json!(value);
    }
    for (key, value) in version(settings) {
        object["metadata"]["annotations"][key] = json!(value);
    }
    object
}
