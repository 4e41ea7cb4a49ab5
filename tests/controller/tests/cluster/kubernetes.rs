//! kube-apiserver with our definitions, kube-scheduler and kube-controller-manager.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use control_plane::ControlPlane;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

/// How long the server may take to serve a kind once its definition is there.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Kubernetes {
    _plane: ControlPlane,
    pub(super) admin: Client,
}

impl Kubernetes {
    pub(crate) async fn start(programs: &Path) -> Result<Self> {
        let plane = ControlPlane::start(programs).await?.with_scheduler()?;
        let admin = plane.client()?;
        let definitions = api::crds().into_iter().chain([data_volumes()]);
        futures::future::try_join_all(definitions.map(|definition| define(&admin, definition))).await?;
        // After the definitions: the garbage collector looks for new kinds twice a minute, and what it does not know of it
        // deletes with its owner although it should be orphaned.
        Ok(Self { _plane: plane.with_controller_manager()?, admin })
    }
}

/// The least that makes a server take DataVolumes.
fn data_volumes() -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "datavolumes.cdi.kubevirt.io"},
        "spec": {
            "group": "cdi.kubevirt.io", "scope": "Namespaced",
            "names": {"kind": "DataVolume", "plural": "datavolumes", "singular": "datavolume"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}}],
        },
    })
}

/// Adds a definition and waits until its kind is served.
async fn define(client: &Client, definition: Value) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition: CustomResourceDefinition = serde_json::from_value(definition)?;
    let name = definition.metadata.name.clone().unwrap_or_default();
    definitions.create(&PostParams::default(), &definition).await.with_context(|| format!("{name} is refused"))?;
    let version = &definition.spec.versions.first().context("a definition has a version")?.name;
    let path = format!("/apis/{}/{version}/{}", definition.spec.group, definition.spec.names.plural);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let request = http::Request::get(&path).body(Vec::new())?;
        match client.request_text(request).await {
            Ok(_) => return Ok(()),
            Err(err) if Instant::now() > deadline => bail!("{name} is not served after {PATIENCE:?}: {err}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}
