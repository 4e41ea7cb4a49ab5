//! Migrating guests and canceling their evacuation.

use api::config::ClusterConfig;
use api::v1::{KubeVirt, VirtualMachineInstance, VirtualMachineInstanceMigration};
use axum::body::Bytes;
use axum::extract::{Path, State};
use http::StatusCode;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use subresources::Refusal;
use subresources::options::{self, EvacuateCancelOptions, MigrateOptions, is_dry_run};

use super::{Answer, Server, Shared, Target};

pub(super) async fn migrate(State(server): Shared, Path((namespace, name)): Target, body: Bytes) -> Answer {
    let options: MigrateOptions = options::parse(&body)?;
    server.vm(&namespace, &name).await?;
    let vmi = server.vmi(&namespace, &name).await?;
    let migration = subresources::migrate(&name, &vmi, &options)?;
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(server.client.clone(), &namespace);
    let params = PostParams { dry_run: is_dry_run(&options.dry_run)?, ..PostParams::default() };
    // A rejection by admission is code 500 too, as in KubeVirt; clients show the message.
    migrations.create(&params, &migration).await.map_err(|error| Refusal::internal(words(error)))?;
    Ok(StatusCode::ACCEPTED)
}

pub(super) async fn cancel_vm_evacuation(
    State(server): Shared,
    Path((namespace, name)): Target,
    body: Bytes,
) -> Answer {
    let vm = server.vm(&namespace, &name).await?;
    let vmi = server.find_vmi(&namespace, &name).await?;
    subresources::instance_of(&vm, vmi.as_ref())?;
    let vmi = server.vmi(&namespace, &name).await?;
    server.cancel_evacuation(&namespace, &name, &vmi, &body).await
}

pub(super) async fn cancel_vmi_evacuation(
    State(server): Shared,
    Path((namespace, name)): Target,
    body: Bytes,
) -> Answer {
    let vmi = server.vmi(&namespace, &name).await?;
    server.cancel_evacuation(&namespace, &name, &vmi, &body).await
}

impl Server {
    async fn cancel_evacuation(
        &self,
        namespace: &str,
        name: &str,
        vmi: &VirtualMachineInstance,
        body: &[u8],
    ) -> Answer {
        let options: Option<EvacuateCancelOptions> = options::parse_present(body)?;
        let config = self.configuration().await?;
        let node = match subresources::evacuated_node(vmi) {
            Some(node) => Api::<Node>::all(self.client.clone()).get_opt(node).await.map_err(|error| {
                tracing::warn!(node, %error, "failed to read the node of an evacuation");
                Refusal::internal(format!("unable to retrieve node [{node}]"))
            })?,
            None => None,
        };
        let Some(patch) = subresources::cancel_evacuation(vmi, node.as_ref(), &config, options.as_ref())? else {
            return Ok(StatusCode::OK);
        };
        let dry_run = is_dry_run(options.map(|options| options.dry_run).unwrap_or_default().as_slice())?;
        let params = PatchParams { dry_run, ..PatchParams::default() };
        let written = self.vmis(namespace).patch(name, &params, &Patch::Json::<()>(patch)).await;
        written.map_err(|error| Refusal::internal(words(error)))?;
        Ok(StatusCode::OK)
    }

    /// The cluster configuration; the defaults if there is no KubeVirt object.
    pub(super) async fn configuration(&self) -> Result<ClusterConfig, Refusal> {
        let kubevirts: Api<KubeVirt> = Api::namespaced(self.client.clone(), &self.namespace);
        let found = kubevirts.list(&ListParams::default()).await.map_err(|error| {
            tracing::warn!(%error, "failed to read the configuration");
            Refusal::internal("unable to retrieve the KubeVirt object")
        })?;
        ClusterConfig::default()
            .effective(found.items, None)
            .map_err(|error| Refusal::internal(format!("the KubeVirt object's configuration cannot be used: {error}")))
    }
}

/// The API server's message, if there is one.
fn words(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message,
        other => {
            tracing::warn!(error = %other, "failed to send a write");
            "unable to write the object".to_owned()
        }
    }
}
