//! A control plane with nodes that pretend, what an administrator applies, and virt-operator in this process.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use control_plane::installed::{Answer, ask, wait};
use control_plane::{ControlPlane, FakeNodes, NodeShape};
use ferrovirt_cli::installation::programs;
use http::Method;
use informer::client::RequestCounter;
use informer::leader::LeaseTimes;
use install::{Settings, names};
use kube::Client;
use operate::{Id, Operator};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use virt_operator::{Config, Error};

pub(crate) struct Installation {
    pub(crate) plane: ControlPlane,
    /// An administrator's.
    pub(crate) client: Client,
    pub(crate) nodes: FakeNodes,
    pub(crate) health: SocketAddr,
    shutdown: CancellationToken,
    running: tokio::sync::Mutex<Option<JoinHandle<Result<(), Error>>>>,
}

/// Where the KubeVirt object is.
pub(crate) const KUBEVIRT: &str = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt";

pub(crate) fn settings() -> Settings {
    Settings::default()
}

impl Installation {
    pub(crate) async fn start(folder: &Path) -> Result<Installation> {
        let plane = ControlPlane::start_audited(folder).await?.with_scheduler()?.with_controller_manager()?;
        let client = plane.client()?;
        let mut shape = NodeShape::default();
        shape.labels.insert("node-role.kubernetes.io/control-plane".to_owned(), String::new());
        shape.labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
        let nodes = FakeNodes::start(client.clone(), 3, &shape).await?;
        let listen = || TcpListener::bind("127.0.0.1:0");
        let (health, webhooks) = (listen().await.context("cannot listen")?, listen().await.context("cannot listen")?);
        let [at, port] = [&health, &webhooks].map(|it| it.local_addr());
        apply(&client, port.context("no port")?.port()).await?;

        // As the account that the installation gives its rights to.
        let account = names::user(names::account::OPERATOR, names::NAMESPACE);
        let own = plane.config_of(&account, "system:serviceaccounts").await?;
        let own = || Client::try_from(own.clone()).context("cannot make virt-operator's client");
        let base = settings();
        let config = Config {
            client: own()?,
            events: own()?,
            election: Some(own()?),
            lease_times: LeaseTimes::default(),
            identity: "test".to_owned(),
            operator: Operator::new(base.image_tag.clone(), base, "amd64".to_owned(), programs()),
            health,
            webhooks,
            requests: RequestCounter::default(),
        };
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(virt_operator::run(config, shutdown.clone()));
        let (health, running) = (at.context("no port")?, tokio::sync::Mutex::new(Some(running)));
        Ok(Installation { plane, client, nodes, health, shutdown, running })
    }

    /// Asks as an administrator.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
        ask(&self.client, method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.ask(Method::GET, path, None).await?;
        ensure!(answer.code == 200, "{path}: {answer:?}");
        Ok(answer.body)
    }

    pub(crate) async fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        let answer = self.ask(Method::PATCH, path, Some(patch)).await?;
        ensure!(answer.code == 200, "{path}: {answer:?}");
        Ok(answer.body)
    }

    /// Ends virt-operator, which gives its lease back.
    pub(crate) async fn stop(&self) -> Result<()> {
        self.shutdown.cancel();
        let Some(running) = self.running.lock().await.take() else { return Ok(()) };
        running.await.context("virt-operator panicked")?.context("virt-operator failed")
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// Where an object is served.
pub(crate) fn path(id: &Id) -> Result<String> {
    let kind = virt_operator::of_kind(&id.group, &id.kind).with_context(|| format!("{id}"))?;
    let resource = kind.resource();
    let root = if id.group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{}", resource.api_version) };
    let namespace = if id.namespace.is_empty() { String::new() } else { format!("/namespaces/{}", id.namespace) };
    Ok(format!("{root}{namespace}/{}/{}", resource.plural, id.name))
}

/// Applies what `ferrovirt install` prints, but for virt-operator's Pods: those are this process. Its Service leads
/// here, and virt-api's webhooks, which nobody answers for, are kept away: both by patches of the KubeVirt object.
async fn apply(client: &Client, webhook_port: u16) -> Result<()> {
    for manifest in install::with_operator(&settings(), &programs()) {
        let mut object = manifest.object;
        if object["kind"] == "KubeVirt" {
            object["spec"]["customizeComponents"] = json!({"patches": patches(webhook_port)});
        }
        let path = format!("{}?fieldManager=admin&force=true", path(&Id::of(&object))?);
        wait(&format!("{path} is taken"), async || {
            let answer = ask(client, Method::PATCH, &path, Some(&object)).await?;
            Ok(matches!(answer.code, 200 | 201).then_some(()).ok_or_else(|| format!("{answer:?}")))
        })
        .await?;
    }
    Ok(())
}

fn patches(port: u16) -> Vec<Value> {
    let patch = |kind: &str, name: &str, type_: &str, patch: Value| json!({"resourceType": kind, "resourceName": name, "type": type_, "patch": patch.to_string()});
    let elsewhere =
        json!({"spec": {"type": "ExternalName", "externalName": "localhost", "ports": null, "selector": null}});
    let ports: Vec<Value> = (0..3)
        .map(|index| json!({"op": "replace", "path": format!("/webhooks/{index}/clientConfig/service/port"), "value": port}))
        .collect();
    let none = json!({"webhooks": []});
    vec![
        patch("Service", names::service::OPERATOR_WEBHOOK, "merge", elsewhere),
        patch("ValidatingWebhookConfiguration", "virt-operator-validator", "json", json!(ports)),
        patch("ValidatingWebhookConfiguration", "virt-api-validator", "merge", none.clone()),
        patch("MutatingWebhookConfiguration", "virt-api-mutator", "merge", none),
    ]
}
