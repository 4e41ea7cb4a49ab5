//! Images that Pods lack are pulled, by somebody else: a node's namespace has no way to registries.
//!
//! The node asks over a Unix socket, and whoever listens there pulls into the image store that both see. A request and its answer are a line
//! of JSON each. Only root may talk, and only root is talked to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Secret};
use parking_lot::Mutex;
use podstate::{Blocked, PULL_ERROR, containers};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use crate::images;
use crate::paths::PodUid;

/// The longest line: a few configurations of Docker's.
pub const LINE_MAX: u64 = 4 << 20;

/// What a node asks for.
#[derive(Serialize, Deserialize)]
pub struct PullRequest {
    pub reference: String,
    /// The pull secrets of the Pod: configurations of Docker's, with passwords.
    pub secrets: Vec<Value>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PullAnswer {
    /// The image is in the store.
    Pulled {
        digest: String,
    },
    Failed {
        message: String,
    },
}

/// Pulls of this node's Pods. They run beside the work on Pods, which may take no such time.
pub(crate) struct Pulls {
    socket: Option<PathBuf>,
    of: Arc<Mutex<HashMap<PodUid, Pull>>>,
}

enum Pull {
    Running,
    Failed(Blocked),
}

/// What the start of a Pod has to wait for.
pub(crate) enum Images {
    /// Nothing: what is missing cannot be pulled.
    Ready,
    /// The Pod is looked at again when the pull has ended.
    Coming,
    Failed(Blocked),
    /// Nobody is at it yet.
    Missing(Vec<String>),
}

/// What is told about a pull as it goes on.
pub(crate) enum Told {
    Pulling,
    Pulled,
    Failed,
}

impl Pulls {
    pub(crate) fn new(socket: Option<PathBuf>) -> Self {
        Pulls { socket, of: Arc::default() }
    }

    pub(crate) fn look(&self, uid: &PodUid, spec: &PodSpec, store: &Path) -> Images {
        let mut of = self.of.lock();
        match of.remove(uid) {
            Some(Pull::Running) => {
                of.insert(uid.clone(), Pull::Running);
                return Images::Coming;
            }
            Some(Pull::Failed(blocked)) => return Images::Failed(blocked),
            None => {}
        }
        match missing(spec, store) {
            missing if missing.is_empty() || self.socket.is_none() => Images::Ready,
            missing => Images::Missing(missing),
        }
    }

    /// Starts pulling; `tell` hears of each image, and `ended` of the end.
    pub(crate) fn start(
        &self,
        uid: &PodUid,
        references: Vec<String>,
        secrets: Vec<Value>,
        tell: impl Fn(Told, String) + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let Some(socket) = self.socket.clone() else { return };
        let (of, uid) = (self.of.clone(), uid.clone());
        of.lock().insert(uid.clone(), Pull::Running);
        tokio::spawn(async move {
            let mut result = Ok(());
            for reference in references {
                tell(Told::Pulling, format!("Pulling image {reference:?}"));
                let started = Instant::now();
                match ask(&socket, &PullRequest { reference: reference.clone(), secrets: secrets.clone() }).await {
                    PullAnswer::Pulled { .. } => {
                        let seconds = started.elapsed().as_secs_f64();
                        tell(Told::Pulled, format!("Successfully pulled image {reference:?} in {seconds:.1}s"));
                    }
                    PullAnswer::Failed { message } => {
                        let message = format!("failed to pull image {reference:?}: {message}");
                        tell(Told::Failed, message.clone());
                        let hint = format!("or import it with: ferrovirt image import {reference} DIR|TAR");
                        result = Err(Blocked { reason: PULL_ERROR, message: format!("{message}; {hint}") });
                        break;
                    }
                }
            }
            match result {
                Ok(()) => of.lock().remove(&uid),
                Err(blocked) => of.lock().insert(uid, Pull::Failed(blocked)),
            };
            ended();
        });
    }

    /// The Pod has gone; what runs for it ends by itself, and the image stays.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut of = self.of.lock();
        if matches!(of.get(uid), Some(Pull::Failed(_))) {
            of.remove(uid);
        }
    }
}

