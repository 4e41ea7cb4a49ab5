//! The two servers, and one client's memory of each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use api::resources::RESOURCES;
use control_plane::ControlPlane;
use http::Method;
use kube::client::Body;
use serde_json::{Value, json};
use test_server::TestServer;
use test_support::pki::MASTERS;

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

/// The embedded server.
pub(super) struct Embedded {
    /// None only while another one is started on its store.
    running: Option<TestServer>,
    config: kube::Config,
}

impl Embedded {
    pub(super) async fn start() -> Result<Embedded> {
        Ok(Self::around(TestServer::start(vec![hook()], &[]).await).await)
    }

    async fn around(server: TestServer) -> Embedded {
        let admin = server.authority.issue("kubernetes-admin", &[MASTERS]);
        let mut config = server.authority.client_config(&server.url(), Some(&admin)).await;
        config.default_retry = false; // a test wants to see every answer
        Embedded { running: Some(server), config }
    }

    pub(super) async fn stop(self) {
        if let Some(server) = self.running {
            server.stop().await;
        }
    }
}

fn hook() -> Arc<virt_api::Admission> {
    let admission = Arc::<virt_api::Admission>::default();
    // There are no nodes of ours behind kube-apiserver either.
    admission.accept_unsupported();
    admission
}

impl Server for Embedded {
    fn client(&self) -> Result<kube::Client> {
        Ok(kube::Client::try_from(self.config.clone())?)
    }

    async fn forget(&mut self) -> Result<()> {
        let (dir, authority) = self.running.take().context("the server did not come back")?.stop().await;
        *self = Self::around(TestServer::start_at(dir, authority, 0, vec![hook()], &[]).await).await;
        Ok(())
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
