//! The objects that hold certificates. virt-operator fills them: that needs randomness and a clock.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::object::{of_installation, texts, typed};
use crate::{Settings, names};

/// How objects reference the CAs that the API server must trust.
pub fn ca_bundle(pem: &str) -> Value {
    serde_json::to_value(ByteString(pem.as_bytes().to_vec())).unwrap_or_default()
}

/// The ConfigMap with the CAs that our programs trust.
pub fn ca_config_map(settings: &Settings, pem: &str) -> Value {
    let data = Some(texts([(names::config_map::CA_BUNDLE, pem)]));
    let metadata = of_installation(names::config_map::CA, settings);
    typed(&ConfigMap { metadata, data, ..ConfigMap::default() }, settings)
}

/// A Secret with a certificate and its key, both in PEM, and one annotation.
pub fn secret(settings: &Settings, name: &str, annotation: (&str, &str), certificate: &str, key: &str) -> Value {
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let data = [(names::tls::CERTIFICATE, bytes(certificate)), (names::tls::KEY, bytes(key))];
    let secret = Secret {
        metadata: ObjectMeta { annotations: Some(texts([annotation])), ..of_installation(name, settings) },
        data: Some(data.map(|(name, bytes)| (name.to_owned(), bytes)).into()),
        type_: Some("kubernetes.io/tls".to_owned()),
        ..Secret::default()
    };
    typed(&secret, settings)
}