/// Asks for one image.
async fn ask(socket: &Path, request: &PullRequest) -> PullAnswer {
    let asking = async {
        let (dir, name) = (socket.parent(), socket.file_name());
        let (dir, name) = dir.zip(name).ok_or_else(|| std::io::Error::other("its path has no directory"))?;
        // By descriptor: the path of a socket must be short.
        let root = hostfs::beneath::Root::open(dir).map_err(std::io::Error::other)?;
        let stream = root.connect_unix(name).map_err(std::io::Error::other)?;
        stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(stream)?;
        if stream.peer_cred()?.uid() != 0 {
            return Err(std::io::Error::other("root does not listen there"));
        }
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        stream.write_all(&line).await?;
        let mut answer = Vec::new();
        BufReader::new(stream).take(LINE_MAX).read_until(b'\n', &mut answer).await?;
        Ok(serde_json::from_slice(&answer)?)
    };
    asking.await.unwrap_or_else(|err: std::io::Error| PullAnswer::Failed {
        message: format!("the supervisor does not answer at {}: {err}", socket.display()),
    })
}

/// The images that a Pod lacks and that may be pulled for it, each once.
fn missing(spec: &PodSpec, store: &Path) -> Vec<String> {
    let run = containers(spec).map(|one| (one.image.as_deref(), one.image_pull_policy.as_deref()));
    let volumes = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref());
    let mounted = volumes.map(|image| (image.reference.as_deref(), image.pull_policy.as_deref()));
    let wanted = run.chain(mounted).filter(|(_, policy)| *policy != Some("Never"));
    let mut found: Vec<String> = wanted
        .filter_map(|(reference, _)| reference.filter(|reference| !reference.is_empty()))
        .filter(|reference| images::resolve(store, reference).is_err())
        .map(str::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

/// The names of the secrets that a Pod's images are pulled with.
pub(crate) fn secret_names(pod: &Pod) -> Vec<String> {
    let secrets = pod.spec.iter().flat_map(|spec| spec.image_pull_secrets.iter().flatten());
    secrets.map(|secret| secret.name.clone()).filter(|name| !name.is_empty()).collect()
}

/// The configuration in a pull secret.
pub(crate) fn configuration(secret: &Secret) -> Option<Value> {
    let data = secret.data.as_ref()?;
    let content = data.get(".dockerconfigjson").or_else(|| data.get(".dockercfg"))?;
    serde_json::from_slice(&content.0).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_once_unless_it_may_never_be_pulled() {
        let spec = serde_json::from_value(json!({
            "containers": [
                {"name": "a", "image": "example.com/b"},
                {"name": "b", "image": "example.com/b", "imagePullPolicy": "Always"},
                {"name": "c", "image": "example.com/never", "imagePullPolicy": "Never"},
                {"name": "host", "image": "ferrovirt.io/host:1"},
            ],
            "initContainers": [{"name": "d", "image": "example.com/a:1", "imagePullPolicy": "IfNotPresent"}],
            "volumes": [
                {"name": "v", "image": {"reference": "example.com/disk:1"}},
                {"name": "w", "image": {"reference": "example.com/never", "pullPolicy": "Never"}},
                {"name": "x", "emptyDir": {}},
            ],
        }))
        .unwrap();
        assert_eq!(missing(&spec, Path::new("/nowhere")), ["example.com/a:1", "example.com/b", "example.com/disk:1"]);
    }

    #[test]
    fn pull_secrets_of_both_kinds_are_read() {
        let secret = |key: &str, text: &str| {
            let data = [(key.to_owned(), k8s_openapi::ByteString(text.as_bytes().to_vec()))];
            Secret { data: Some(data.into()), ..Secret::default() }
        };
        assert_eq!(configuration(&secret(".dockerconfigjson", r#"{"auths":{}}"#)), Some(json!({"auths": {}})));
        assert_eq!(configuration(&secret(".dockercfg", r#"{"quay.io":{}}"#)), Some(json!({"quay.io": {}})));
        assert_eq!(configuration(&secret("other", "{}")), None);
        assert_eq!(configuration(&secret(".dockercfg", "{")), None);
    }
}
