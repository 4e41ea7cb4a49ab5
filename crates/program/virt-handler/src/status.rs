//! What `/healthz` and `/metrics` tell about a running virt-handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use endpoints::{Answer, Answers, ApiHealth, Endpoints, EndpointsError, write_process};
use informer::client::RequestCounter;
use informer::metrics::Exposition;
use kube::Client;
use role_tls::Certificate;

/// Updated by [`run`](crate::run), read by the endpoints.
#[derive(Default)]
pub struct Status {
    ready: AtomicBool,
    health: ApiHealth,
    /// Requests made by virt-handler's client.
    pub requests: RequestCounter,
}

impl Status {
    /// The caches are complete, and launchers are looked after.
    pub(crate) fn set_ready(&self) {
        self.ready.store(true, Ordering::Relaxed);
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    fn metrics(&self) -> String {
        let mut out = Exposition::default();
        self.requests.write(&mut out);
        let name = "ferrovirt_virt_handler_ready_status";
        out.family(name, "gauge", "1 if this virt-handler manages the launchers of its node");
        out.sample(name, &[], u8::from(self.is_ready()));
        write_process(&mut out);
        out.into_text()
    }
}

struct Handler {
    status: Arc<Status>,
    client: Client,
}

impl Answers for Handler {
    async fn answer(&self, path: &str) -> Answer {
        match path {
            "/healthz" => {
                let (reachable, mut body) = self.status.health.check(&self.client).await;
                let ready = self.status.is_ready();
                body["caches"] = if ready { "ok" } else { "not in sync yet" }.into();
                Answer::json(reachable && ready, &body)
            }
            "/metrics" => Answer::metrics(self.status.metrics()),
            _ => Answer::not_found("see /healthz and /metrics"),
        }
    }
}

/// `/healthz` and `/metrics`. `client` is used to probe the API server.
pub fn status_endpoints(
    certificate: Certificate,
    status: Arc<Status>,
    client: Client,
) -> Result<Endpoints<impl Answers>, EndpointsError> {
    Endpoints::new(certificate, Handler { status, client })
}
