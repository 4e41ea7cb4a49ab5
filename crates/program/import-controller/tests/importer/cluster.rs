//! An API server, a pool, the provisioner and an importer for one test.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use api::cdi::{DataVolume, DataVolumeStatus};
use import_controller::{Config, Hooks, Proxy, Tokens};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::Api;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use test_server::TestServer;
use test_support::eventually_within;
use tokio_util::sync::{CancellationToken, DropGuard};
use volumeplan::{NodeName, Reach};
use volumes::Engine;

/// The first argument of an importer in a process of its own.
pub(crate) const IMPORTER: &str = "importer";
/// Far more than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Cluster {
    pub(crate) server: TestServer,
    pub(crate) admin: Client,
    pub(crate) engine: Arc<Engine>,
    pub(crate) url: String,
    importer: Option<tokio::task::JoinHandle<()>>,
    stop_importer: CancellationToken,
    proxy: TcpListener,
    _provisioner: DropGuard,
}

fn pool(dir: &Path) -> Arc<Engine> {
    let pool = dir.join("pool");
    std::fs::create_dir_all(&pool).unwrap();
    std::fs::create_dir_all(dir.join("pods")).unwrap();
    let node = NodeName::parse("supervisor").unwrap();
    let config =
        volumes::Config { reach: Reach::Shared, kubelet_dir: dir.join("pods"), ..volumes::Config::local(pool, node) };
    Arc::new(Engine::open(config).unwrap())
}

fn user(program: &api::rights::Program) -> String {
    program.user(api::config::DEFAULT_INSTALL_NAMESPACE)
}

impl Cluster {
    /// Everything, with an importer in this process.
    pub(crate) async fn start() -> Self {
        let mut cluster = Self::without_importer().await;
        cluster.start_importer().await;
        cluster
    }

