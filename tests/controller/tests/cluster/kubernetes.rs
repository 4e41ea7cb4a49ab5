//! kube-apiserver with our definitions, kube-scheduler and kube-controller-manager.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::config::DEFAULT_INSTALL_NAMESPACE;
use control_plane::ControlPlane;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};

/// How long the server may take to serve a kind once its definition is there.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Kubernetes {
    plane: ControlPlane,
    pub(super) admin: Client,
    /// The controllers' own identity.
    pub(super) controller: Config,
}

impl Kubernetes {
    pub(crate) async fn start(programs: &Path) -> Result<Self> {
        let plane = ControlPlane::start_audited(programs).await?.with_scheduler()?;
        let admin = plane.client()?;
        let definitions = api::crds().into_iter().chain(importer());
        futures::future::try_join_all(definitions.map(|definition| define(&admin, definition))).await?;
        install(&admin).await?;
        let account = virt_controller::program(virt_controller::ALL).user(DEFAULT_INSTALL_NAMESPACE);
        let controller = plane.config_of(&account, "system:serviceaccounts").await?;
        // After the definitions: the garbage collector looks for new kinds twice a minute, and what it does not know of it
        // deletes with its owner although it should be orphaned.
        Ok(Self { plane: plane.with_controller_manager()?, admin, controller })
    }

    /// What every client asked so far.
    pub(crate) fn audit_log(&self) -> PathBuf {
        self.plane.audit_log()
    }
}

/// The namespace of the system, and the roles that let the controllers work.
async fn install(admin: &Client) -> Result<()> {
    let params = PostParams::default();
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": DEFAULT_INSTALL_NAMESPACE}}))?;
    Api::<Namespace>::all(admin.clone()).create(&params, &namespace).await.context("cannot make the namespace")?;
    let program = virt_controller::program(virt_controller::ALL);
    let (role, binding) = (program.cluster_role(), program.cluster_binding(DEFAULT_INSTALL_NAMESPACE));
    Api::<ClusterRole>::all(admin.clone()).create(&params, &role).await.context("the cluster role is refused")?;
    Api::<ClusterRoleBinding>::all(admin.clone()).create(&params, &binding).await.context("its binding is refused")?;
    if let Some((role, binding)) = program.role(DEFAULT_INSTALL_NAMESPACE) {
        let roles: Api<Role> = Api::namespaced(admin.clone(), DEFAULT_INSTALL_NAMESPACE);
        roles.create(&params, &role).await.context("the role is refused")?;
        let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), DEFAULT_INSTALL_NAMESPACE);
        bindings.create(&params, &binding).await.context("its binding is refused")?;
    }
    Ok(())
}

/// The least that makes a server take the importer's kinds.
fn importer() -> [Value; 5] {
    [
        ("DataVolume", "datavolumes", "Namespaced"),
        ("DataSource", "datasources", "Namespaced"),
        ("StorageProfile", "storageprofiles", "Cluster"),
        ("CDI", "cdis", "Cluster"),
        ("CDIConfig", "cdiconfigs", "Cluster"),
    ]
    .map(|(kind, plural, scope)| {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let subresources = if kind == "DataVolume" { json!({"status": {}}) } else { json!({}) };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.cdi.kubevirt.io")},
            "spec": {
                "group": "cdi.kubevirt.io", "scope": scope,
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open},
                              "subresources": subresources}],
            },
        })
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
