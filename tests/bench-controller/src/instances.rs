//! The instances: what a user would create, as admission leaves it, in any number; and what becomes of them.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Operation, Review, Shape, User, World};
use anyhow::{Context as _, Result, anyhow, bail};
use api::config::ClusterConfig;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Client, ResourceExt as _};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::cluster::{self, NAMESPACE};

/// How long a controller may be idle before it is given up.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn kind() -> ApiResource {
    cluster::resource("VirtualMachineInstance", "virtualmachineinstances")
}

/// An instance as admission would leave it.
pub(crate) fn defaulted() -> Result<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vmi-containerdisk.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let example = manifests::parse("vmi-containerdisk.yaml", &text)?.into_iter().next().context("no example")?.object;
    let user = User::default();
    let request =
        Review::of(Operation::Create, "v1", "virtualmachineinstances", &user, &example, Time(Timestamp::now()));
    let judged = admission::judge(&request, Shape::Kubernetes, &ClusterConfig::default(), &World::default());
    let mut object = judged.map_err(|refusal| anyhow!("the example is refused: {refusal}"))?.object;
    object["metadata"]["namespace"] = json!(NAMESPACE);
    object["status"]["phase"] = json!("Pending");
    Ok(object)
}

/// The instance of a number.
fn numbered(instance: &Value, prefix: &str, number: usize) -> Value {
    let mut object = instance.clone();
    object["metadata"]["name"] = json!(format!("{prefix}-{number}"));
    object
}

/// Creates instances, so many at a time, and tells when the last one was there.
pub(crate) async fn create(client: &Client, prefix: &str, count: usize, creators: usize) -> Result<Instant> {
    let (instance, kind) = (defaulted()?, kind());
    let created = stream::iter(0..count).map(|number| {
        let object = numbered(&instance, prefix, number);
        let kind = &kind;
        async move { cluster::create(client, kind, NAMESPACE, &object).await }
    });
    created.buffer_unordered(creators).try_collect::<Vec<()>>().await?;
    Ok(Instant::now())
}

/// Waits until all instances have reached a phase.
pub(crate) async fn reached(client: &Client, phase: &str, count: usize) -> Result<()> {
    let instances: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &kind());
    let (mut best, mut since) = (0, Instant::now());
    loop {
        // From the server's cache, so that asking costs little.
        let list = instances.list(&ListParams::default().match_any()).await?;
        let phases = list.items.iter().map(|object| object.data["status"]["phase"].as_str().unwrap_or_default());
        let done = phases.clone().filter(|reached| *reached == phase).count();
        if done >= count {
            return Ok(());
        }
        if done > best {
            (best, since) = (done, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            let phases: BTreeSet<&str> = phases.collect();
            bail!("{done} of {count} instances are {phase}, and there is no progress; phases are {phases:?}");
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Follows Pods, and knows when the last one appeared.
pub(crate) struct Pods {
    seen: Arc<Mutex<(HashSet<String>, Instant)>>,
    task: JoinHandle<()>,
}

impl Pods {
    pub(crate) fn follow(client: Client) -> Pods {
        let seen = Arc::new(Mutex::new((HashSet::new(), Instant::now())));
        let told = seen.clone();
        let task = tokio::spawn(async move {
            let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
            let mut events = watcher(pods, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event else { continue };
                let mut seen = told.lock();
                if seen.0.insert(pod.name_any()) {
                    seen.1 = Instant::now();
                }
            }
        });
        Pods { seen, task }
    }

    /// How many there were, and when the last one came.
    pub(crate) fn last(&self) -> (usize, Instant) {
        let seen = self.seen.lock();
        (seen.0.len(), seen.1)
    }
}

impl Drop for Pods {
    fn drop(&mut self) {
        self.task.abort();
    }
}
