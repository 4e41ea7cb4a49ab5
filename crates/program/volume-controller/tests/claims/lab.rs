//! An API server, a pool, and a controller that can be killed and started again.

use std::path::Path;
use std::sync::Arc;

use api::volumesnapshot::{VolumeSnapshot, VolumeSnapshotContent};
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use test_server::TestServer;
use test_support::eventually;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use volumeplan::{NodeName, Reach, Volume};
use volumes::{Config, Engine, Steps, Unwatched};

pub(crate) struct Lab {
    pub(crate) admin: Client,
    pub(crate) engine: Arc<Engine>,
    server: TestServer,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

fn open(pool: &Path, steps: Arc<dyn Steps>) -> Arc<Engine> {
    let config = Config::local(pool, NodeName::parse("supervisor").unwrap());
    Arc::new(Engine::open(Config { reach: Reach::Shared, steps, ..config }).unwrap())
}

impl Lab {
    /// With the controller running, and the classes `now`, `later` and `kept`.
    pub(crate) async fn start() -> Self {
        let programs = [volume_controller::program(), embedded::scheduler::program()];
        let server = TestServer::start(vec![], &programs).await;
        std::fs::create_dir(server.dir().join("pool")).unwrap();
        let engine = open(&server.dir().join("pool"), Arc::new(Unwatched));
        let admin = server.admin().await;
        let mut lab = Self { admin, engine, server, running: None };
        let class = |name: &str, binding: &str, policy: &str| {
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": name, "annotations": {
                    "storageclass.kubernetes.io/is-default-class": (name == "now").to_string(),
                }},
                "provisioner": claims::DRIVER, "volumeBindingMode": binding, "reclaimPolicy": policy,
                "allowVolumeExpansion": true,
            })
        };
        for (name, binding, policy) in [
            ("now", "Immediate", "Delete"),
            ("later", "WaitForFirstConsumer", "Delete"),
            ("kept", "Immediate", "Retain"),
        ] {
            lab.create::<k8s_openapi::api::storage::v1::StorageClass>("", class(name, binding, policy)).await;
        }
        let snapshots = json!({
            "metadata": {"name": "s", "annotations": {"snapshot.storage.kubernetes.io/is-default-class": "true"}},
            "driver": claims::DRIVER, "deletionPolicy": "Delete",
        });
        lab.create::<api::volumesnapshot::VolumeSnapshotClass>("", snapshots).await;
        lab.run().await;
        lab
    }

    /// Starts a controller, with this lab's engine.
    pub(crate) async fn run(&mut self) {
        let name = "system:serviceaccount:kubevirt:volume-controller";
        let client = self.server.client(name, &["system:serviceaccounts"]).await;
        let (config, stop) =
            (volume_controller::Config { client, engine: self.engine.clone() }, CancellationToken::new());
        let stopped = stop.clone();
        let task = tokio::spawn(async move { volume_controller::run(config, stopped).await.unwrap() });
        self.running = Some((stop, task));
    }

    /// Ends the controller in the middle of what it does.
    pub(crate) fn kill(&mut self) {
        if let Some((stop, task)) = self.running.take() {
            task.abort();
            stop.cancel();
        }
    }

    /// Opens the pool again, as another process would.
    pub(crate) fn reopen(&mut self, steps: Arc<dyn Steps>) {
        self.engine = open(&self.server.dir().join("pool"), steps);
    }

    /// The scheduler, until the token is cancelled.
    pub(crate) async fn schedule(&self, stop: &CancellationToken) -> JoinHandle<()> {
        let client = self.server.client("system:kube-scheduler", &[]).await;
        let stop = stop.clone();
        tokio::spawn(async move { embedded::scheduler::run(client, stop).await.unwrap() })
    }

    pub(crate) async fn node(&self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "4Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        Api::<Node>::all(self.admin.clone()).create(&PostParams::default(), &read(node)).await.unwrap();
    }

    pub(crate) async fn create<K>(&self, namespace: &str, object: Value)
    where
        K: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize + kube::Resource<DynamicType = ()>,
    {
        let url = K::url_path(&(), Some(namespace).filter(|namespace| !namespace.is_empty()));
        let mut body = object;
        body["apiVersion"] = json!(K::api_version(&()));
        body["kind"] = json!(K::kind(&()));
        let request = http::Request::post(url).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&body).unwrap()).unwrap();
        self.admin.request::<K>(request).await.unwrap();
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::default_namespaced(self.admin.clone())
    }

    pub(crate) fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.admin.clone())
    }

    pub(crate) fn snapshots(&self) -> Api<VolumeSnapshot> {
        Api::default_namespaced(self.admin.clone())
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.admin.clone())
    }

    pub(crate) async fn claim(&self, name: &str, class: &str, spec: Value) {
        let mut all = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeMode": "Block",
            "resources": {"requests": {"storage": "8Mi"}},
        });
        machinery::patch::merge(&mut all, &spec);
        self.create::<PersistentVolumeClaim>("default", json!({"metadata": {"name": name}, "spec": all})).await;
    }

    pub(crate) async fn snapshot(&self, name: &str, claim: &str) {
        let spec = json!({"source": {"persistentVolumeClaimName": claim}});
        self.create::<VolumeSnapshot>("default", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub(crate) async fn pod(&self, name: &str, claim: &str) {
        let spec = json!({
            "containers": [{"name": "a", "image": "b"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        });
        self.create::<Pod>("default", json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    pub(crate) async fn change(&self, claim: &str, patch: Value) -> Result<PersistentVolumeClaim, kube::Error> {
        self.claims().patch(claim, &PatchParams::default(), &Patch::Merge(patch)).await
    }

    /// Waits until a claim is bound; its volume in the pool.
    pub(crate) async fn bound(&self, name: &str) -> Volume {
        let handle = eventually(&format!("{name} to be bound"), || async {
            let claim = self.claims().get_opt(name).await.unwrap()?;
            (claims::claim_phase(&claim) == claims::Phase::Bound).then_some(())?;
            let volume = self.volumes().get_opt(claims::volume_name(&claim)?).await.unwrap()?;
            claims::handle(&volume).map(str::to_owned)
        })
        .await;
        self.engine.volume(&handle).unwrap().0
    }

    pub(crate) async fn ready(&self, snapshot: &str) -> VolumeSnapshot {
        eventually(&format!("{snapshot} to be ready"), || async {
            let found = self.snapshots().get_opt(snapshot).await.unwrap()?;
            (found.status.as_ref()?.ready_to_use == Some(true)).then_some(found)
        })
        .await
    }

    pub(crate) async fn told(&self, about: &str, reason: &str) -> String {
        let events: Api<Event> = Api::default_namespaced(self.admin.clone());
        eventually(&format!("{reason} about {about}"), || async {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            let of = |event: &&Event| {
                event.involved_object.name.as_deref() == Some(about) && event.reason.as_deref() == Some(reason)
            };
            all.iter().find(of).and_then(|event| event.message.clone())
        })
        .await
    }

    pub(crate) async fn delete_claim(&self, name: &str) {
        self.claims().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn gone(&self, claim: &str) {
        eventually(&format!("{claim} to be gone"), || async {
            self.claims().get_opt(claim).await.unwrap().is_none().then_some(())
        })
        .await;
    }

    /// Waits until neither the API server nor the pool holds a volume or a snapshot.
    pub(crate) async fn nothing_left(&self) {
        let contents: Api<VolumeSnapshotContent> = Api::all(self.admin.clone());
        eventually("all volumes and snapshots to be gone", || async {
            let objects: Vec<String> =
                self.volumes().list(&ListParams::default()).await.unwrap().items.iter().map(|o| o.name_any()).collect();
            let kept = contents.list(&ListParams::default()).await.unwrap().items.len();
            let volumes = self.engine.list_volumes(0, "").unwrap().entries.len();
            let snapshots = self.engine.list_snapshots("", "", 0, "").unwrap().entries.len();
            (objects.is_empty() && kept + volumes + snapshots == 0).then_some(())
        })
        .await;
    }
}

pub(crate) fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}
