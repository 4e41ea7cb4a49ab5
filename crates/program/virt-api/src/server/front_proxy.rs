//! Who may speak for users: kube-apiserver's front proxy, by the cluster's own record.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::Api;
use parking_lot::RwLock;
use review::User;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";
/// How often the record is read again.
const PERIOD: Duration = Duration::from_secs(60);

/// Headers that every cluster uses; the record may name more.
const USER: &str = "x-remote-user";
const GROUP: &str = "x-remote-group";
const EXTRA: &str = "x-remote-extra-";

/// Why front proxies cannot be told from anybody else.
#[derive(Debug, thiserror::Error)]
pub enum FrontProxyError {
    #[error(
        "failed to read ConfigMap {NAMESPACE}/{NAME}, which names the front proxy's CA; is virt-api's account bound to the role extension-apiserver-authentication-reader?"
    )]
    Read(#[source] kube::Error),
    #[error(
        "ConfigMap {NAMESPACE}/{NAME} has no requestheader-client-ca-file: kube-apiserver runs without aggregation (--requestheader-client-ca-file)"
    )]
    NoAuthority,
    #[error("ConfigMap {NAMESPACE}/{NAME}: {key} is invalid: {why}")]
    Invalid { key: &'static str, why: String },
}

/// What the cluster says about its front proxies.
#[derive(Clone, Debug)]
pub(crate) struct FrontProxy {
    pub(crate) roots: Arc<RootCertStore>,
    /// Common names of the proxies; any if empty.
    names: Vec<String>,
    users: Vec<String>,
    groups: Vec<String>,
    extras: Vec<String>,
}

impl FrontProxy {
    fn of(record: &ConfigMap) -> Result<FrontProxy, FrontProxyError> {
        let data = record.data.as_ref();
        let text = |key: &str| data.and_then(|data| data.get(key)).filter(|text| !text.is_empty());
        let ca = text("requestheader-client-ca-file").ok_or(FrontProxyError::NoAuthority)?;
        let invalid = |why: String| FrontProxyError::Invalid { key: "requestheader-client-ca-file", why };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()) {
            let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
            roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(invalid("contains no certificate".to_owned()));
        }
        let list = |key: &'static str| -> Result<Vec<String>, FrontProxyError> {
            let Some(text) = text(key) else { return Ok(vec![]) };
            serde_json::from_str(text).map_err(|error| FrontProxyError::Invalid { key, why: error.to_string() })
        };
        let headers = |usual: &str, key| -> Result<Vec<String>, FrontProxyError> {
            let mut all = vec![usual.to_owned()];
            for name in list(key)? {
                let name = name.to_ascii_lowercase();
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            Ok(all)
        };
        Ok(FrontProxy {
            roots: Arc::new(roots),
            names: list("requestheader-allowed-names")?,
            users: headers(USER, "requestheader-username-headers")?,
            groups: headers(GROUP, "requestheader-group-headers")?,
            extras: headers(EXTRA, "requestheader-extra-headers-prefix")?,
        })
    }

    /// Whether a client whose certificate has this name is a front proxy.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|known| known == name)
    }

    /// The user that a front proxy speaks for.
    pub(crate) fn user(&self, headers: &HeaderMap) -> Option<User> {
        let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
        let name = self.users.iter().find_map(|name| headers.get(name.as_str()).and_then(text))?;
        let groups = self.groups.iter().find(|name| headers.contains_key(name.as_str()));
        let groups = groups.map(|name| headers.get_all(name.as_str()).iter().filter_map(text).collect());
        let mut user = User { name, groups: groups.unwrap_or_default(), ..User::default() };
        for (name, value) in headers {
            let key = self.extras.iter().find_map(|prefix| name.as_str().strip_prefix(prefix.as_str()));
            if let (Some(key), Some(value)) = (key, text(value)) {
                user.extra.entry(unescape(key)).or_default().push(value);
            }
        }
        Some(user).filter(|user| !user.name.is_empty())
    }
}

/// Decodes `%2f`; what cannot be decoded stays as it is.
fn unescape(key: &str) -> String {
    percent_encoding::percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), |key| key.to_lowercase())
}

/// The current record.
#[derive(Clone)]
pub(crate) struct FrontProxies {
    client: kube::Client,
    current: Arc<RwLock<Arc<FrontProxy>>>,
}

impl FrontProxies {
    pub(crate) async fn read(client: kube::Client) -> Result<FrontProxies, FrontProxyError> {
        let first = fetch(&client).await?;
        Ok(FrontProxies { client, current: Arc::new(RwLock::new(Arc::new(first))) })
    }

    pub(crate) fn current(&self) -> Arc<FrontProxy> {
        self.current.read().clone()
    }

    /// Reads the record again and again: the proxy's CA may be replaced.
    pub(crate) async fn follow(self, end: CancellationToken) {
        while end.run_until_cancelled(tokio::time::sleep(PERIOD)).await.is_some() {
            match fetch(&self.client).await {
                Ok(record) => *self.current.write() = Arc::new(record),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "failed to reload the front proxy's CA; keeping the previous one");
                }
            }
        }
    }
}

async fn fetch(client: &kube::Client) -> Result<FrontProxy, FrontProxyError> {
    let records: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    FrontProxy::of(&records.get(NAME).await.map_err(FrontProxyError::Read)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use test_support::pki::Authority;

    use super::*;

    fn record(data: serde_json::Value) -> Result<FrontProxy, FrontProxyError> {
        FrontProxy::of(&serde_json::from_value(json!({ "data": data })).unwrap())
    }

    #[test]
    fn a_user_is_who_the_headers_name() {
        let proxy = record(json!({
            "requestheader-client-ca-file": Authority::new().pem(),
            "requestheader-allowed-names": "[\"front-proxy\"]",
            "requestheader-username-headers": "[\"X-Remote-User\", \"X-Other-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }))
        .unwrap();
        assert!(proxy.is_named("front-proxy") && !proxy.is_named("somebody"));
        let mut headers = HeaderMap::new();
        assert_eq!(proxy.user(&headers), None);
        headers.append("x-other-user", "jane".parse().unwrap());
        assert_eq!(proxy.user(&headers).unwrap().name, "jane");
        headers.append("x-remote-user", "john".parse().unwrap());
        headers.append("x-remote-group", "a".parse().unwrap());
        headers.append("x-remote-group", "b".parse().unwrap());
        headers.append("x-remote-extra-example.org%2fscope", "x".parse().unwrap());
        let user = proxy.user(&headers).unwrap();
        assert_eq!((user.name.as_str(), user.groups), ("john", vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(user.extra["example.org/scope"], ["x"]);
    }

    #[test]
    fn a_cluster_without_aggregation_is_named() {
        assert!(matches!(record(json!({})), Err(FrontProxyError::NoAuthority)));
        let error = record(json!({ "requestheader-client-ca-file": "nothing" })).unwrap_err();
        assert!(matches!(error, FrontProxyError::Invalid { .. }), "{error}");
    }
}
