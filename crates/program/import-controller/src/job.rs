//! What a worker is told: the source with the passwords and certificates that it names.

use std::collections::BTreeMap;
use std::error::Error as _;

use api::cdi::{CDI, CDIConfig, CONFIG_NAME};
use api::v1::{DataVolumeSourceHTTP, DataVolumeSourceRegistry};
use disk_images::{ContentType, Http, Job, Registry, Source, Target};
use imports::{Import, Task};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, DynamicObject};
use kube::core::ApiResource;
use serde_json::Value;
use volumeplan::Kind;
use volumes::Held;

use crate::Error;

/// The stage in which a worker takes its content in.
pub(crate) const FIRST_STAGE: &str = "transfer";

/// Keys of a Secret with the password of a source.
const USER: &str = "accessKeyId";
const PASSWORD: &str = "secretKey";

/// Why a source cannot be described.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unknown {
    #[error(transparent)]
    Api(#[from] Error),
    #[error("{kind} {name} has no key {key}")]
    Key { kind: &'static str, name: String, key: &'static str },
    #[error("{kind} {name} does not exist")]
    Missing { kind: &'static str, name: String },
    #[error("{kind} {name} is not text")]
    Binary { kind: &'static str, name: String },
}

/// The error with its cause, for a condition.
pub(crate) fn words(error: &Unknown) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The worker's job.
pub(crate) fn job(task: &Task, held: &Held, source: Source) -> Job {
    let target = match held.kind {
        Kind::Filesystem => Target::Directory {},
        Kind::Block => Target::File {},
    };
    Job {
        content_type: if task.archive { ContentType::Archive } else { ContentType::Kubevirt },
        preallocate: task.preallocate,
        filesystem_overhead: task.overhead,
        ..Job::new(source, target, held.capacity)
    }
}

/// The source, with what it names in the namespace.
pub(crate) async fn source(client: &kube::Client, namespace: &str, import: &Import) -> Result<Source, Unknown> {
    let names = Names { client, namespace };
    match import {
        Import::Blank => Ok(Source::Blank {}),
        Import::Http(http) => names.http(http).await.map(Source::Http),
        Import::Registry(registry) => names.registry(registry).await.map(Source::Registry),
    }
}

struct Names<'a> {
    client: &'a kube::Client,
    namespace: &'a str,
}

impl Names<'_> {
    async fn http(&self, http: &DataVolumeSourceHTTP) -> Result<Http, Unknown> {
        let DataVolumeSourceHTTP { cert_config_map, checksum, extra_headers, secret_extra_headers, secret_ref, url } =
            http;
        let (username, password) = self.login(secret_ref.as_deref()).await?;
        let mut headers = extra_headers.clone();
        for name in secret_extra_headers {
            for (_, value) in self.secret(name).await? {
                headers.push(text("Secret", name, value)?);
            }
        }
        let ca_pem = self.certificates(cert_config_map.as_deref()).await?;
        let checksum = checksum.clone().filter(|checksum| !checksum.is_empty());
        Ok(Http { url: url.clone(), headers, username, password, ca_pem, checksum })
    }

    async fn registry(&self, registry: &DataVolumeSourceRegistry) -> Result<Registry, Unknown> {
        let DataVolumeSourceRegistry { cert_config_map, image_stream: _, platform: _, pull_method: _, secret_ref, url } =
            registry;
        let url = url.clone().unwrap_or_default();
        let (username, password) = self.login(secret_ref.as_deref()).await?;
        let ca_pem = self.certificates(cert_config_map.as_deref()).await?;
        let insecure = self.is_insecure(&url).await?;
        Ok(Registry { url, insecure, ca_pem, username, password })
    }

    async fn login(&self, secret: Option<&str>) -> Result<(Option<String>, Option<String>), Unknown> {
        let Some(name) = secret.filter(|name| !name.is_empty()) else { return Ok((None, None)) };
        let mut data = self.secret(name).await?;
        let mut take = |key| {
            let value = data.remove(key);
            let value = value.ok_or_else(|| Unknown::Key { kind: "Secret", name: name.to_owned(), key })?;
            text("Secret", name, value).map(Some)
        };
        Ok((take(USER)?, take(PASSWORD)?))
    }

    async fn secret(&self, name: &str) -> Result<BTreeMap<String, ByteString>, Unknown> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        let found = secrets.get_opt(name).await.map_err(Error::api(format!("read Secret {name}")))?;
        let missing = || Unknown::Missing { kind: "Secret", name: name.to_owned() };
        Ok(found.ok_or_else(missing)?.data.unwrap_or_default())
    }

    /// All certificates of a ConfigMap, as upstream mounts it.
    async fn certificates(&self, name: Option<&str>) -> Result<Option<String>, Unknown> {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(None) };
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), self.namespace);
        let found = maps.get_opt(name).await.map_err(Error::api(format!("read ConfigMap {name}")))?;
        let missing = || Unknown::Missing { kind: "ConfigMap", name: name.to_owned() };
        let found = found.ok_or_else(missing)?;
        let pems: Vec<String> = found.data.unwrap_or_default().into_values().collect();
        Ok(Some(pems.join("\n")))
    }

    /// Whether the settings name the registry among those without certificates.
    async fn is_insecure(&self, url: &str) -> Result<bool, Unknown> {
        let host = url.split_once("://").map_or(url, |(_, rest)| rest).split('/').next().unwrap_or_default();
        let places = [
            (ApiResource::erase::<CDI>(&()), imports::installation::INSTALLATION, "/spec/config/insecureRegistries"),
            (ApiResource::erase::<CDIConfig>(&()), CONFIG_NAME, "/spec/insecureRegistries"),
        ];
        for (kind, name, path) in places {
            let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
            let found = objects.get_opt(name).await.map_err(Error::api(format!("read {} {name}", kind.kind)))?;
            let list = found.as_ref().and_then(|found| found.data.pointer(path)).and_then(Value::as_array);
            if list.into_iter().flatten().any(|entry| entry.as_str() == Some(host)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn text(kind: &'static str, name: &str, value: ByteString) -> Result<String, Unknown> {
    String::from_utf8(value.0).map_err(|_| Unknown::Binary { kind, name: name.to_owned() })
}
