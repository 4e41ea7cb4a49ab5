//! The gRPC server of a plugin, for the kubelet.

use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use devices::{Health, Plugin};
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::transport::Server as Transport;
use tonic::{Request, Response, Status};

use crate::kubelet;
use crate::v1beta1::device_plugin_server::{DevicePlugin, DevicePluginServer};
use crate::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerAllocateResponse, Device, DevicePluginOptions, DeviceSpec, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};

/// A request holds the IDs of one Pod's devices.
const REQUEST_MAX: usize = 1 << 20;
/// The kubelet opens one watch, and one call for each Pod that it admits.
const STREAMS_MAX: u32 = 64;
/// For an answer, or the beginning of the stream.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// How long the kubelet gets to read the last list and close its connection.
const GOODBYE: Duration = Duration::from_secs(1);

/// What watchers of the devices learn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listing {
    Devices(Health),
    /// No devices, and the end of the stream: the resource is withdrawn at once.
    Withdrawn,
    /// The end of the stream: the plugin is about to register again.
    Closed,
}

/// A running server.
pub(crate) struct Server {
    stop: DropGuard,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves. Only open watches hold a receiver of `listing`.
    pub(crate) fn start(
        listener: UnixListener,
        plugin: Arc<Plugin>,
        listing: Arc<watch::Sender<Listing>>,
    ) -> std::io::Result<Server> {
        let incoming = kubelet_sockets::connections(listener, "device plugin")?;
        let stop = CancellationToken::new();
        let name = plugin.name.clone();
        let service = DevicePluginServer::new(Service { plugin, listing }).max_decoding_message_size(REQUEST_MAX);
        let serving = Transport::builder()
            .timeout(TIME_LIMIT)
            .max_concurrent_streams(STREAMS_MAX)
            .add_service(service)
            .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!(
                    plugin = name,
                    error = &error as &dyn std::error::Error,
                    "the device plugin's server ended"
                );
            }
        });
        Ok(Server { stop: stop.drop_guard(), task })
    }

    /// Ends it once the watches have, or after a second. Connections that are left then end with their watches.
    pub(crate) async fn stop(self) {
        let Server { stop, mut task } = self;
        drop(stop);
        if tokio::time::timeout(GOODBYE, &mut task).await.is_err() {
            task.abort();
        }
    }
}

struct Service {
    plugin: Arc<Plugin>,
    listing: Arc<watch::Sender<Listing>>,
}

impl Service {
    fn list(plugin: &Plugin, health: &Health) -> ListAndWatchResponse {
        let health = match health {
            Health::Healthy => "Healthy",
            Health::Unhealthy(_) => "Unhealthy",
        };
        let device = |id| Device { id, health: health.to_owned(), topology: None };
        ListAndWatchResponse { devices: plugin.ids().map(device).collect() }
    }

    fn container(&self, ids: &[String], health: &Health) -> Result<ContainerAllocateResponse, Status> {
        let nodes = self.plugin.allocate(ids, health).map_err(|refused| {
            let refused = refused.to_string();
            tracing::warn!(plugin = self.plugin.name, refused, "the kubelet's request is refused");
            Status::failed_precondition(refused)
        })?;
        let spec = |path: &String| DeviceSpec {
            container_path: path.clone(),
            host_path: path.clone(),
            permissions: self.plugin.permissions.to_owned(),
        };
        Ok(ContainerAllocateResponse { devices: nodes.iter().map(spec).collect(), ..Default::default() })
    }
}

/// The options say that the kubelet does not call these.
fn not_offered(call: &str) -> Status {
    Status::unimplemented(format!("the plugin's options do not offer {call}"))
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(kubelet::OPTIONS))
    }

    type ListAndWatchStream = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let plugin = self.plugin.clone();
        let mut listing = self.listing.subscribe();
        listing.mark_changed(); // the first list comes without a change
        let lists = stream::unfold(Some(listing), move |listing| {
            let plugin = plugin.clone();
            async move {
                let mut listing = listing?;
                listing.changed().await.ok()?;
                let now = listing.borrow_and_update().clone();
                match now {
                    Listing::Devices(health) => Some((Self::list(&plugin, &health), Some(listing))),
                    Listing::Withdrawn => Some((ListAndWatchResponse::default(), None)),
                    Listing::Closed => None,
                }
            }
        });
        Ok(Response::new(lists.map(Ok).boxed()))
    }

    async fn get_preferred_allocation(
        &self,
        _: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        Err(not_offered("GetPreferredAllocation"))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let health = match &*self.listing.borrow() {
            Listing::Devices(health) => health.clone(),
            Listing::Withdrawn | Listing::Closed => return Err(Status::unavailable("the device plugin is stopping")),
        };
        let requests = request.into_inner().container_requests;
        let answers = requests.iter().map(|container| self.container(&container.devices_ids, &health));
        let container_responses = answers.collect::<Result<_, _>>()?;
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Err(not_offered("PreStartContainer"))
    }
}
