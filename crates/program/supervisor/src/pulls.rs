//! Pulling images into the store: for `image pull`, and for nodes, whose namespaces have no way to registries.
//!
//! Nodes ask over a Unix socket that only root can use; see [`pod_runner::pulls`]. It is served in the host's network namespace.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use disk_images::registry::{self, Access, Progress, Reference};
use pod_runner::images;
use pod_runner::pulls::{LINE_MAX, PullAnswer, PullRequest};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::cluster::layout::Layout;

/// Pulls at a time.
const PULLS: usize = 2;
/// A node sends its request at once.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
const PULL_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);
/// The share of the free space that an image may take: packed, and again unpacked.
const SHARE: u64 = 3;
/// Pause after a connection that cannot be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// `DATA_DIR/registries.json`: how registries are reached. It is read for every pull.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Registries {
    /// Those without TLS, or whose certificate is not checked. Those of this machine's loopback always are.
    insecure: Vec<String>,
    /// Files with the certificates of authorities, by registry.
    ca: BTreeMap<String, PathBuf>,
    /// Users and passwords, as in Docker's `config.json`.
    auths: Option<Value>,
}

impl Registries {
    fn load(layout: &Layout) -> Result<Self> {
        let path = layout.registries();
        match std::fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| format!("cannot read {}", path.display())),
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(err) => Err(err).with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// What a user or a Pod adds to that.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) insecure: bool,
    pub(crate) ca_pem: Option<String>,
    /// Configurations of Docker's; the first with this registry counts.
    pub(crate) configurations: Vec<Value>,
}

/// Pulls an image into the store, in place of an earlier one; returns the manifest's digest.
pub(crate) async fn pull(layout: &Layout, name: &str, given: Given, progress: impl FnMut(Progress)) -> Result<String> {
    let reference = Reference::parse(name)?;
    let registries = Registries::load(layout)?;
    let access = access(&reference.host, given, &registries)?;
    let store = layout.images();
    let workspace = Workspace(images::workspace(&store)?);
    let free = rustix::fs::statvfs(&store).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    let limit = free / SHARE;
    let digest = registry::pull(&reference, &access, &workspace.0, limit, progress).await?;
    let (name, known) = (name.to_owned(), digest.clone());
    tokio::task::spawn_blocking(move || images::import_pulled(&store, &name, &workspace.0, &known, limit))
        .await
        .context("unpacking the image panicked")??;
    Ok(digest)
}

/// A directory that goes with this value.
struct Workspace(PathBuf);

impl Drop for Workspace {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(path = %self.0.display(), %error, "what was pulled cannot be removed; the next import does it");
        }
    }
}

fn access(host: &str, given: Given, registries: &Registries) -> Result<Access> {
    let ca_pem = match (given.ca_pem, registries.ca.get(host)) {
        (Some(pem), _) => Some(pem),
        (None, Some(path)) => {
            let pem = std::fs::read_to_string(path);
            Some(pem.with_context(|| format!("cannot read the CA of {host} at {}", path.display()))?)
        }
        (None, None) => None,
    };
    let own = registries.auths.clone().map(|auths| serde_json::json!({ "auths": auths }));
    let mut configurations = given.configurations.iter().chain(own.as_ref());
    let credentials = configurations.find_map(|configuration| registry::credentials(configuration, host));
    let insecure = given.insecure || is_loopback(host) || registries.insecure.iter().any(|one| one == host);
    Ok(Access { insecure: insecure && ca_pem.is_none(), ca_pem, credentials })
}

/// As container engines have it: what comes from this machine needs no TLS.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Listens for nodes.
pub(crate) fn listen(layout: &Layout) -> Result<UnixListener> {
    let root = hostfs::beneath::Root::open(layout.run())?;
    let path = layout.pull_socket();
    let name = path.file_name().context("the socket has no name")?;
    let listener = root.bind_unix(name)?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .with_context(|| format!("cannot restrict {}", path.display()))?;
    listener.set_nonblocking(true)?;
    Ok(UnixListener::from_std(listener)?)
}

