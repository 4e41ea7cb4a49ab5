//! Images of container registries, by the distribution protocol.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::header::{ACCEPT, AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use oci_spec::image::{Arch, Descriptor, ImageIndex, ImageManifest, Os};
use serde::Deserialize;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use url::Url;

use crate::content::checksum::hex as hex_of;
use crate::net::{Client, Error, Get, Transfer, Trust};

const DOCUMENT_MAX: usize = 4 << 20;
const INDEXES_MAX: usize = 3;
const LAYERS_MAX: usize = 512;
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// Where names without a host are.
const DEFAULT_HOST: &str = "docker.io";
const DEFAULT_SERVER: &str = "registry-1.docker.io";

/// Why an image cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct PullError {
    pub message: String,
    /// Whether the registry, the name or the credentials are at fault, so that trying again at once cannot help.
    pub refused: bool,
}

impl PullError {
    fn refused(message: impl Into<String>) -> Self {
        PullError { message: message.into(), refused: true }
    }
}

impl From<Error> for PullError {
    fn from(err: Error) -> Self {
        PullError { message: err.to_string(), refused: false }
    }
}

/// The name of an image: `host/repository:tag` or `…@sha256:…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub host: String,
    pub repository: String,
    /// A tag or a digest; the digest if both are given.
    pub version: String,
}

impl Reference {
    /// As container engines read names: without a host they mean Docker's, without a tag `latest`.
    pub fn parse(text: &str) -> Result<Self, PullError> {
        let bad = || PullError::refused(format!("{text:?} is not the name of an image: use example.com/name:tag"));
        let (name, digest) = match text.split_once('@') {
            Some((name, digest)) => (name, Some(digest)),
            None => (text, None),
        };
        let (name, tag) = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
            _ => (name, None),
        };
        let (host, repository) = match name.split_once('/') {
            Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => (host, rest.to_owned()),
            Some(_) => (DEFAULT_HOST, name.to_owned()),
            None => (DEFAULT_HOST, format!("library/{name}")),
        };
        let plain = |text: &str, more: &[u8]| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
        };
        let parts = repository.split('/').all(|part| plain(part, b"._-") && !part.starts_with('.'));
        let digest_ok = digest.is_none_or(|digest| digest_hex(digest).is_some());
        if !parts || !plain(host, b".-:[]") || !tag.is_none_or(|tag| plain(tag, b"._-")) || !digest_ok {
            return Err(bad());
        }
        let version = digest.or(tag).unwrap_or("latest").to_owned();
        Ok(Reference { host: host.to_owned(), repository, version })
    }

    fn server(&self) -> &str {
        if self.host == DEFAULT_HOST { DEFAULT_SERVER } else { &self.host }
    }
}

impl std::fmt::Display for Reference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.version.contains(':') { '@' } else { ':' };
        write!(f, "{}/{}{mark}{}", self.host, self.repository, self.version)
    }
}

/// How a registry is reached.
#[derive(Clone, Default)]
pub struct Access {
    /// Plain HTTP, or TLS without a check of the certificate.
    pub insecure: bool,
    pub ca_pem: Option<String>,
    /// User and password.
    pub credentials: Option<(String, String)>,
}

/// An image in a registry.
pub struct Remote {
    pub(crate) client: Arc<Client>,
    base: Url,
    reference: Reference,
    credentials: Option<(String, String)>,
    authorization: Option<HeaderValue>,
}

/// A manifest for this machine.
pub struct Found {
    pub manifest: ImageManifest,
    /// The manifest as it was sent.
    pub document: Vec<u8>,
    /// Its digest.
    pub digest: String,
}

impl Remote {
    pub fn new(reference: Reference, access: &Access) -> Result<Self, PullError> {
        let trust = Trust { ca_pem: access.ca_pem.clone(), insecure: access.insecure };
        let client = Arc::new(Client::new(&trust).map_err(PullError::refused)?);
        let base = base("https", reference.server())?;
        Ok(Remote { client, base, reference, credentials: access.credentials.clone(), authorization: None })
    }

