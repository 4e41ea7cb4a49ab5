//! A kubelet's device manager: empties the directory, listens, connects to plugins that register, and watches them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use device_plugin::v1beta1::registration_server::{Registration, RegistrationServer};
use device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerAllocateRequest, Device, DevicePluginOptions, Empty, RegisterRequest,
};
use futures::stream;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// What the kubelet knows about a resource.
#[derive(Clone, Default)]
pub(crate) struct Known {
    pub(crate) registrations: usize,
    pub(crate) options: Option<DevicePluginOptions>,
    pub(crate) devices: Vec<Device>,
    /// The plugin's watch is open.
    pub(crate) watched: bool,
    pub(crate) endpoint: String,
    pub(crate) client: Option<DevicePluginClient<Channel>>,
    pub(crate) watch: Option<CancellationToken>,
}

impl Known {
    /// The health of the devices, if it is the same for all and there are this many.
    pub(crate) fn all(&self, count: usize, health: &str) -> bool {
        self.devices.len() == count && self.devices.iter().all(|device| device.health == health)
    }
}

pub(crate) struct Kubelet {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
    /// Registrations that are still refused.
    refusals: Arc<Mutex<usize>>,
    _running: DropGuard,
}

impl Kubelet {
    /// Starts as the kubelet does. Dropping it is a crash: its socket stays.
    pub(crate) fn start(dir: &Path) -> Kubelet {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_socket() {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let listener = UnixListener::bind(dir.join("kubelet.sock")).unwrap();
        let running = CancellationToken::new();
        let (known, refusals) = <(Arc<Mutex<_>>, Arc<Mutex<_>>)>::default();
        let manager =
            Manager { dir: dir.to_owned(), known: known.clone(), refusals: refusals.clone(), running: running.clone() };
        let incoming = stream::unfold(listener, |listener| async move {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        let serving = Server::builder().add_service(RegistrationServer::new(manager)).serve_with_incoming(incoming);
        let stopped = running.clone();
        tokio::spawn(async move { stopped.run_until_cancelled(serving).await });
        Kubelet { known, refusals, _running: running.drop_guard() }
    }

    pub(crate) fn refuse(&self, times: usize) {
        *self.refusals.lock() = times;
    }

    pub(crate) fn refusals_left(&self) -> usize {
        *self.refusals.lock()
    }

    pub(crate) fn known(&self, name: &str) -> Known {
        self.known.lock().get(&format!("devices.kubevirt.io/{name}")).cloned().unwrap_or_default()
    }

    pub(crate) async fn allocate(&self, name: &str, containers: &[&[&str]]) -> Result<AllocateResponse, Status> {
        let container =
            |ids: &&[&str]| ContainerAllocateRequest { devices_ids: ids.iter().map(|id| (*id).to_owned()).collect() };
        let request = AllocateRequest { container_requests: containers.iter().map(container).collect() };
        let mut client = self.known(name).client.unwrap();
        client.allocate(request).await.map(Response::into_inner)
    }
}

struct Manager {
    dir: PathBuf,
    known: Arc<Mutex<BTreeMap<String, Known>>>,
    refusals: Arc<Mutex<usize>>,
    running: CancellationToken,
}

/// A client of the plugin behind a socket.
pub(crate) async fn dial(path: PathBuf) -> Result<DevicePluginClient<Channel>, tonic::transport::Error> {
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").timeout(Duration::from_secs(20));
    Ok(DevicePluginClient::new(endpoint.connect_with_connector(connector).await?))
}

#[tonic::async_trait]
impl Registration for Manager {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest { version, endpoint, resource_name, .. } = request.into_inner();
        if version != "v1beta1" {
            return Err(Status::unknown(format!("the version {version:?} is not supported")));
        }
        {
            let mut refusals = self.refusals.lock();
            if *refusals > 0 {
                *refusals -= 1;
                return Err(Status::unknown("not today"));
            }
        }
        let mut client = dial(self.dir.join(&endpoint)).await.map_err(|error| Status::unknown(error.to_string()))?;
        let options = client.get_device_plugin_options(Empty {}).await?.into_inner();
        let watch = self.running.child_token();
        {
            let mut known = self.known.lock();
            let entry = known.entry(resource_name.clone()).or_default();
            entry.registrations += 1;
            (entry.options, entry.endpoint) = (Some(options), endpoint);
            (entry.client, entry.watch) = (Some(client.clone()), Some(watch.clone()));
        }
        let known = self.known.clone();
        tokio::spawn(async move {
            watch.run_until_cancelled(follow(client, &known, &resource_name)).await;
            known.lock().entry(resource_name).or_default().watched = false;
        });
        Ok(Response::new(Empty {}))
    }
}

async fn follow(mut client: DevicePluginClient<Channel>, known: &Mutex<BTreeMap<String, Known>>, resource: &str) {
    let Ok(lists) = client.list_and_watch(Empty {}).await else { return };
    let mut lists = lists.into_inner();
    while let Ok(Some(list)) = lists.message().await {
        let mut known = known.lock();
        let entry = known.entry(resource.to_owned()).or_default();
        (entry.devices, entry.watched) = (list.devices, true);
    }
}
