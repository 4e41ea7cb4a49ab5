//! The two servers, and one client's memory of each.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::resources::RESOURCES;
use control_plane::{ControlPlane, Pki};
use http::Method;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::answer::Answer;
use super::script::Request;
use crate::cluster::{self, collection};

/// How long an answer may take; watches end by themselves.
const PATIENCE: Duration = Duration::from_secs(60);

/// kube-apiserver with our definitions, and with the controllers that the embedded server has inside.
pub(super) async fn kube() -> Result<ControlPlane> {
    let plane = ControlPlane::start(cluster::programs()?).await?.with_controller_manager()?;
    let client = plane.client()?;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    for definition in api::crds() {
        let code = send(&client, &Method::POST, definitions, &[], definition.to_string()).await?.code;
        ensure!(code == 201, "{} is refused with {code}", definition["metadata"]["name"]);
    }
    let deadline = Instant::now() + PATIENCE;
    for path in RESOURCES.iter().map(collection) {
        while send(&client, &Method::GET, &path, &[], String::new()).await?.code != 200 {
            ensure!(Instant::now() < deadline, "{path} is not served after {} s", PATIENCE.as_secs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(plane)
}

/// What the script needs of a server.
pub(super) trait Server {
    fn client(&self) -> Result<kube::Client>;

    /// Forgets all versions of objects but the last.
    async fn forget(&mut self) -> Result<()>;
}

impl Server for ControlPlane {
    fn client(&self) -> Result<kube::Client> {
        ControlPlane::client(self)
    }

    async fn forget(&mut self) -> Result<()> {
        self.forget_old_versions().await
    }
}

/// The embedded server, on loopback and in a directory of its own.
pub(super) struct Embedded {
    folder: tempfile::TempDir,
    pki: Pki,
    running: Running,
}

struct Running {
    server: embedded::Server,
    config: kube::Config,
    stop: CancellationToken,
    task: JoinHandle<Result<(), embedded::Error>>,
}

impl Embedded {
    pub(super) async fn start() -> Result<Embedded> {
        let folder = tempfile::tempdir().context("cannot make a directory")?;
        let pki = Pki::new(folder.path())?;
        let running = Running::start(folder.path(), &pki).await?;
        Ok(Embedded { folder, pki, running })
    }

    pub(super) async fn stop(mut self) {
        self.running.stop().await;
    }
}

impl Server for Embedded {
    fn client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.running.config.clone())?)
    }

    async fn forget(&mut self) -> Result<()> {
        self.running.stop().await;
        self.running = Running::start(self.folder.path(), &self.pki).await?;
        Ok(())
    }
}

impl Running {
    async fn start(folder: &Path, pki: &Pki) -> Result<Running> {
        let read = |path| std::fs::read_to_string(path).context("cannot read our own certificates");
        let admission = std::sync::Arc::<virt_api::Admission>::default();
        // There are no nodes of ours behind kube-apiserver either.
        admission.accept_unsupported();
        let server = embedded::Server::open(embedded::Config {
            store_path: folder.join("store.redb"),
            client_ca_pem: read(&pki.ca)?,
            cert_pem: read(&pki.server.public)?,
            key_pem: read(&pki.server.key)?,
            hooks: vec![admission],
        })
        .await?;
        server.bootstrap().await?;
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on loopback")?;
        let config = pki.client_config(listener.local_addr()?.port()).await?;
        let stop = CancellationToken::new();
        let (serving, stopping) = (server.clone(), stop.clone());
        let task = tokio::spawn(async move { serving.serve(listener, stopping).await });
        Ok(Running { server, config, stop, task })
    }

    async fn stop(&mut self) {
        self.stop.cancel();
        let _ = (&mut self.task).await;
        self.server.close().await;
    }
}

/// One client's memory of a server.
pub(super) struct Client<S> {
    pub(super) server: S,
    /// What was kept of answers.
    kept: BTreeMap<String, String>,
}

impl<S: Server> Client<S> {
    pub(super) fn new(server: S) -> Self {
        let many = vec![json!({"op": "test", "path": "/kind", "value": "ConfigMap"}).to_string(); 10_001];
        Client { server, kept: BTreeMap::from([("MANY".to_owned(), many.join(","))]) }
    }

    pub(super) async fn ask(&mut self, request: &Request) -> Result<Answer> {
        if request.verb == "FORGET" {
            self.server.forget().await?;
            return Ok(Answer::done());
        }
        let method: Method = request.verb.parse().with_context(|| format!("{} is no verb", request.verb))?;
        let (path, body) = (self.fill(&request.path), self.fill(&request.body));
        let answer = send(&self.server.client()?, &method, &path, &request.headers, body).await?;
        for (name, pointer) in &request.keep {
            // What is not there shows in the comparison of this answer.
            let value = answer.body.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            self.kept.insert(name.clone(), value.to_owned());
        }
        Ok(answer)
    }

    fn fill(&self, text: &str) -> String {
        // From the end of the alphabet: what begins like another name comes first.
        self.kept.iter().rev().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("${name}"), value))
    }
}

async fn send(
    client: &kube::Client,
    method: &Method,
    path: &str,
    headers: &[(String, String)],
    body: String,
) -> Result<Answer> {
    let mut request = http::Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name == "Content-Type") && *method != Method::GET {
        request = request.header("Content-Type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Body::from(body.into_bytes())).with_context(|| format!("cannot ask for {path}"))?;
    let exchange = async {
        let (head, body) = client.send(request).await.with_context(|| format!("no answer to {path}"))?.into_parts();
        let bytes = body.collect_bytes().await.with_context(|| format!("the answer to {path} breaks off"))?;
        anyhow::Ok(Answer::new(&head, &bytes))
    };
    tokio::time::timeout(PATIENCE, exchange).await.with_context(|| format!("{path} takes too long"))?
}
