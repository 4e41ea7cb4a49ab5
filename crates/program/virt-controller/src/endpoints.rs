//! `/healthz`, `/leader` and `/metrics`.

use std::sync::Arc;

use ::endpoints::{Answer, Answers};
use kube::Client;
use role_tls::Certificate;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use ::endpoints::EndpointsError;

use crate::status::Status;

/// The endpoints, ready to be served.
pub struct Endpoints(::endpoints::Endpoints<Controller>);

struct Controller {
    status: Arc<Status>,
    client: Client,
}

impl Endpoints {
    /// `client` is used by `/healthz` to probe the API server.
    pub fn new(certificate: Certificate, status: Arc<Status>, client: Client) -> Result<Self, EndpointsError> {
        ::endpoints::Endpoints::new(certificate, Controller { status, client }).map(Self)
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, listener: TcpListener, shutdown: CancellationToken) {
        self.0.serve(listener, shutdown).await;
    }
}

impl Answers for Controller {
    async fn answer(&self, path: &str) -> Answer {
        match path {
            "/healthz" => {
                let (good, body) = self.status.health(&self.client).await;
                Answer::json(good, &body)
            }
            "/leader" => Answer::json(true, &self.status.leader()),
            "/metrics" => Answer::metrics(self.status.metrics()),
            _ => Answer::not_found("see /healthz, /leader and /metrics"),
        }
    }
}
