//! What a scenario has at hand: a namespace of its own in a cluster, and words for what users do and see.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Operation, Review, Shape, User};
use anyhow::{Context, Result, bail, ensure};
use api::cdi::DataVolume;
use api::config::ClusterConfig;
use api::v1::{Condition, VirtualMachine, VirtualMachineInstance};
use control_plane::Fate;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::{Event, Namespace, PersistentVolumeClaim, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::Cluster;

/// The machine is slow and shared.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// A kind that lives in a namespace.
pub(crate) trait Object:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl<K> Object for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

pub(crate) struct Env {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) namespace: String,
}

impl Env {
    /// A new namespace.
    pub(crate) async fn new(cluster: Arc<Cluster>, namespace: &str) -> Result<Self> {
        let env = Self { cluster, namespace: namespace.to_owned() };
        let object: Namespace = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        let namespaces: Api<Namespace> = Api::all(env.admin());
        namespaces.create(&PostParams::default(), &object).await.context("cannot make a namespace")?;
        Ok(env)
    }

    pub(crate) fn admin(&self) -> Client {
        self.cluster.server.admin()
    }

    pub(crate) fn api<K: Object>(&self) -> Api<K> {
        Api::namespaced(self.admin(), &self.namespace)
    }

    /// Decides about Pods that do not run yet.
    pub(crate) fn decide(&self, fate: Fate) {
        self.cluster.decide(&self.namespace, fate);
    }

    /// Creates a virtual machine, as admission would leave it where the server has none.
    pub(crate) async fn create_vm(&self, vm: Value) -> Result<VirtualMachine> {
        let vm = if self.cluster.server.admits() { vm } else { self.admitted(vm)? };
        let vm: VirtualMachine = serde_json::from_value(vm)?;
        self.api().create(&PostParams::default(), &vm).await.context("the virtual machine is refused")
    }

    fn admitted(&self, mut vm: Value) -> Result<Value> {
        vm["metadata"]["namespace"] = json!(self.namespace);
        let (user, now) = (User { name: "kubernetes-admin".into(), ..User::default() }, Time(jiff::Timestamp::now()));
        let request = Review::of(Operation::Create, "v1", "virtualmachines", &user, &vm, now);
        let (config, world) = (ClusterConfig::default(), admission::World::default());
        let judged = admission::judge(&request, Shape::Kubernetes, &config, &world);
        let judged = judged.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
        ensure!(judged.causes.is_empty(), "the virtual machine is refused: {:?}", judged.causes);
        Ok(judged.object)
    }

    /// Asks for starts and stops as the API's subresources do.
    pub(crate) async fn request(&self, name: &str, requests: Value) -> Result<()> {
        self.record(name, json!({"stateChangeRequests": requests})).await
    }

    /// Asks for volumes as the API's subresources do.
    pub(crate) async fn request_volumes(&self, name: &str, requests: Value) -> Result<()> {
        self.record(name, json!({"volumeRequests": requests})).await
    }

    async fn record(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api::<VirtualMachine>().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn patch<K: Object>(&self, name: &str, patch: Value) -> Result<K> {
        let patched = self.api::<K>().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("cannot patch {} {name}", K::kind(&())))
    }

    pub(crate) async fn patch_status<K: Object>(&self, name: &str, patch: Value) -> Result<K> {
        let patched = self.api::<K>().patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.with_context(|| format!("cannot patch the status of {} {name}", K::kind(&())))
    }

    pub(crate) async fn delete<K: Object>(&self, name: &str, params: &DeleteParams) -> Result<()> {
        let deleted = self.api::<K>().delete(name, params).await;
        deleted.map(drop).with_context(|| format!("cannot delete {} {name}", K::kind(&())))
    }

