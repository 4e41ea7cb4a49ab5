//! The engine as a CSI driver: Identity, Controller and Node on one Unix socket, and registration with the kubelet.

mod authority;
mod controller;
mod convert;
mod identity;
mod node;
mod registration;
#[doc(hidden)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unreachable_pub, reason = "generated")]
pub mod registry;
#[doc(hidden)]
#[allow(clippy::all, clippy::pedantic, clippy::unwrap_used, unreachable_pub, reason = "generated")]
pub mod v1;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_sockets::{Directory, PATH_MAX};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Server;
use volumeplan::DriverName;

use crate::engine::Engine;
use crate::error::Error as EngineError;
use v1::controller_server::ControllerServer;
use v1::identity_server::IdentityServer;
use v1::node_server::NodeServer;

/// The name of our driver, where nobody chooses another.
pub const DRIVER_NAME: &str = "csi.ferrovirt.io";
/// The kubelet's folder for the sockets of plugins that register themselves, below its own directory.
pub const REGISTRY: &str = "plugins_registry";

/// A request holds names, labels and capabilities.
const REQUEST_MAX: usize = 1 << 20;
const STREAMS_MAX: u32 = 256;
/// Requests that are carried out at a time; the rest wait. Each takes a thread.
const AT_ONCE: usize = 32;
/// The same for requests that may copy for minutes: Pods that start do not wait for them.
const COPIES_AT_ONCE: usize = 8;
/// How long requests in progress may go on after the end was asked for. What is not done then is undone at the next start.
const GOODBYE: Duration = Duration::from_secs(10);

/// Settings of [`serve`].
#[derive(Clone, Debug)]
pub struct Config {
    /// The driver's name, as in StorageClasses.
    pub name: DriverName,
    pub version: String,
    /// The socket to serve on.
    pub endpoint: PathBuf,
    /// How the kubelet learns of the driver; `None` if somebody else tells it.
    pub registration: Option<Registration>,
}

/// Settings of the registration.
#[derive(Clone, Debug)]
pub struct Registration {
    /// The kubelet's folder for such sockets, as this process sees it.
    pub dir: PathBuf,
    /// The endpoint as the kubelet sees it.
    pub endpoint: PathBuf,
}

/// Why the driver is not served.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("clients cannot connect to {path}: the path of a socket may have {PATH_MAX} bytes; choose a shorter one")]
    TooLong { path: PathBuf },
    #[error("the endpoint {path} is no path of a file in a directory")]
    NoFile { path: PathBuf },
    #[error(transparent)]
    Socket(#[from] kubelet_sockets::Error),
    #[error("failed to listen on {path}")]
    Listen {
        path: PathBuf,
        #[source]
        err: std::io::Error,
    },
    #[error("the server on {path} ended")]
    Serve {
        path: PathBuf,
        #[source]
        err: tonic::transport::Error,
    },
}

/// Serves the driver until `shutdown`. On return its sockets are gone.
pub async fn serve(config: Config, engine: Arc<Engine>, shutdown: CancellationToken) -> Result<(), Error> {
    let Config { name, version, endpoint, registration } = config;
    let (dir, file) = split(&endpoint)?;
    let longest = registration.as_ref().map(|registration| registration.endpoint.as_path());
    for path in longest.into_iter().chain([endpoint.as_path()]) {
        if path.as_os_str().len() > PATH_MAX {
            return Err(Error::TooLong { path: path.to_owned() });
        }
    }
    let (listener, made) = dir.listen(&file)?;
    let incoming = kubelet_sockets::connections(listener, "CSI driver");
    let incoming = incoming.map_err(|err| Error::Listen { path: endpoint.clone(), err })?;
    let driver = Driver {
        engine,
        name: name.as_str().into(),
        version: version.into(),
        at_once: Arc::new(Semaphore::new(AT_ONCE)),
        copies_at_once: Arc::new(Semaphore::new(COPIES_AT_ONCE)),
    };
    // Ends with the shutdown, and with a server that fails.
    let end = shutdown.child_token();
    let serving = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .add_service(IdentityServer::new(driver.clone()).max_decoding_message_size(REQUEST_MAX))
        .add_service(ControllerServer::new(driver.clone()).max_decoding_message_size(REQUEST_MAX))
        .add_service(NodeServer::new(driver).max_decoding_message_size(REQUEST_MAX))
        .serve_with_incoming_shutdown(incoming, end.clone().cancelled_owned());
    tracing::info!(driver = name.as_str(), endpoint = %endpoint.display(), "CSI driver listening");
    let serving = async {
        let _end = end.clone().drop_guard();
        tokio::pin!(serving);
        tokio::select! {
            result = &mut serving => return result,
            () = end.cancelled() => {}
        }
        tokio::time::timeout(GOODBYE, serving).await.unwrap_or_else(|_| {
            tracing::warn!("requests in progress are interrupted; they are undone at the next start");
            Ok(())
        })
    };
    // Only now that we listen: the kubelet calls the driver as soon as it has found the registration.
    let registering = async {
        if let Some(registration) = registration {
            registration::keep(&name, registration, end.clone()).await;
        }
    };
    let (served, ()) = tokio::join!(serving, registering);
    if let Err(error) = dir.remove(&file, made) {
        tracing::warn!(error = &error as &dyn std::error::Error, "failed to remove the socket");
    }
    served.map_err(|err| Error::Serve { path: endpoint, err })
}

fn split(endpoint: &Path) -> Result<(Directory, String), Error> {
    let parent = endpoint.parent().filter(|parent| !parent.as_os_str().is_empty());
    match (parent, endpoint.file_name().and_then(|name| name.to_str())) {
        (Some(parent), Some(name)) => Ok((Directory(parent.to_owned()), name.to_owned())),
        _ => Err(Error::NoFile { path: endpoint.to_owned() }),
    }
}

/// The three services.
#[derive(Clone)]
struct Driver {
    engine: Arc<Engine>,
    name: Arc<str>,
    version: Arc<str>,
    at_once: Arc<Semaphore>,
    copies_at_once: Arc<Semaphore>,
}

impl Driver {
    /// Carries out a request in a thread of its own, to its end, also when the client gives up: the retry gets the result.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Status> {
        self.run_among(&self.at_once, work).await
    }

    /// The same for a request that may copy for minutes.
    async fn copy<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Status> {
        self.run_among(&self.copies_at_once, work).await
    }

    async fn run_among<T: Send + 'static>(
        &self,
        at_once: &Arc<Semaphore>,
        work: impl FnOnce(&Engine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, Status> {
        let engine = self.engine.clone();
        let permit = at_once.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Status::unavailable("the driver is stopping"))?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&engine)
        });
        match done.await {
            Ok(result) => result.map_err(|error| convert::status(&error)),
            Err(error) => {
                tracing::error!(%error, "a request ended early");
                Err(Status::internal("the request ended early; see the driver's log"))
            }
        }
    }
}