/// Serves nodes until `shutdown`.
pub(crate) async fn serve(layout: Layout, listener: UnixListener, shutdown: CancellationToken) -> Result<()> {
    let puller = Arc::new(Puller { layout, slots: Semaphore::new(PULLS), under_way: Mutex::default() });
    loop {
        let stream = tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            accepted = listener.accept() => accepted,
        };
        match stream {
            Ok((stream, _)) => {
                let (puller, shutdown) = (puller.clone(), shutdown.clone());
                tokio::spawn(shutdown.run_until_cancelled_owned(async move {
                    if let Err(err) = puller.answer(stream).await {
                        tracing::warn!(error = format!("{err:#}"), "a node's request for an image was not answered");
                    }
                }));
            }
            Err(error) => {
                tracing::warn!(%error, "a node's connection cannot be accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

struct Puller {
    layout: Layout,
    slots: Semaphore,
    /// One lock per image: the second node that asks for it finds it there.
    under_way: Mutex<HashMap<String, Arc<Mutex<()>>>>,
}

impl Puller {
    async fn answer(&self, mut stream: UnixStream) -> Result<()> {
        let peer = stream.peer_cred().context("cannot tell who asks")?.uid();
        if peer != 0 {
            bail!("user {peer} asks, who is not root");
        }
        let (read, mut write) = stream.split();
        let mut line = Vec::new();
        let mut reader = BufReader::new(read).take(LINE_MAX);
        tokio::time::timeout(REQUEST_LIMIT, reader.read_until(b'\n', &mut line)).await.context("no request came")??;
        let request: PullRequest = serde_json::from_slice(&line).context("the request cannot be read")?;
        let answer = match self.pull(&request).await {
            Ok(digest) => PullAnswer::Pulled { digest },
            Err(err) => PullAnswer::Failed { message: format!("{err:#}") },
        };
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        write.write_all(&line).await.context("the node has gone")
    }

    async fn pull(&self, request: &PullRequest) -> Result<String> {
        let name = &request.reference;
        let lock = self.under_way.lock().await.entry(name.clone()).or_default().clone();
        let pulled = {
            let _one_at_a_time = lock.lock().await;
            self.pull_once(request).await
        };
        drop(lock);
        let mut under_way = self.under_way.lock().await;
        if under_way.get(name).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            under_way.remove(name);
        }
        pulled
    }

    async fn pull_once(&self, request: &PullRequest) -> Result<String> {
        let name = &request.reference;
        if images::resolve(&self.layout.images(), name).is_ok() {
            return Ok(digest_of(&self.layout.images(), name));
        }
        let _slot = self.slots.acquire().await?;
        tracing::info!(image = name, "pulling");
        let given = Given { configurations: request.secrets.clone(), ..Given::default() };
        let pulling = pull(&self.layout, name, given, |_| {});
        let digest = tokio::time::timeout(PULL_LIMIT, pulling).await.context("it takes too long")??;
        tracing::info!(image = name, digest, "pulled");
        Ok(digest)
    }
}

fn digest_of(store: &Path, name: &str) -> String {
    let pinned = images::pinned(store, name).unwrap_or_default();
    pinned.rsplit_once('@').map(|(_, digest)| digest.to_owned()).unwrap_or_default()
}

/// Docker's configuration of this user, or the one that is given.
pub(crate) fn docker_configuration(given: Option<&Path>) -> Result<Option<Value>> {
    let read = |path: &Path| -> Result<Value> {
        let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no configuration of Docker's", path.display()))
    };
    if let Some(path) = given {
        return read(path).map(Some);
    }
    let of = |variable: &str, rest: &str| std::env::var_os(variable).map(|dir| PathBuf::from(dir).join(rest));
    let places = [of("DOCKER_CONFIG", "config.json"), of("HOME", ".docker/config.json")];
    places.into_iter().flatten().find(|path| path.is_file()).map(|path| read(&path)).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn loopback_needs_no_tls_and_others_do_unless_they_are_listed() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["quay.io", "localhost.example.com", "10.0.0.1:5000", "docker.io"] {
            assert!(!is_loopback(host), "{host}");
        }
        let registries: Registries = serde_json::from_value(json!({"insecure": ["lab:5000"]})).unwrap();
        let insecure = |host: &str| access(host, Given::default(), &registries).unwrap().insecure;
        assert!(insecure("lab:5000") && !insecure("lab:5001"));
    }

    #[test]
    fn the_credentials_of_the_pod_come_before_those_of_the_machine() {
        let registries: Registries =
            serde_json::from_value(json!({"auths": {"quay.io": {"username": "own", "password": "1"}}})).unwrap();
        let of = |configurations: Vec<Value>| {
            let given = Given { configurations, ..Given::default() };
            access("quay.io", given, &registries).unwrap().credentials.unwrap().0
        };
        assert_eq!(of(vec![]), "own");
        let other = json!({"auths": {"other.io": {"username": "x", "password": "1"}}});
        assert_eq!(of(vec![other.clone()]), "own");
        assert_eq!(of(vec![other, json!({"auths": {"quay.io": {"username": "pod", "password": "1"}}})]), "pod");
    }
    /// A registry that has one image: the paths of the protocol and what is there.
    fn registry(files: BTreeMap<String, Vec<u8>>) -> std::net::SocketAddr {
        use std::io::{BufRead as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = std::io::BufReader::new(&stream).lines();
                // TLS is tried first, and is no request.
                let Some(Ok(first)) = lines.next() else { continue };
                lines.map_while(Result::ok).find(String::is_empty);
                let file = first.split(' ').nth(1).and_then(|path| files.get(path));
                let (status, body) = file.map_or(("404 no", &[][..]), |file| ("200 ok", file.as_slice()));
                let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                let _ = stream.write_all(&[head.as_bytes(), body].concat());
            }
        });
        address
    }

    #[tokio::test]
    async fn a_node_gets_an_image_from_a_registry_and_a_reason_where_there_is_none() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root may ask");
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        std::fs::write(&file, "a disk").unwrap();
        let mut tree = oci_image::Tree::default();
        tree.insert("disk/image", oci_image::Entry::file(&file, 0o644)).unwrap();
        let layer = tree.write_layer(&dir.path().join("layers"), oci_image::Compression::Gzip).unwrap();
        let image = oci_image::Image::new("example.com/a:1", oci_image::Run::default(), vec![layer]).unwrap();
        let layout = dir.path().join("layout");
        image.write_layout(&layout).unwrap();
        let digest = image.digest().unwrap();
        let mut files = BTreeMap::new();
        for entry in std::fs::read_dir(layout.join("blobs/sha256")).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("sha256:{}", path.file_name().unwrap().to_str().unwrap());
            let version = if name == digest { "manifests/1".to_owned() } else { format!("blobs/{name}") };
            files.insert(format!("/v2/test/a/{version}"), std::fs::read(&path).unwrap());
        }
        let address = registry(files);

        let layout = Layout::new(dir.path().join("data"));
        std::fs::create_dir_all(layout.run()).unwrap();
        let stop = CancellationToken::new();
        let server = tokio::spawn(serve(layout.clone(), listen(&layout).unwrap(), stop.clone()));
        let ask = |reference: String| {
            let socket = layout.pull_socket();
            async move {
                let mut stream = UnixStream::connect(socket).await.unwrap();
                let line = serde_json::json!({"reference": reference, "secrets": []}).to_string();
                stream.write_all(format!("{line}\n").as_bytes()).await.unwrap();
                let mut answer = Vec::new();
                stream.read_to_end(&mut answer).await.unwrap();
                serde_json::from_slice::<Value>(&answer).unwrap()
            }
        };
        let name = format!("{address}/test/a:1");
        // Two nodes at once.
        let (one, other) = tokio::join!(ask(name.clone()), ask(name.clone()));
        assert_eq!(one, serde_json::json!({"pulled": {"digest": digest}}));
        assert_eq!(other, one);
        let root = images::resolve(&layout.images(), &name).unwrap().rootfs();
        assert_eq!(std::fs::read_to_string(root.join("disk/image")).unwrap(), "a disk");
        assert_eq!(images::pinned(&layout.images(), &name), Some(format!("{address}/test/a@{digest}")));
        let missing = ask(format!("{address}/test/b:1")).await["failed"]["message"].to_string();
        assert!(missing.contains("manifest unknown"), "{missing}");
        let nonsense = ask("../../etc".to_owned()).await["failed"]["message"].to_string();
        assert!(nonsense.contains("not the name of an image"), "{nonsense}");
        assert_eq!(std::fs::read_dir(layout.images()).unwrap().count(), 1, "nothing else is left");
        stop.cancel();
        server.await.unwrap().unwrap();
    }
}
