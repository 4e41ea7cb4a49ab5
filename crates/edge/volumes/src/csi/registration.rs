//! Registration with the kubelet: it finds our socket in its folder, asks who we are, and says whether it accepts us.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kubelet_sockets::{Directory, Holds, Made};
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use volumeplan::DriverName;

use super::Registration as Settings;
use super::authority::Renamed;
use super::registry::registration_server::{Registration, RegistrationServer};
use super::registry::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};

const REQUEST_MAX: usize = 64 << 10;
/// How often we look whether our socket is still there. A kubelet that has lost its folder makes a new one.
const INTERVAL: Duration = Duration::from_secs(2);
const GOODBYE: Duration = Duration::from_secs(1);

/// Serves the registration of the driver `name` until `shutdown`, and again whenever its socket is gone.
///
/// A kubelet that is absent is not an error: it looks into its folder when it starts.
pub(super) async fn keep(name: &DriverName, settings: Settings, shutdown: CancellationToken) {
    let dir = Directory(settings.dir.clone());
    let socket = format!("{}-reg.sock", name.as_str());
    let service = Service { name: name.as_str().into(), endpoint: settings.endpoint.to_string_lossy().into() };
    let mut serving: Option<(Made, CancellationToken)> = None;
    let mut told = false;
    loop {
        let place = serving.as_ref().map_or(Holds::Nothing, |(made, _)| dir.holds(&socket, *made));
        match place {
            Holds::Ours => {}
            Holds::Another => {
                tracing::warn!(socket, "another process has taken over the registration; this one no longer registers");
                break;
            }
            Holds::Nothing => {
                if let Some((_, stop)) = serving.take() {
                    stop.cancel();
                }
                match start(&dir, &socket, service.clone()) {
                    Ok(started) => {
                        tracing::info!(socket = %dir.path(&socket).display(), "waiting for the kubelet to register");
                        serving = Some(started);
                        told = false;
                    }
                    Err(error) if !told => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "failed to offer the registration to the kubelet; trying again");
                        told = true;
                    }
                    Err(_) => {}
                }
            }
        }
        if shutdown.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_none() {
            break;
        }
    }
    if let Some((made, stop)) = serving {
        if let Err(error) = dir.remove(&socket, made) {
            tracing::warn!(error = &error as &dyn std::error::Error, "failed to remove the registration's socket");
        }
        stop.cancel();
    }
}

fn start(dir: &Directory, socket: &str, service: Service) -> Result<(Made, CancellationToken), kubelet_sockets::Error> {
    let (listener, made) = dir.listen(socket)?;
    let failed = |err| kubelet_sockets::Error::Socket { doing: "listen on", path: dir.path(socket), err };
    let incoming = kubelet_sockets::connections(listener, "CSI registration").map_err(failed)?;
    let incoming = incoming.map(|stream| stream.map(Renamed::new));
    let stop = CancellationToken::new();
    let serving = Server::builder()
        .timeout(Duration::from_secs(10))
        .add_service(RegistrationServer::new(service).max_decoding_message_size(REQUEST_MAX))
        .serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::pin!(serving);
        let result = tokio::select! {
            result = &mut serving => result,
            () = stopped.cancelled() => tokio::time::timeout(GOODBYE, serving).await.unwrap_or(Ok(())),
        };
        if let Err(error) = result {
            tracing::warn!(error = &error as &dyn std::error::Error, "the server of the registration ended");
        }
    });
    Ok((made, stop))
}

#[derive(Clone)]
struct Service {
    name: Arc<str>,
    endpoint: Arc<str>,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.name.to_string(),
            endpoint: self.endpoint.to_string(),
            // Of CSI, not of the driver.
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let RegistrationStatus { plugin_registered, error } = status.into_inner();
        match plugin_registered {
            true => tracing::info!(driver = %self.name, "the kubelet has registered the driver"),
            // It tries again by itself.
            false => tracing::error!(driver = %self.name, error, "the kubelet has refused the driver"),
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