    /// Finds the manifest for this kind of machine.
    pub async fn find(&mut self, insecure: bool) -> Result<Found, PullError> {
        let first = self.reference.version.clone();
        let mut found = match self.document(&first).await {
            Err(Error::Connect(_)) if insecure => {
                self.base = base("http", self.reference.server())?;
                self.document(&first).await
            }
            found => found,
        };
        for _ in 0..INDEXES_MAX {
            let (document, digest) = found?;
            let parsed: serde_json::Value = serde_json::from_slice(&document).map_err(unreadable)?;
            if parsed.get("manifests").is_none() {
                let manifest: ImageManifest = serde_json::from_value(parsed).map_err(unreadable)?;
                if manifest.layers().len() > LAYERS_MAX {
                    return Err(PullError::refused(format!("the image has more than {LAYERS_MAX} layers")));
                }
                return Ok(Found { manifest, document, digest });
            }
            let index: ImageIndex = serde_json::from_value(parsed).map_err(unreadable)?;
            let ours = |one: &&Descriptor| {
                one.platform()
                    .as_ref()
                    .is_none_or(|platform| *platform.os() == Os::Linux && *platform.architecture() == architecture())
            };
            let next = index.manifests().iter().find(ours).map(|one| one.digest().to_string());
            let next = next.ok_or_else(|| PullError::refused("the image has nothing for this kind of machine"))?;
            found = self.document(&next).await;
        }
        Err(PullError::refused("the image's indexes are nested too deeply"))
    }

    /// Starts the transfer of a blob. Its content is to be checked against its digest.
    pub(crate) async fn blob(&mut self, descriptor: &Descriptor) -> Result<Transfer, PullError> {
        let digest = descriptor.digest().to_string();
        if digest_hex(&digest).is_none() {
            return Err(PullError::refused(format!("{digest:?} is no digest by sha256")));
        }
        let mut get = Get::new(self.url(&format!("blobs/{digest}"))?);
        get.secrets = self.secrets();
        match Transfer::start(self.client.clone(), get.clone()).await {
            // A token that has ended, for one.
            Err(Error::Connect(_)) if self.authorization.take().is_some() => {
                self.document(&self.reference.version.clone()).await?;
                get.secrets = self.secrets();
                Ok(Transfer::start(self.client.clone(), get).await?)
            }
            started => Ok(started?),
        }
    }

    fn secrets(&self) -> HeaderMap {
        self.authorization.iter().map(|value| (AUTHORIZATION, value.clone())).collect()
    }

    fn url(&self, rest: &str) -> Result<Url, PullError> {
        let path = format!("v2/{}/{rest}", self.reference.repository);
        self.base.join(&path).map_err(|err| PullError::refused(err.to_string()))
    }

    /// A manifest or an index, and its digest.
    async fn document(&mut self, version: &str) -> Result<(Vec<u8>, String), Error> {
        let url = self.url(&format!("manifests/{version}")).map_err(|err| Error::Url(err.message))?;
        let mut get = Get::new(url);
        get.headers.insert(ACCEPT, HeaderValue::from_static(MANIFESTS));
        get.secrets = self.secrets();
        let mut answer = self.client.document(&get, DOCUMENT_MAX).await?;
        if answer.0 == StatusCode::UNAUTHORIZED && self.authorization.is_none() {
            self.authorize(&answer.1).await.map_err(|err| Error::Body(err.message))?;
            get.secrets = self.secrets();
            answer = self.client.document(&get, DOCUMENT_MAX).await?;
        }
        let (status, _, document) = answer;
        if status != StatusCode::OK {
            let what = match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "access to the resource is denied",
                StatusCode::NOT_FOUND => "manifest unknown",
                _ => "the registry refuses",
            };
            return Err(Error::Body(format!(
                "reading manifest {version} in {}/{}: {what} ({status})",
                self.reference.host, self.reference.repository
            )));
        }
        let digest = sha256(&document);
        if version.contains(':') && version != digest {
            return Err(Error::Body(format!("manifest {version} is damaged: its digest is {digest}")));
        }
        Ok((document.to_vec(), digest))
    }

    /// Does what the registry asks for.
    async fn authorize(&mut self, headers: &HeaderMap) -> Result<(), PullError> {
        let challenges = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let mut basic = false;
        for challenge in challenges {
            let (scheme, rest) = challenge.trim().split_once(' ').unwrap_or((challenge, ""));
            if scheme.eq_ignore_ascii_case("bearer") {
                let token = timeout(ANSWER_LIMIT, self.token(rest)).await;
                let token = token.map_err(|_| PullError::refused("the registry's tokens do not come"))??;
                self.authorization = Some(header(&format!("Bearer {token}"))?);
                return Ok(());
            }
            basic |= scheme.eq_ignore_ascii_case("basic");
        }
        match (&self.credentials, basic) {
            (Some(credentials), true) => {
                self.authorization = Some(basic_authorization(credentials)?);
                Ok(())
            }
            (None, true) => Err(PullError::refused("unauthorized: the registry asks for a user and a password")),
            (_, false) => Err(PullError::refused("unauthorized: the registry asks for something unknown")),
        }
    }

    async fn token(&self, challenge: &str) -> Result<String, PullError> {
        #[derive(Deserialize)]
        struct Token {
            token: Option<String>,
            access_token: Option<String>,
        }
        let value = |name: &str| parameter(challenge, name);
        let realm =
            value("realm").ok_or_else(|| PullError::refused("the registry does not say where its tokens are"))?;
        let mut url = Url::parse(&realm).map_err(|err| PullError::refused(format!("realm {realm:?}: {err}")))?;
        // A password goes to nobody who can be overheard, unless the registry itself is one.
        if url.scheme() != "https" && self.base.scheme() == "https" {
            return Err(PullError::refused("the registry's tokens are not behind TLS"));
        }
        {
            let mut query = url.query_pairs_mut();
            if let Some(service) = value("service") {
                query.append_pair("service", &service);
            }
            let scope = format!("repository:{}:pull", self.reference.repository);
            query.append_pair("scope", &value("scope").unwrap_or(scope));
        }
        let mut get = Get::new(url);
        if let Some(credentials) = &self.credentials {
            get.secrets.insert(AUTHORIZATION, basic_authorization(credentials)?);
        }
        let (status, _, document) = self.client.document(&get, DOCUMENT_MAX).await?;
        if status != StatusCode::OK {
            return Err(PullError::refused(format!("unauthorized: the registry gives no token ({status})")));
        }
        let token: Token = serde_json::from_slice(&document).map_err(unreadable)?;
        token.token.or(token.access_token).ok_or_else(|| PullError::refused("the registry gives an empty token"))
    }
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Layers that are there.
    pub layers_done: usize,
    pub layers: usize,
    pub bytes_done: u64,
    pub bytes: u64,
}

