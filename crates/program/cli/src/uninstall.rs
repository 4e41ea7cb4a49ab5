//! `uninstall`: the end of an installation on Kubernetes, with virt-operator or without.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use api::conditions;
use api::resources::{RESOURCES, Resource};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use install::{Settings, names};
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use operate::Id;
use serde_json::json;
use terminal::Progress;
use virtctl::connect::ConnectArgs;

use super::errors::server_error;
use super::installation::programs;

/// How often the cluster is looked at.
const PERIOD: Duration = Duration::from_millis(500);
/// Namespaces that are never deleted.
const KEPT: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Remove Ferrovirt from a Kubernetes cluster
///
/// Deletes the KubeVirt object, waits until virt-operator has removed everything else, then removes virt-operator. If
/// virt-operator is down, this command removes everything itself.
///
/// It refuses while VirtualMachines or VirtualMachineInstances exist.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Also delete all VirtualMachines and VirtualMachineInstances of the cluster
    #[arg(long)]
    delete_virtual_machines: bool,
    /// Wait until everything is removed
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    wait: bool,
    /// Seconds to wait before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Seconds to wait for virt-operator, and for virt-controller and virt-handler to stop VMs, before continuing without
    /// them
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience: u64,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let session = args.connect.connect().await?;
    let namespace = args.connect.namespace.clone().unwrap_or_else(|| names::NAMESPACE.to_owned());
    let removal = Removal {
        client: session.client,
        server: session.server,
        namespace,
        deadline: Instant::now() + Duration::from_secs(args.timeout),
        patience: Duration::from_secs(args.patience),
        wait: args.wait,
    };
    removal.run(args.delete_virtual_machines).await?;
    Ok(ExitCode::SUCCESS)
}

/// A removal in progress.
pub struct Removal {
    pub client: Client,
    /// Its address, for messages.
    pub server: String,
    /// The namespace of the installation.
    pub namespace: String,
    pub deadline: Instant,
    /// How long to wait for virt-operator, virt-controller and virt-handler before continuing without them.
    pub patience: Duration,
    pub wait: bool,
}

impl Removal {
    /// Removes everything. VMs are protected unless asked otherwise.
    pub async fn run(&self, delete_virtual_machines: bool) -> anyhow::Result<()> {
        let mut progress = Progress::default();
        self.protect(delete_virtual_machines).await?;
        let kubevirts = self.kubevirts().await?;
        let mut by_operator = !kubevirts.is_empty() && self.operator_answers().await?;
        for kubevirt in &kubevirts {
            by_operator &= self.delete_kubevirt(kubevirt, delete_virtual_machines, by_operator).await?;
        }
        if by_operator {
            progress.done("deleted the KubeVirt object; virt-operator removes the rest");
            if !self.wait {
                return Ok(());
            }
            by_operator = self.wait_for_operator(&mut progress).await?;
        }
        if !by_operator {
            self.without_operator(&mut progress).await?;
        }
        self.remove_rest(&mut progress).await
    }

    /// Refuses while there are VMs.
    async fn protect(&self, delete_virtual_machines: bool) -> anyhow::Result<()> {
        let mut found = Vec::new();
        for kind in [VirtualMachine::KIND, VirtualMachineInstance::KIND] {
            let resource = api::resources::of_kind(api::v1::GROUP, kind).context("an unknown kind")?;
            let objects = self.objects(resource).await?;
            if let Some(first) = objects.first() {
                let name = format!("{}/{}", first.namespace().unwrap_or_default(), first.name_any());
                found.push(format!("{} of kind {kind} (such as {name})", objects.len()));
            }
        }
        ensure!(
            found.is_empty() || delete_virtual_machines,
            "VMs still exist: {}; delete them, or pass --delete-virtual-machines",
            found.join(", ")
        );
        Ok(())
    }

    async fn kubevirts(&self) -> anyhow::Result<Vec<KubeVirt>> {
        let all = Api::<KubeVirt>::namespaced(self.client.clone(), &self.namespace).list(&ListParams::default()).await;
        match all {
            Ok(list) => Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(vec![]),
            Err(error) => Err(server_error(error, &self.server)).context("cannot list KubeVirt objects"),
        }
    }

