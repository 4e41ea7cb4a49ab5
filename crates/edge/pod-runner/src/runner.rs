//! Observes Pods, calls [`decide`] and executes its actions.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use informer::{EventType, Informer, Key, Recorder, Requeue, Store, WorkQueue, run_workers};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, Secret};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use podstate::{Blocked, Observed, Obstacle, PodAction, PodView, Presence, ShimState, containers, decide};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, chain};
use crate::growth::Growth;
use crate::images;
use crate::network::PodNetwork;
use crate::node::{Capacity, NodeKeeper};
use crate::paths::{PodPaths, PodUid, pods_on_disk};
use crate::pulls::{self, Images, Pulls, Told};
use crate::resolve::{Claim, Dns, Inputs, NodeFacts, references};
use crate::sandbox::{Host, PodSandbox, StartFailure};
use crate::storage::Storage;
use crate::watch::ShimWatch;

const WORKERS: usize = 4;
const HEARTBEAT: Duration = Duration::from_secs(20);
/// Resync interval of a running Pod.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Pause after a failure to grow a volume of a running Pod.
const GROW_AGAIN: Duration = Duration::from_secs(1);
const BY_UID: &str = "uid";
const BY_CLAIM: &str = "claim";

/// Configuration of a node that runs Pods.
#[derive(Clone)]
pub struct RunnerConfig {
    pub client: Client,
    pub node_name: String,
    /// The node's own address; the runner works in its netns.
    pub node_address: Ipv4Addr,
    pub pods_dir: PathBuf,
    pub images_dir: PathBuf,
    pub network: PodNetwork,
    pub dns: Dns,
    pub capacity: Capacity,
    /// The program that is started as shim and that containers find as `virt-launcher`.
    pub exe: PathBuf,
    /// The volume engine of this node, which publishes below `pods_dir`; without it, Pods with claims wait.
    pub volumes: Option<volumes::Config>,
    /// Where somebody pulls images that are missing, see [`crate::pulls`]; without it they have to be imported.
    pub puller: Option<PathBuf>,
}

