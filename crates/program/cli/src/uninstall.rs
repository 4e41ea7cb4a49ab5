//! `uninstall`: the end of an installation on Kubernetes, with virt-operator or without.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use api::conditions;
use api::resources::{RESOURCES, Resource};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use install::owner::Owner;
use install::{Settings, names};
use k8s_openapi::Resource as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt as _};
use operate::Id;
use operate::by_hand::{self, Course, Waited};
use serde_json::{Value, json};
use terminal::Progress;
use virtctl::connect::ConnectArgs;

use super::errors::{gone_is_none, server_error};
use super::installation::programs;

/// How often the cluster is looked at.
const PERIOD: Duration = Duration::from_millis(500);

/// Remove Ferrovirt from a Kubernetes cluster
///
/// Deletes the KubeVirt object, waits until virt-operator has removed everything else, then removes virt-operator. If
/// virt-operator is down, this command removes everything itself.
///
/// It refuses while VirtualMachines or VirtualMachineInstances exist, and if the installation is another KubeVirt's. The
/// namespace stays if it has objects of others.
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
    /// Continue without virt-operator although it responds, if it makes no progress for --patience seconds. Guests on lost
    /// nodes must be off: their VMs are deleted without being stopped
    #[arg(long)]
    force: bool,
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
        force: args.force,
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
    /// Whether to continue without virt-operator if it makes no progress.
    pub force: bool,
}