    /// Polls an object until it is as wanted. Fails with its last state after a generous time.
    pub(crate) async fn wait<K: Object>(&self, name: &str, what: &str, wanted: impl Fn(&K) -> bool) -> Result<K> {
        let (api, deadline) = (self.api::<K>(), Instant::now() + PATIENCE);
        loop {
            let last = api.get_opt(name).await?;
            if let Some(object) = last.as_ref().filter(|object| wanted(object)) {
                return Ok(object.clone());
            }
            if Instant::now() > deadline {
                let last = serde_json::to_string_pretty(&last)?;
                bail!("{} {name}: {what}: not so after {PATIENCE:?}:\n{last}", K::kind(&()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) async fn wait_vmi(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&VirtualMachineInstance) -> bool,
    ) -> Result<VirtualMachineInstance> {
        self.wait(name, what, wanted).await
    }

    /// Waits until the virtual machine shows this word.
    pub(crate) async fn wait_printable(&self, name: &str, word: &str) -> Result<VirtualMachine> {
        self.wait(name, word, |vm: &VirtualMachine| {
            let shown = vm.status.as_ref().and_then(|status| status.printable_status.as_ref());
            shown.is_some_and(|shown| shown.as_str() == word)
        })
        .await
    }

    /// Waits until the virtual machine is ready, which is the last that a start writes.
    pub(crate) async fn wait_ready(&self, name: &str) -> Result<VirtualMachine> {
        self.wait(name, "ready", |vm: &VirtualMachine| vm.status.as_ref().is_some_and(|s| s.ready == Some(true))).await
    }

    /// Waits until the virtual machine shows a condition with these words in its message.
    pub(crate) async fn wait_shown(&self, name: &str, wanted: &Shown) -> Result<VirtualMachine> {
        let what = format!("shows {wanted:?}");
        self.wait(name, &what, |vm: &VirtualMachine| vm.condition(wanted.type_).is_some_and(|c| wanted.is(c))).await
    }

    /// Waits until the instance shows a condition with these words in its message.
    pub(crate) async fn wait_instance_shown(&self, name: &str, wanted: &Shown) -> Result<VirtualMachineInstance> {
        let what = format!("shows {wanted:?}");
        self.wait_vmi(name, &what, |vmi| vmi.condition(wanted.type_).is_some_and(|c| wanted.is(c))).await
    }

    pub(crate) async fn wait_gone<K: Object>(&self, name: &str) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while let Some(object) = self.api::<K>().get_opt(name).await? {
            if Instant::now() > deadline {
                bail!("{} {name} stays:\n{}", K::kind(&()), serde_json::to_string_pretty(&object)?);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Polls until nothing of the kind is left in the namespace.
    pub(crate) async fn wait_none<K: Object>(&self) -> Result<()> {
        self.wait_count::<K>(0).await
    }

    /// Polls until there are so many of the kind in the namespace.
    pub(crate) async fn wait_count<K: Object>(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.api::<K>().list(&ListParams::default()).await?.items;
            if found.len() == count {
                return Ok(());
            }
            if Instant::now() > deadline {
                let kind = K::kind(&());
                bail!("{} of {kind} instead of {count}:\n{}", found.len(), serde_json::to_string_pretty(&found)?);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Deletes the virtual machine and makes sure that nothing of it is left.
    pub(crate) async fn delete_vm(&self, name: &str) -> Result<()> {
        self.delete::<VirtualMachine>(name, &DeleteParams::default()).await?;
        self.nothing_is_left().await
    }

    pub(crate) async fn nothing_is_left(&self) -> Result<()> {
        self.wait_none::<VirtualMachine>().await?;
        self.wait_none::<VirtualMachineInstance>().await?;
        self.wait_none::<Pod>().await?;
        self.wait_none::<ControllerRevision>().await?;
        self.wait_none::<DataVolume>().await?;
        self.wait_none::<PersistentVolumeClaim>().await
    }

    /// Waits for an event about an object of this kind.
    pub(crate) async fn wait_event(&self, kind: &str, reason: &str) -> Result<()> {
        let told = |e: &Event| e.reason.as_deref() == Some(reason) && e.involved_object.kind.as_deref() == Some(kind);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let events = self.api::<Event>().list(&ListParams::default()).await?.items;
            if events.iter().any(told) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "no event {reason} about a {kind}");
            tokio::time::sleep(POLL).await;
        }
    }
}

/// A condition to look for.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) type_: &'static str,
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    /// Words of the message.
    pub(crate) says: &'static str,
}

impl Shown {
    fn is(&self, condition: &Condition) -> bool {
        let status = serde_json::to_value(&condition.status).unwrap_or_default();
        status == self.status && condition.reason() == self.reason && condition.message().contains(self.says)
    }
}

/// A small machine; `more` is merged into it.
pub(crate) fn vm(name: &str, strategy: &str, more: Value) -> Value {
    let mut vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": strategy,
            "template": {"spec": {
                "domain": {
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                    "resources": {"requests": {"memory": "64Mi"}},
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
                "terminationGracePeriodSeconds": 1,
            }},
        },
    });
    machinery::patch::merge(&mut vm, &more);
    vm
}
