//! One cluster to measure on.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use control_plane::{ControlPlane, FakeNodes, NodeShape};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

/// The namespace of all instances.
pub(crate) const NAMESPACE: &str = "default";

const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Cluster {
    // In this order they go.
    _nodes: Option<FakeNodes>,
    pub(crate) client: Client,
    pub(crate) plane: ControlPlane,
}

impl Cluster {
    /// Starts it with all that a controller needs to find. Without nodes there is no scheduler either.
    pub(crate) async fn start(programs: &Path, nodes: usize) -> Result<Cluster> {
        let plane = ControlPlane::start_audited(programs).await?;
        let plane = if nodes > 0 { plane.with_scheduler()? } else { plane };
        let client = plane.client()?;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        let defined = stream::iter(api::crds()).map(async |definition| {
            let definition = serde_json::from_value(definition).context("a definition cannot be read")?;
            let made = definitions.create(&PostParams::default(), &definition).await?;
            anyhow::Ok(made.name_any())
        });
        let names: Vec<String> = defined.buffer_unordered(4).try_collect().await?;
        for name in names {
            served(&definitions, &name).await?;
        }
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "kubevirt"}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        create(&client, &resource("KubeVirt", "kubevirts"), "kubevirt", &kubevirt()).await?;
        let nodes = match nodes {
            0 => None,
            nodes => Some(FakeNodes::start(client.clone(), nodes, &NodeShape::default()).await?),
        };
        Ok(Cluster { _nodes: nodes, client, plane })
    }
}

/// The configuration that both controllers work under.
fn kubevirt() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {}},
    })
}

pub(crate) fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: "kubevirt.io".into(),
        version: "v1".into(),
        api_version: "kubevirt.io/v1".into(),
        kind: kind.into(),
        plural: plural.into(),
    }
}

pub(crate) async fn create(client: &Client, kind: &ApiResource, namespace: &str, object: &Value) -> Result<()> {
    let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, kind);
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match objects.create(&PostParams::default(), &object).await {
            // A kind may take a moment to be served after it is established.
            Err(kube::Error::Api(status)) if status.code == 404 && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            result => return result.map(drop).with_context(|| format!("cannot create {}", object.name_any())),
        }
    }
}

async fn served(definitions: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let conditions = definitions.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{name} is not established after {} s", PATIENCE.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