impl Removal {
    /// Removes everything. VMs are protected unless asked otherwise.
    pub async fn run(&self, delete_virtual_machines: bool) -> anyhow::Result<()> {
        let mut progress = Progress::default();
        self.check_owner().await?;
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

    /// Refuses if another KubeVirt, or an installation in another namespace, would go.
    async fn check_owner(&self) -> anyhow::Result<()> {
        for id in self.all().iter().filter(|id| by_hand::tells_owner(id)) {
            let refusal =
                self.found(id).await?.and_then(|object| Owner::of(&object).refusal(&id.to_string(), &self.namespace));
            if let Some(why) = refusal {
                bail!(why);
            }
        }
        Ok(())
    }

    /// The metadata of an object, if it exists.
    async fn found(&self, id: &Id) -> anyhow::Result<Option<Value>> {
        let found = self.api(id)?.get_metadata_opt(&id.name).await;
        let found =
            found.map_err(|error| server_error(error, &self.server)).with_context(|| format!("cannot read {id}"))?;
        Ok(found.map(|found| plain(&found)))
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
        let found = found.map(|found| json!({"status": found.status}));
        Ok(by_hand::answers(found.as_ref()))
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

    /// Waits until the KubeVirt object is gone. Returns false if virt-operator is not going to remove it.
    async fn wait_for_operator(&self, progress: &mut Progress) -> anyhow::Result<bool> {
        let mut answered = Instant::now();
        let (mut before, mut since) = (String::new(), Instant::now());
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
            if waiting != before {
                (before, since) = (waiting.clone(), Instant::now());
            }
            let waited = Waited {
                without_operator: answered.elapsed(),
                without_progress: since.elapsed(),
                patience: self.patience,
                force: self.force,
                timed_out: Instant::now() > self.deadline,
            };
            match waited.course() {
                Course::Wait => tokio::time::sleep(PERIOD).await,
                Course::TakeOver(why) => {
                    progress.done(why);
                    return Ok(false);
                }
                Course::GiveUp => bail!(
                    "timed out. {waiting} To continue, run the command again with a longer --timeout. If a node is lost, or \
                     virt-controller does not start, and the guests concerned are off, run it again with --force"
                ),
            }
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
        let (namespaces, others): (Vec<&Id>, Vec<&Id>) = all.iter().partition(|id| id.kind == "Namespace");
        let unknown = self.marked(&all).await?;
        let others: Vec<&Id> = others.into_iter().chain(&unknown).collect();
        for id in &others {
            self.delete(id).await?;
        }
        if self.wait {
            self.wait_until_gone(&others, progress).await?;
        }
        for id in namespaces {
            let Some(namespace) = self.found(id).await? else { continue };
            match by_hand::keeps_namespace(&namespace, &self.inside().await?) {
                Some(why) => progress.done(format!("kept namespace {}: {why}", id.name)),
                None => {
                    self.delete(id).await?;
                    if self.wait {
                        self.wait_until_gone(&[id], progress).await?;
                    }
                }
            }
        }
        if self.wait {
            progress.done("removed Ferrovirt");
        }
        Ok(())
    }

    async fn wait_until_gone(&self, all: &[&Id], progress: &mut Progress) -> anyhow::Result<()> {
        for id in all {
            while let Some(left) = self.found(id).await? {
                if left["metadata"]["deletionTimestamp"].is_null() {
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
        Ok(())
    }

    fn all(&self) -> Vec<Id> {
        let settings = Settings { namespace: self.namespace.clone(), ..Settings::default() };
        operate::by_hand(&settings, &programs())
    }

    /// Cluster-scoped objects with our marker that this version does not know: an earlier or a later one created them.
    async fn marked(&self, known: &[Id]) -> anyhow::Result<Vec<Id>> {
        let selector = format!("{}={}", names::INSTALLATION_LABEL, self.namespace);
        let mut found = Vec::new();
        for kind in virt_operator::of_clusters() {
            let list = kind.api(&self.client, "").list_metadata(&ListParams::default().labels(&selector)).await;
            let list = gone_is_none(list).map_err(|error| server_error(error, &self.server));
            let objects =
                list.with_context(|| format!("cannot list {}", kind.plural))?.map_or(vec![], |list| list.items);
            found.extend(objects.iter().map(|object| Id {
                group: kind.group.to_owned(),
                kind: kind.kind.to_owned(),
                namespace: String::new(),
                name: object.name_any(),
            }));
        }
        found.retain(|id| !known.contains(id));
        Ok(found)
    }

    /// The objects in the namespace that may keep it, each with its kind.
    async fn inside(&self) -> anyhow::Result<Vec<(&'static str, Value)>> {
        let mut inside = Vec::new();
        for &(group, kind, plural) in by_hand::KEEPING {
            let resource = ApiResource {
                group: group.to_owned(),
                version: "v1".to_owned(),
                api_version: if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") },
                kind: kind.to_owned(),
                plural: plural.to_owned(),
            };
            let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
            let list = api.list_metadata(&ListParams::default()).await;
            let list = list.map_err(|error| server_error(error, &self.server));
            let list = list.with_context(|| format!("cannot list {plural} in namespace {}", self.namespace))?;
            inside.extend(list.items.iter().map(|object| (kind, plain(object))));
        }
        Ok(inside)
    }

    fn api(&self, id: &Id) -> anyhow::Result<Api<DynamicObject>> {
        let kind =
            virt_operator::of_kind(&id.group, &id.kind).with_context(|| format!("{id} is of an unknown kind"))?;
        Ok(kind.api(&self.client, &id.namespace))
    }

    /// Deletes an object if it is this installation's.
    async fn delete(&self, id: &Id) -> anyhow::Result<()> {
        let Some(found) = self.found(id).await? else { return Ok(()) };
        if !Owner::of(&found).is_in(&self.namespace) {
            return Ok(());
        }
        gone_is_fine(self.api(id)?.delete(&id.name, &DeleteParams::background()).await)
            .map_err(|error| server_error(error, &self.server))
            .with_context(|| format!("cannot delete {id}"))
    }

    /// Takes our finalizer from a definition. Whoever waits for the definition to go tries again after a conflict.
    async fn release(&self, id: &Id, left: &Value) -> anyhow::Result<()> {
        let Some(patch) = by_hand::release(Some(id), left) else { return Ok(()) };
        match self.api(id)?.patch(&id.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            patched => gone_is_fine(patched)
                .map_err(|error| server_error(error, &self.server))
                .with_context(|| format!("cannot release {id}")),
        }
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
        for object in &self.objects(resource).await? {
            let Some(patch) = by_hand::release(None, &plain(object)) else { continue };
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
    gone_is_none(result).map(drop)
}

/// As decisions read it.
fn plain(object: &PartialObjectMeta<DynamicObject>) -> Value {
    json!({"metadata": object.metadata})
}

/// What virt-operator says it waits for.
fn told(kubevirt: &KubeVirt) -> Option<String> {
    let conditions = &kubevirt.status.as_ref()?.conditions;
    let told = [conditions::SYNCHRONIZED, conditions::DEGRADED];
    let told = told.iter().find_map(|type_| conditions::find(conditions, type_))?;
    told.message.clone()
}