/// Pulls the layers of an image into a directory, as an OCI layout with one manifest. Returns the manifest's digest.
///
/// `limit` is the most that the layers may have, packed.
pub async fn pull(
    reference: &Reference,
    access: &Access,
    layout: &Path,
    limit: u64,
    mut progress: impl FnMut(Progress),
) -> Result<String, PullError> {
    let mut remote = Remote::new(reference.clone(), access)?;
    let found = remote.find(access.insecure).await?;
    let layers = found.manifest.layers();
    let bytes = layers.iter().fold(0u64, |sum, layer| sum.saturating_add(layer.size()));
    if bytes > limit {
        return Err(PullError::refused(format!("the image has {bytes} bytes, and only {limit} may be used for it")));
    }
    let failed = |err: std::io::Error| PullError { message: format!("cannot write the image: {err}"), refused: false };
    let blobs = layout.join("blobs/sha256");
    tokio::fs::create_dir_all(&blobs).await.map_err(failed)?;
    let mut now = Progress { layers_done: 0, layers: layers.len(), bytes_done: 0, bytes };
    progress(now);
    for layer in layers {
        let digest = layer.digest().to_string();
        let hex =
            digest_hex(&digest).ok_or_else(|| PullError::refused(format!("{digest:?} is no digest by sha256")))?;
        let mut transfer = remote.blob(layer).await?;
        let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
        let mut file = tokio::fs::File::create(blobs.join(hex)).await.map_err(failed)?;
        let mut size = 0u64;
        while let Some(piece) = transfer.next().await? {
            size += piece.len() as u64;
            if size > layer.size() {
                return Err(PullError::refused(format!("layer {digest} is longer than the manifest says")));
            }
            hash.update(&piece);
            file.write_all(&piece).await.map_err(failed)?;
            now.bytes_done += piece.len() as u64;
            progress(now);
        }
        file.flush().await.map_err(failed)?;
        if digest != format!("sha256:{}", hex_of(hash.finish().as_ref())) {
            return Err(PullError::refused(format!("layer {digest} is damaged")));
        }
        now.layers_done += 1;
        progress(now);
    }
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let listed = serde_json::json!({ "mediaType": kind, "digest": found.digest, "size": found.document.len() });
    let index = serde_json::json!({ "schemaVersion": 2, "manifests": [listed] }).to_string();
    let name = digest_hex(&found.digest).unwrap_or_default();
    let files = [
        (blobs.join(name), found.document),
        (layout.join("index.json"), index.into_bytes()),
        (layout.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
    ];
    for (path, content) in files {
        tokio::fs::write(path, content).await.map_err(failed)?;
    }
    Ok(found.digest)
}

/// The user and password for a registry in a configuration of Docker's: `config.json`, or the older `.dockercfg`.
pub fn credentials(configuration: &serde_json::Value, host: &str) -> Option<(String, String)> {
    let auths = configuration.get("auths").unwrap_or(configuration).as_object()?;
    let plain = |key: &str| {
        let key = key.trim_start_matches("https://").trim_start_matches("http://");
        let name = key.split('/').next().unwrap_or_default().to_owned();
        if ["index.docker.io", DEFAULT_SERVER].contains(&name.as_str()) { DEFAULT_HOST.to_owned() } else { name }
    };
    let entry = auths.iter().find(|(key, _)| plain(key) == host)?.1;
    let text = |name: &str| entry.get(name).and_then(|value| value.as_str()).filter(|text| !text.is_empty());
    if let (Some(user), Some(password)) = (text("username"), text("password")) {
        return Some((user.to_owned(), password.to_owned()));
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(text("auth")?).ok()?;
    let (user, password) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

fn base(scheme: &str, server: &str) -> Result<Url, PullError> {
    Url::parse(&format!("{scheme}://{server}/")).map_err(|err| PullError::refused(format!("{server:?}: {err}")))
}

fn unreadable(err: serde_json::Error) -> PullError {
    PullError::refused(format!("the registry's answer cannot be read: {err}"))
}

fn header(text: &str) -> Result<HeaderValue, PullError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| PullError::refused("the credentials cannot be sent"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic_authorization((user, password): &(String, String)) -> Result<HeaderValue, PullError> {
    let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    header(&format!("Basic {text}"))
}

/// A parameter of a challenge: `name="value"`, between commas.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let mut rest = challenge;
    loop {
        let (key, tail) = rest.split_once('=')?;
        let key = key.trim_start_matches([',', ' ']).trim();
        let (value, after) = match tail.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => tail.split_once(',').unwrap_or((tail, "")),
        };
        if key.eq_ignore_ascii_case(name) {
            return Some(value.to_owned());
        }
        rest = after;
    }
}

pub(crate) fn digest_hex(digest: &str) -> Option<&str> {
    let hex = digest.strip_prefix("sha256:")?;
    let valid = hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    valid.then_some(hex)
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex_of(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref()))
}

fn architecture() -> Arch {
    if cfg!(target_arch = "aarch64") { Arch::ARM64 } else { Arch::Amd64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_container_engines_do() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let rows = [
            ("fedora", "docker.io/library/fedora:latest"),
            ("kubevirt/demo:1", "docker.io/kubevirt/demo:1"),
            ("quay.io/a/b", "quay.io/a/b:latest"),
            ("localhost/x:1", "localhost/x:1"),
            ("127.0.0.1:5000/x", "127.0.0.1:5000/x:latest"),
            ("registry:5000/a/b:v1.2", "registry:5000/a/b:v1.2"),
        ];
        for (text, expected) in rows {
            assert_eq!(Reference::parse(text).unwrap().to_string(), expected);
        }
        let pinned = Reference::parse(&format!("quay.io/a/b:1@{digest}")).unwrap();
        assert_eq!(pinned.to_string(), format!("quay.io/a/b@{digest}"));
        for bad in ["", "a b", "quay.io/../x", "quay.io/a@sha256:12", "quay.io/", "quay.io/a:b/c?x", "-/..", "a:"] {
            assert!(Reference::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn credentials_are_those_of_the_registry() {
        let configuration = serde_json::json!({"auths": {
            "https://index.docker.io/v1/": {"auth": "dXNlcjpwYXNzOndvcmQ="},
            "quay.io": {"username": "u", "password": "p"},
            "bad.io": {"auth": "%%%"},
            "host:5000/path": {"auth": "YTpi"},
        }});
        let of = |host: &str| credentials(&configuration, host);
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(of("docker.io"), pair("user", "pass:word"));
        assert_eq!(of("quay.io"), pair("u", "p"));
        assert_eq!(of("host:5000"), pair("a", "b"));
        assert_eq!((of("bad.io"), of("host"), of("")), (None, None, None));
        assert_eq!(credentials(&configuration["auths"], "quay.io"), pair("u", "p"), "the older form");
        assert_eq!(credentials(&serde_json::json!([]), "quay.io"), None);
    }

    #[test]
    fn challenges_are_taken_apart() {
        let challenge = r#"realm="https://auth.example/token",service="registry.example", scope="repository:a/b:pull,push",error=x"#;
        assert_eq!(parameter(challenge, "realm").as_deref(), Some("https://auth.example/token"));
        assert_eq!(parameter(challenge, "Service").as_deref(), Some("registry.example"));
        assert_eq!(parameter(challenge, "scope").as_deref(), Some("repository:a/b:pull,push"));
        assert_eq!(parameter(challenge, "error").as_deref(), Some("x"));
        assert_eq!(parameter(challenge, "other"), None);
        assert_eq!(parameter("", "realm"), None);
    }
}