/// Runs the Pods of one node until `shutdown`; the Pods keep running.
pub async fn run(config: RunnerConfig, shutdown: CancellationToken) -> Result<(), Error> {
    let known = pods_on_disk(&config.pods_dir).map_err(Error::io("list", &config.pods_dir))?;
    std::fs::create_dir_all(&config.pods_dir).map_err(Error::io("make", &config.pods_dir))?;
    crate::addresses::Addresses::of(&config.pods_dir).reclaim(&known)?;

    let queue = WorkQueue::new("pods-of-node");
    let runner = Arc::new(Runner::new(&config, &queue, shutdown.clone())?);
    if let Some(storage) = runner.host.storage.clone() {
        let known: Vec<PodPaths> = known.iter().map(|uid| PodPaths::new(&config.pods_dir, uid)).collect();
        // At best: a pool that cannot be opened must not keep Pods from running that have no claims.
        if let Err(error) = spawn_blocking(move || storage.sweep(&known)).await? {
            tracing::error!(error = &error as &dyn std::error::Error, "failed to look after the storage pool");
        }
    }
    for uid in known {
        queue.add(uid);
    }
    runner.pods.subscribe({
        let queue = queue.clone();
        move |change| {
            let uid = change.object().metadata.uid.as_deref().and_then(|u| u.parse().ok());
            uid.into_iter().for_each(|uid: PodUid| queue.add(uid));
        }
    });
    runner.volumes.subscribe({
        let runner = runner.clone();
        let queue = queue.clone();
        move |change| {
            let claim = change.object().spec.as_ref().and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
            let claim = format!("{}/{}", claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
            for pod in runner.pods.by_index(BY_CLAIM, &claim) {
                let uid = pod.metadata.uid.as_deref().and_then(|u| u.parse().ok());
                uid.into_iter().for_each(|uid: PodUid| queue.add(uid));
            }
        }
    });
    let keeper = NodeKeeper {
        api: Api::all(config.client.clone()),
        name: config.node_name.clone(),
        address: config.node_address,
        pod_cidr: config.network.cidr.to_string(),
        capacity: config.capacity.clone(),
    };
    tokio::spawn(shutdown.clone().run_until_cancelled_owned(heartbeat(keeper)));
    // Without the list of Pods, those on disk would seem to have no object.
    let synced = async { runner.pods.synced().await && runner.volumes.synced().await };
    if shutdown.run_until_cancelled(synced).await != Some(true) {
        return Ok(());
    }
    run_workers(queue, WORKERS, shutdown, move |uid: PodUid| {
        let runner = runner.clone();
        async move { runner.reconcile(uid).await }
    })
    .await;
    Ok(())
}

async fn heartbeat(keeper: NodeKeeper) {
    loop {
        let pause = match keeper.keep().await {
            Ok(()) => HEARTBEAT,
            Err(error) => {
                tracing::warn!(
                    node = keeper.name,
                    error = &error as &dyn std::error::Error,
                    "failed to send the heartbeat"
                );
                Duration::from_secs(1)
            }
        };
        tokio::time::sleep(pause).await;
    }
}

struct Runner {
    client: Client,
    host: Arc<Host>,
    pods: Store<Pod>,
    volumes: Store<PersistentVolume>,
    growth: Growth,
    recorder: Recorder,
    shims: ShimWatch,
    obstacles: Mutex<HashMap<PodUid, Obstacle>>,
    pulls: Pulls,
    queue: WorkQueue<PodUid>,
    /// Pods whose mounts have been checked since this process started.
    adopted: Mutex<HashSet<PodUid>>,
}

/// The observed state of a Pod, gathered for one decision.
struct Seen {
    pod: Option<Arc<Pod>>,
    disk: Option<Observed>,
    blocked: Option<Obstacle>,
}

impl Runner {
    fn new(config: &RunnerConfig, queue: &WorkQueue<PodUid>, shutdown: CancellationToken) -> Result<Runner, Error> {
        let shims = ShimWatch::start(queue.clone(), shutdown.clone())?;
        let facts = NodeFacts {
            name: config.node_name.clone(),
            address: config.node_address,
            images_dir: config.images_dir.clone(),
            exe: config.exe.clone(),
            dns: config.dns.clone(),
            memory_bytes: u64::try_from(config.capacity.memory_bytes).unwrap_or(0),
        };
        let storage = config.volumes.clone().map(|volumes| Arc::new(Storage::new(volumes)));
        let host = Host { pods_dir: config.pods_dir.clone(), network: config.network.clone(), facts, storage };
        let pods = Informer::new()
            .fields(&format!("spec.nodeName={}", config.node_name))
            .index(BY_UID, |pod: &Pod| pod.metadata.uid.iter().cloned().collect())
            .index(BY_CLAIM, claims_of)
            .start(Api::all(config.client.clone()), shutdown.clone());
        let volumes = Informer::new().start(Api::all(config.client.clone()), shutdown.clone());
        let recorder = Recorder::start(config.client.clone(), "pod-runner", &config.node_name, shutdown);
        Ok(Runner {
            client: config.client.clone(),
            host: Arc::new(host),
            pods,
            volumes,
            growth: Growth::default(),
            recorder,
            shims,
            obstacles: Mutex::default(),
            pulls: Pulls::new(config.puller.clone()),
            queue: queue.clone(),
            adopted: Mutex::default(),
        })
    }

    async fn reconcile(&self, uid: PodUid) -> Result<Requeue, Error> {
        let sandbox = PodSandbox::new(&self.host.pods_dir, uid.clone()).with_storage(self.host.storage.clone());
        let seen = self.observe(&uid, &sandbox).await?;
        let view = PodView {
            pod: seen.pod.as_deref().map_or(Presence::Gone, Presence::Known),
            disk: seen.disk.as_ref(),
            blocked: seen.blocked.as_ref(),
            node_address: self.host.facts.address,
            now: Timestamp::now(),
        };
        let actions = decide(&view);
        tracing::debug!(%uid, ?actions);
        let alive = seen.disk.as_ref().is_some_and(|d| d.shim == ShimState::Alive);
        let mut next = match alive {
            true if self.grow(&uid, &sandbox).await => Requeue::After(LOOK_AGAIN),
            true => Requeue::After(GROW_AGAIN),
            false => Requeue::No,
        };
        for action in actions {
            if let Some(sooner) = self.execute(&uid, &sandbox, seen.pod.as_deref(), action).await? {
                next = Requeue::After(sooner);
            }
        }
        Ok(next)
    }

    async fn observe(&self, uid: &PodUid, sandbox: &PodSandbox) -> Result<Seen, Error> {
        let first_time = self.adopted.lock().insert(uid.clone());
        let observed = blocking(sandbox, move |s| {
            if first_time {
                s.adopt()?;
            }
            Ok((s.observe()?, s.shim()?))
        })
        .await;
        let (disk, shim) = observed.inspect_err(|_| {
            self.adopted.lock().remove(uid);
        })?;
        if disk.as_ref().is_some_and(|d| d.shim == ShimState::Alive) {
            self.shims.add(uid, sandbox.paths(), shim);
        }
        let pod = match self.pods.by_index(BY_UID, uid.as_str()).into_iter().next() {
            Some(pod) => Some(pod),
            None if disk.is_some() => self.ask_for(uid, sandbox).await?,
            None => None,
        };
        if pod.is_none() {
            self.obstacles.lock().remove(uid);
            self.adopted.lock().remove(uid);
            self.growth.forget(uid);
            self.pulls.forget(uid);
        }
        let mut blocked = self.obstacles.lock().get(uid).cloned();
        if let Some(obstacle) = blocked.as_mut().filter(|obstacle| obstacle.is_pull()) {
            let spec = pod.as_ref().and_then(|pod| pod.spec.as_ref());
            obstacle.mended = spec.is_some_and(|spec| has_images(spec, &self.host.facts.images_dir));
        }
        Ok(Seen { pod, disk, blocked })
    }

    /// The Pod is not in the cache. Confirms that with a live read before anything is killed.
    async fn ask_for(&self, uid: &PodUid, sandbox: &PodSandbox) -> Result<Option<Arc<Pod>>, Error> {
        let Some(recorded) = blocking(sandbox, PodSandbox::recorded).await? else { return Ok(None) };
        let (namespace, name) =
            (recorded.metadata.namespace.unwrap_or_default(), recorded.metadata.name.unwrap_or_default());
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let found = api.get_opt(&name).await.map_err(api_error("read Pod", &namespace, &name))?;
        Ok(found.filter(|pod| pod.metadata.uid.as_deref() == Some(uid.as_str())).map(Arc::new))
    }

    /// Executes one action; returns when to look again, if known.
    async fn execute(
        &self,
        uid: &PodUid,
        sandbox: &PodSandbox,
        pod: Option<&Pod>,
        action: PodAction,
    ) -> Result<Option<Duration>, Error> {
        const AT_ONCE: Option<Duration> = Some(Duration::ZERO);
        match (action, pod) {
            (PodAction::Start, Some(pod)) => {
                let pulling = !self.start(uid, sandbox, pod).await?;
                // The end of the pull brings the Pod back.
                Ok(if pulling { None } else { AT_ONCE })
            }
            (PodAction::Stop { because }, _) => {
                tracing::info!(%uid, because, "stopping the Pod");
                self.tell_each(pod, "Killing", "Stopping container");
                blocking(sandbox, PodSandbox::stop).await?;
                Ok(AT_ONCE)
            }
            (PodAction::Kill { because }, _) => {
                tracing::info!(%uid, because, "killing the Pod");
                blocking(sandbox, PodSandbox::kill).await?;
                Ok(None)
            }
            (PodAction::Release, _) => {
                blocking(sandbox, PodSandbox::release).await?;
                Ok(AT_ONCE)
            }
            (PodAction::Purge, _) => {
                blocking(sandbox, PodSandbox::purge).await?;
                tracing::info!(%uid, "the Pod is gone");
                Ok(AT_ONCE)
            }
            (PodAction::ReportStatus(status), Some(pod)) => {
                let mut pod = pod.clone();
                pod.status = Some(*status);
                self.write_status(&pod).await?;
                Ok(None)
            }
            (PodAction::Delete, Some(pod)) => {
                self.delete(pod).await?;
                Ok(AT_ONCE)
            }
            (PodAction::Wake(after), _) => Ok(Some(after)),
            (PodAction::Start | PodAction::ReportStatus(_) | PodAction::Delete, None) => Ok(None),
        }
    }

    /// Starts the Pod, or records why it cannot be started. Returns `false` while its images are being pulled.
    async fn start(&self, uid: &PodUid, sandbox: &PodSandbox, pod: &Pod) -> Result<bool, Error> {
        let spec = pod.spec.clone().unwrap_or_default();
        match self.pulls.look(uid, &spec, &self.host.facts.images_dir) {
            Images::Ready => {}
            Images::Coming => return Ok(false),
            Images::Failed(blocked) => {
                // The event was sent with the failure.
                self.meet(uid, blocked);
                return Ok(true);
            }
            Images::Missing(references) => {
                self.pull(uid, pod, references).await?;
                return Ok(false);
            }
        }
        let inputs = self.inputs(pod).await?;
        let started = {
            let (sandbox, host, pod) = (sandbox.clone(), self.host.clone(), pod.clone());
            spawn_blocking(move || sandbox.start(&host, &pod, &inputs)).await?
        };
        let blocked = match started {
            Ok(()) => {
                self.obstacles.lock().remove(uid);
                tracing::info!(%uid, "the Pod runs");
                self.tell_each(Some(pod), "Started", "Started container");
                return Ok(true);
            }
            Err(StartFailure::Blocked(blocked)) => blocked,
            Err(StartFailure::Error(error)) => {
                tracing::warn!(%uid, error = &error as &dyn std::error::Error, "the Pod did not start");
                Blocked { reason: "FailedCreatePodSandBox", message: chain(&error) }
            }
        };
        let (is_new, obstacle) = self.meet(uid, blocked);
        if is_new {
            let message = obstacle.blocked.message.clone();
            self.recorder.publish(pod.object_ref(&()), EventType::Warning, obstacle.event(), message);
        }
        Ok(true)
    }

    /// Records an obstacle; says whether it is another one than before.
    fn meet(&self, uid: &PodUid, blocked: Blocked) -> (bool, Obstacle) {
        let mut obstacles = self.obstacles.lock();
        let before = obstacles.get(uid);
        let is_new = before.is_none_or(|before| before.blocked != blocked);
        let again = before.filter(|before| before.blocked.reason == blocked.reason);
        let attempts = again.map_or(1, |before| before.attempts.saturating_add(1));
        let obstacle = Obstacle { blocked, attempts, met_at: Timestamp::now(), mended: false };
        obstacles.insert(uid.clone(), obstacle.clone());
        (is_new, obstacle)
    }

    async fn pull(&self, uid: &PodUid, pod: &Pod, references: Vec<String>) -> Result<(), Error> {
        let (namespace, _) = names(pod);
        let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let mut secrets = Vec::new();
        for name in pulls::secret_names(pod) {
            // One that is missing is none, as with the kubelet.
            let secret = api.get_opt(&name).await.map_err(api_error("read Secret", namespace, &name))?;
            secrets.extend(secret.as_ref().and_then(pulls::configuration));
        }
        let (recorder, object) = (self.recorder.clone(), pod.object_ref(&()));
        let tell = move |told, message: String| {
            let (kind, reason) = match told {
                Told::Pulling => (EventType::Normal, "Pulling"),
                Told::Pulled => (EventType::Normal, "Pulled"),
                Told::Failed => (EventType::Warning, "Failed"),
            };
            recorder.publish(object.clone(), kind, reason, message);
        };
        let (queue, again) = (self.queue.clone(), uid.clone());
        self.pulls.start(uid, references, secrets, tell, move || queue.add(again));
        Ok(())
    }

    /// Shows a running Pod the size of volumes that have grown. Returns whether nothing is left to do.
    async fn grow(&self, uid: &PodUid, sandbox: &PodSandbox) -> bool {
        match self.try_grow(uid, sandbox).await {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%uid, error = &error as &dyn std::error::Error, "failed to grow a volume; trying again");
                false
            }
        }
    }

    async fn try_grow(&self, uid: &PodUid, sandbox: &PodSandbox) -> Result<(), Error> {
        let Some(storage) = &self.host.storage else { return Ok(()) };
        for (name, volume) in blocking(sandbox, PodSandbox::volumes).await? {
            let object = self.volumes.get(&Key::new("", name.clone())).filter(|_| volume.block);
            let Some(capacity) = object.and_then(|object| self.growth.news(uid, &object)) else { continue };
            let storage = storage.clone();
            let grown = spawn_blocking(move || storage.grow(&volume)).await??;
            if grown >= capacity {
                self.growth.saw(uid, &name, capacity);
            }
        }
        Ok(())
    }

    /// Reads the objects that the Pod refers to.
    async fn inputs(&self, pod: &Pod) -> Result<Inputs, Error> {
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let needed = pod.spec.as_ref().map(references).unwrap_or_default();
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &namespace);
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &namespace);
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let mut inputs = Inputs::default();
        for name in needed.config_maps {
            let found = config_maps.get_opt(&name).await.map_err(api_error("read ConfigMap", &namespace, &name))?;
            inputs.config_maps.insert(name, found);
        }
        for name in needed.secrets {
            let found = secrets.get_opt(&name).await.map_err(api_error("read Secret", &namespace, &name))?;
            inputs.secrets.insert(name, found);
        }
        for name in needed.claims {
            let claim =
                claims.get_opt(&name).await.map_err(api_error("read PersistentVolumeClaim", &namespace, &name))?;
            let bound = claim.as_ref().and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
            let volume = match bound.filter(|bound| !bound.is_empty()) {
                Some(bound) => volumes.get_opt(&bound).await.map_err(api_error("read PersistentVolume", "", &bound))?,
                None => None,
            };
            inputs.claims.insert(name, Claim { claim, volume });
        }
        Ok(inputs)
    }

    /// The object carries the resource version it was decided on: if there is a newer one, this is a conflict and the
    /// Pod is reconciled again.
    async fn write_status(&self, pod: &Pod) -> Result<(), Error> {
        let (namespace, name) = names(pod);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        match api.replace_status(name, &PostParams::default(), pod).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()), // the watch will report it
            Err(err) => Err(api_error("report on Pod", namespace, name)(err)),
        }
    }

    async fn delete(&self, pod: &Pod) -> Result<(), Error> {
        let (namespace, name) = names(pod);
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let uid = pod.metadata.uid.clone();
        let only_this =
            DeleteParams::default().grace_period(0).preconditions(Preconditions { uid, resource_version: None });
        match api.delete(name, &only_this).await {
            Ok(_) => Ok(()),
            // Gone, or replaced by another Pod of the same name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(err) => Err(api_error("delete Pod", namespace, name)(err)),
        }
    }

    fn tell_each(&self, pod: Option<&Pod>, reason: &str, what: &str) {
        let Some(pod) = pod else { return };
        for container in pod.spec.iter().flat_map(containers) {
            let message = format!("{what} {}", container.name);
            self.recorder.publish(pod.object_ref(&()), EventType::Normal, reason, message);
        }
    }
}

/// The claims of a Pod, with their namespace.
fn claims_of(pod: &Pod) -> Vec<String> {
    let (namespace, _) = names(pod);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    claims.map(|claim| format!("{namespace}/{}", claim.claim_name)).collect()
}

/// Whether every image of a Pod is in the store.
fn has_images(spec: &PodSpec, store: &Path) -> bool {
    let run = containers(spec).filter_map(|container| container.image.as_deref());
    let mounted = spec.volumes.iter().flatten().filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    run.chain(mounted).all(|reference| images::resolve(store, reference).is_ok())
}

fn names(pod: &Pod) -> (&str, &str) {
    (pod.metadata.namespace.as_deref().unwrap_or_default(), pod.metadata.name.as_deref().unwrap_or_default())
}

fn api_error(doing: &str, namespace: &str, name: &str) -> impl FnOnce(kube::Error) -> Error {
    let doing = format!("{doing} {namespace}/{name}");
    move |err| Error::Api { doing, err }
}

/// Host operations block, so they run outside of the runtime's worker threads.
async fn blocking<T: Send + 'static>(
    sandbox: &PodSandbox,
    step: impl FnOnce(&PodSandbox) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let sandbox = sandbox.clone();
    spawn_blocking(move || step(&sandbox)).await?
}