    pub(crate) async fn without_importer() -> Self {
        let keys = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&keys.path().join("upload.key")).unwrap();
        let programs = [import_controller::program(), volume_controller::program()];
        let server = TestServer::start(vec![Arc::new(Hooks { tokens })], &programs).await;
        std::fs::copy(keys.path().join("upload.key"), server.dir().join("upload.key")).unwrap();
        let admin = server.admin().await;
        let engine = pool(server.dir());
        let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", proxy.local_addr().unwrap());
        let stop = CancellationToken::new();
        let client = server.client(&user(&volume_controller::program()), &[]).await;
        let config = volume_controller::Config { client, engine: engine.clone() };
        tokio::spawn(volume_controller::run(config, stop.clone()));
        let cluster = Self {
            server,
            admin,
            engine,
            url,
            importer: None,
            stop_importer: CancellationToken::new(),
            proxy,
            _provisioner: stop.drop_guard(),
        };
        cluster.create::<Node>(json!({"metadata": {"name": "n1"}})).await;
        for (name, mode, default) in
            [("local", "WaitForFirstConsumer", "true"), ("local-immediate", "Immediate", "false")]
        {
            let annotations = json!({"storageclass.kubernetes.io/is-default-class": default});
            cluster
                .create::<StorageClass>(json!({
                    "metadata": {"name": name, "annotations": annotations}, "provisioner": "csi.ferrovirt.io",
                    "volumeBindingMode": mode, "allowVolumeExpansion": true, "reclaimPolicy": "Delete",
                }))
                .await;
        }
        cluster
    }

    pub(crate) async fn start_importer(&mut self) {
        let client = self.server.client(&user(&import_controller::program()), &[]).await;
        let pair = self.server.authority.issue("upload-proxy", &[]);
        let config = Config {
            client,
            engine: self.engine.clone(),
            worker: std::env::current_exe().unwrap(),
            scratch: self.server.dir().join("scratch"),
            parallel: import_controller::PARALLEL,
            proxy: Proxy {
                listener: self.proxy.try_clone().unwrap(),
                cert_pem: pair.cert,
                key_pem: pair.key,
                url: self.url.clone(),
                tokens: Tokens::open(&self.server.dir().join("upload.key")).unwrap(),
            },
        };
        let stop = CancellationToken::new();
        self.stop_importer = stop.clone();
        self.importer = Some(tokio::spawn(async move { import_controller::run(config, stop).await.unwrap() }));
    }

    pub(crate) async fn stop_importer(&mut self) {
        self.stop_importer.cancel();
        if let Some(importer) = self.importer.take() {
            importer.await.unwrap();
        }
    }

    /// An importer in a process of its own, which can be killed.
    pub(crate) fn spawn_importer(&self) -> Killed {
        let name = user(&import_controller::program());
        let kubeconfig = self.server.write_kubeconfig("importer.json", &name, &[]);
        let pair = self.server.authority.issue("upload-proxy", &[]);
        let config = json!({"dir": self.server.dir(), "kubeconfig": kubeconfig, "cert": pair.cert, "key": pair.key});
        let path = self.server.dir().join("importer-config.json");
        std::fs::write(&path, config.to_string()).unwrap();
        Killed(Command::new(std::env::current_exe().unwrap()).arg(IMPORTER).arg(path).spawn().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.server.dir().join(name)
    }

    pub(crate) async fn create<K>(&self, value: Value) -> K
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let mut value = value;
        value["apiVersion"] = json!(K::api_version(&()));
        value["kind"] = json!(K::kind(&()));
        let object: K = serde_json::from_value(value.clone()).unwrap();
        let namespace = object.meta().namespace.clone();
        let path = K::url_path(&(), namespace.as_deref());
        let request =
            http::Request::post(path).header("content-type", "application/json").body(value.to_string().into_bytes());
        self.admin.request(request.unwrap()).await.unwrap_or_else(|error| panic!("{value}: {error}"))
    }

    /// A DataVolume in the class that binds at once.
    pub(crate) async fn data_volume(&self, name: &str, source: Value, storage: Value) -> DataVolume {
        let mut full = json!({"storageClassName": "local-immediate", "resources": {"requests": {"storage": "64Mi"}}});
        full.as_object_mut().unwrap().extend(storage.as_object().unwrap().clone());
        let spec = json!({"source": source, "storage": full});
        self.create(json!({"metadata": {"namespace": "default", "name": name}, "spec": spec})).await
    }

    pub(crate) fn data_volumes(&self) -> Api<DataVolume> {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub(crate) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.admin.clone(), "default")
    }

    pub(crate) async fn status(&self, name: &str) -> DataVolumeStatus {
        self.data_volumes().get(name).await.unwrap().status.unwrap_or_default()
    }

    /// Waits until a DataVolume is in a phase, and returns its status.
    pub(crate) async fn phase(&self, name: &str, phase: &str) -> DataVolumeStatus {
        self.wait(name, &format!("phase {phase}"), |status| {
            status.phase.as_ref().map(|phase| phase.as_str()) == Some(phase)
        })
        .await
    }

    pub(crate) async fn wait(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&DataVolumeStatus) -> bool,
    ) -> DataVolumeStatus {
        let mut last = DataVolumeStatus::default();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while tokio::time::Instant::now() < deadline {
            last = self.status(name).await;
            if wanted(&last) {
                return last;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let claim = self.claims().get_opt(name).await.unwrap();
        panic!("{name}: {what}: it is {}\nclaim: {}", json!(last), json!(claim));
    }

    /// The volume of a claim: its name in the pool.
    pub(crate) async fn handle(&self, claim: &str) -> String {
        let found = eventually_within(PATIENCE, "the claim is bound", async || {
            let claim = self.claims().get(claim).await.unwrap();
            claim.spec.unwrap().volume_name.filter(|name| !name.is_empty())
        })
        .await;
        let volumes: Api<PersistentVolume> = Api::all(self.admin.clone());
        volumes.get(&found).await.unwrap().spec.unwrap().csi.unwrap().volume_handle
    }

    /// The disk in a claim.
    pub(crate) async fn disk(&self, claim: &str) -> PathBuf {
        let handle = self.handle(claim).await;
        let (volume, _) = self.engine.volume(&handle).unwrap();
        let content = self.engine.content(&volume);
        if content.is_dir() { content.join("disk.img") } else { content }
    }

    /// Whether somebody fills the volume of a claim.
    pub(crate) async fn is_held(&self, claim: &str) -> bool {
        let handle = self.handle(claim).await;
        self.engine.volume(&handle).unwrap().1.hold.is_some()
    }
}

/// A process that is killed at the latest when this is dropped.
pub(crate) struct Killed(Child);

impl Killed {
    /// Kills it without a word.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The program of [`Cluster::spawn_importer`].
pub(crate) fn importer(config: OsString) -> ExitCode {
    let config: Value = serde_json::from_slice(&std::fs::read(config).unwrap()).unwrap();
    let text = |key: &str| config[key].as_str().unwrap().to_owned();
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let kubeconfig = kube::config::Kubeconfig::read_from(text("kubeconfig")).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let client = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
        let dir = PathBuf::from(text("dir"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let config = Config {
            client: Client::try_from(client).unwrap(),
            engine: pool(&dir),
            worker: std::env::current_exe().unwrap(),
            scratch: dir.join("scratch"),
            parallel: import_controller::PARALLEL,
            proxy: Proxy {
                url: format!("https://{}", listener.local_addr().unwrap()),
                listener,
                cert_pem: text("cert"),
                key_pem: text("key"),
                tokens: Tokens::open(&dir.join("upload.key")).unwrap(),
            },
        };
        import_controller::run(config, CancellationToken::new()).await.unwrap();
    });
    ExitCode::SUCCESS
}

/// The condition `Running` of a status: its reason and its message.
pub(crate) fn running(status: &DataVolumeStatus) -> (String, String) {
    let found = status.conditions.iter().find(|condition| condition.type_ == "Running").cloned().unwrap_or_default();
    (found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

pub(crate) const MIB: usize = 1 << 20;

/// A disk with something in it, and holes.
pub(crate) fn disk_image(path: &Path, size: usize) -> Vec<u8> {
    let mut content = vec![0; size];
    for (index, byte) in content.iter_mut().enumerate() {
        // Every fourth MiB has data, other in each.
        if (index / MIB).is_multiple_of(4) {
            *byte = ((index * 7) ^ (index >> 11)) as u8;
        }
    }
    std::fs::write(path, &content).unwrap();
    content
}

/// Runs a program that has to succeed, and returns its output.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}