    async fn operator_answers(&self) -> anyhow::Result<bool> {
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), &self.namespace);
        let found =
            deployments.get_opt(names::app::OPERATOR).await.map_err(|error| server_error(error, &self.server))?;
        let ready = found.and_then(|found| found.status).and_then(|status| status.ready_replicas);
        Ok(ready.unwrap_or(0) > 0)
    }

    /// Returns whether virt-operator is still expected to remove everything.
    async fn delete_kubevirt(&self, kubevirt: &KubeVirt, with_vms: bool, by_operator: bool) -> anyhow::Result<bool> {
        let objects: Api<KubeVirt> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = kubevirt.name_any();
        let mut by_operator = by_operator;
        if with_vms && by_operator && kubevirt.spec.uninstall_strategy.as_deref() != Some("RemoveWorkloads") {
            let patch = json!({"spec": {"uninstallStrategy": "RemoveWorkloads"}});
            match objects.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Ok(_) => {}
                // Its webhook does not respond, so virt-operator is down.
                Err(kube::Error::Api(status)) if status.code >= 500 => by_operator = false,
                Err(error) => {
                    return Err(server_error(error, &self.server)).context("cannot set the uninstall strategy");
                }
            }
        }
        match objects.delete(&name, &DeleteParams::default()).await {
            Ok(_) => Ok(by_operator),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(by_operator),
            Err(error) => {
                Err(server_error(error, &self.server)).with_context(|| format!("cannot delete KubeVirt {name}"))
            }
        }
    }

    /// Waits until the KubeVirt object is gone. Returns false if virt-operator stops answering.
    async fn wait_for_operator(&self, progress: &mut Progress) -> anyhow::Result<bool> {
        let mut answered = Instant::now();
        loop {
            let Some(kubevirt) = self.kubevirts().await?.pop() else {
                progress.done("virt-operator has removed its objects");
                return Ok(true);
            };
            let waiting = told(&kubevirt).unwrap_or_else(|| "virt-operator has not started yet".to_owned());
            progress.waiting(&waiting);
            if self.operator_answers().await? {
                answered = Instant::now();
            }
            if answered.elapsed() > self.patience {
                progress.done("virt-operator is not responding; continuing without it");
                return Ok(false);
            }
            self.pause(&waiting).await?;
        }
    }

    async fn pause(&self, waiting: &str) -> anyhow::Result<()> {
        if Instant::now() > self.deadline {
            bail!("timed out. {waiting} To continue, run the command again with a longer --timeout");
        }
        tokio::time::sleep(PERIOD).await;
        Ok(())
    }

    /// What virt-operator would do: stops VMs, with virt-controller and virt-handler if they run, and removes finalizers.
    async fn without_operator(&self, progress: &mut Progress) -> anyhow::Result<()> {
        let registrations = ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "APIService"];
        for id in self.all().iter().filter(|id| registrations.contains(&id.kind.as_str())) {
            self.delete(id).await?;
        }
        progress.done("removed webhooks and the aggregated API");
        for resource in RESOURCES.iter().filter(|resource| resource.kind != KubeVirt::KIND) {
            self.delete_objects(resource).await?;
        }
        let until = Instant::now() + self.patience;
        for resource in RESOURCES.iter().filter(|resource| resource.kind != KubeVirt::KIND) {
            while !self.objects(resource).await?.is_empty() {
                let waiting = format!("Waiting for {} to be deleted.", resource.plural);
                progress.waiting(&waiting);
                if Instant::now() > until {
                    self.let_go(resource).await?;
                }
                self.pause(&waiting).await?;
            }
        }
        progress.done("removed all VMs and other objects of Ferrovirt's kinds");
        let kubevirt = api::resources::of_kind(api::v1::GROUP, KubeVirt::KIND).context("an unknown kind")?;
        self.let_go(kubevirt).await?;
        self.unlabel_nodes().await
    }

    /// Everything that is still there, virt-operator included.
    async fn remove_rest(&self, progress: &mut Progress) -> anyhow::Result<()> {
        let all = self.all();
        for id in &all {
            self.delete(id).await?;
        }
        if !self.wait {
            return Ok(());
        }
        for id in &all {
            loop {
                let Some(left) = self
                    .api(id)?
                    .get_metadata_opt(&id.name)
                    .await
                    .map_err(|error| server_error(error, &self.server))?
                else {
                    break;
                };
                if left.metadata.deletion_timestamp.is_none() {
                    break; // somebody's own
                }
                if id.kind == "CustomResourceDefinition" {
                    self.release(id, &left).await?;
                }
                let waiting = format!("Waiting for {id} to be deleted.");
                progress.waiting(&waiting);
                self.pause(&waiting).await?;
            }
        }
        progress.done("removed Ferrovirt");
        Ok(())
    }

    fn all(&self) -> Vec<Id> {
        let settings = Settings { namespace: self.namespace.clone(), ..Settings::default() };
        let mut all = operate::by_hand(&settings, &programs());
        all.retain(|id| id.kind != "Namespace" || !KEPT.contains(&id.name.as_str()));
        all
    }

    fn api(&self, id: &Id) -> anyhow::Result<Api<DynamicObject>> {
        let kind =
            virt_operator::of_kind(&id.group, &id.kind).with_context(|| format!("{id} is of an unknown kind"))?;
        Ok(kind.api(&self.client, &id.namespace))
    }

    /// Deletes a managed object. A namespace without our label is not ours.
    async fn delete(&self, id: &Id) -> anyhow::Result<()> {
        let (api, failed) = (self.api(id)?, |error| server_error(error, &self.server));
        if id.kind == "Namespace" {
            let found = api.get_metadata_opt(&id.name).await.map_err(failed)?;
            let ours = Some(names::app::OPERATOR);
            let label = found.and_then(|found| found.labels().get(api::labels::MANAGED_BY).cloned());
            if label.as_deref() != ours {
                return Ok(());
            }
        }
        match api.delete(&id.name, &DeleteParams::background()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(failed(error)).with_context(|| format!("cannot delete {id}")),
        }
    }

    /// Takes our finalizer from a definition.
    async fn release(&self, id: &Id, left: &PartialObjectMeta<DynamicObject>) -> anyhow::Result<()> {
        let rest: Vec<&String> = left.finalizers().iter().filter(|one| *one != api::finalizers::OPERATOR).collect();
        if rest.len() == left.finalizers().len() {
            return Ok(());
        }
        let patch = json!({"metadata": {"resourceVersion": left.resource_version(), "finalizers": rest}});
        gone_is_fine(self.api(id)?.patch(&id.name, &PatchParams::default(), &Patch::Merge(patch)).await)
            .map_err(|error| server_error(error, &self.server))
            .with_context(|| format!("cannot release {id}"))
    }

    /// The objects of one of our kinds; none if it is not defined.
    async fn objects(&self, resource: &Resource) -> anyhow::Result<Vec<PartialObjectMeta<DynamicObject>>> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &served(resource));
        loop {
            match api.list_metadata(&ListParams::default()).await {
                Ok(list) => return Ok(list.items),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(vec![]),
                // A kind that was just defined, or is just going.
                Err(kube::Error::Api(status)) if matches!(status.code, 429 | 503) => {
                    self.pause(&format!("{} cannot be listed: {}.", resource.plural, status.message)).await?;
                }
                Err(error) => {
                    let error = server_error(error, &self.server);
                    return Err(error).with_context(|| format!("cannot list {}", resource.plural));
                }
            }
        }
    }

    fn of(&self, resource: &Resource, object: &PartialObjectMeta<DynamicObject>) -> Api<DynamicObject> {
        match object.namespace() {
            Some(namespace) => Api::namespaced_with(self.client.clone(), &namespace, &served(resource)),
            None => Api::all_with(self.client.clone(), &served(resource)),
        }
    }

    async fn delete_objects(&self, resource: &Resource) -> anyhow::Result<()> {
        for object in self.objects(resource).await? {
            let deleted = self.of(resource, &object).delete(&object.name_any(), &DeleteParams::background()).await;
            gone_is_fine(deleted.map(|_| ())).map_err(|error| server_error(error, &self.server))?;
        }
        Ok(())
    }

    /// Removes all finalizers from objects that are being deleted: their controllers are down.
    async fn let_go(&self, resource: &Resource) -> anyhow::Result<()> {
        for object in self.objects(resource).await?.iter().filter(|object| object.metadata.deletion_timestamp.is_some())
        {
            let patch = json!({"metadata": {"finalizers": null}});
            let api = self.of(resource, object);
            let patched = api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
            gone_is_fine(patched.map(|_| ())).map_err(|error| server_error(error, &self.server))?;
        }
        Ok(())
    }

    async fn unlabel_nodes(&self) -> anyhow::Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let list =
            nodes.list_metadata(&ListParams::default()).await.map_err(|error| server_error(error, &self.server))?;
        for node in list.items {
            let nulls = |keys: Vec<&String>| -> serde_json::Value {
                let ours = keys.into_iter().filter(|key| virt_operator::is_ours(key));
                ours.map(|key| (key.clone(), serde_json::Value::Null)).collect::<serde_json::Map<_, _>>().into()
            };
            let labels = nulls(node.labels().keys().collect());
            let annotations = nulls(node.annotations().keys().collect());
            let patch = json!({"metadata": {"labels": labels, "annotations": annotations}});
            if patch != json!({"metadata": {"labels": {}, "annotations": {}}}) {
                let patched = nodes.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
                gone_is_fine(patched.map(|_| ())).map_err(|error| server_error(error, &self.server))?;
            }
        }
        Ok(())
    }
}

fn served(resource: &Resource) -> ApiResource {
    ApiResource {
        group: resource.group.to_owned(),
        version: resource.storage_version().to_owned(),
        api_version: resource.api_version(),
        kind: resource.kind.to_owned(),
        plural: resource.plural.to_owned(),
    }
}

fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}

/// What virt-operator says it waits for.
fn told(kubevirt: &KubeVirt) -> Option<String> {
    let conditions = &kubevirt.status.as_ref()?.conditions;
    let told = [conditions::SYNCHRONIZED, conditions::DEGRADED];
    let told = told.iter().find_map(|type_| conditions::find(conditions, type_))?;
    told.message.clone()
}
