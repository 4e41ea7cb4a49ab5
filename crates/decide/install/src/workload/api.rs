//! virt-api: the aggregated API and the webhooks.

use serde_json::Value;

use super::{Source, Workload, arguments, deployment, https, listening, ready};
use crate::{Settings, names};

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    let mut args = arguments("api", &[("port", &names::port::HTTPS.to_string())]);
    if settings.node_certificates {
        args.push(super::REQUIRE_NODE_CERTIFICATES.to_owned());
    }
    let workload = Workload {
        app: names::app::API,
        account: names::account::API,
        args,
        ports: vec![https()],
        readiness: ready(names::health::API),
        liveness: listening(),
        requests: [("cpu", "10m"), ("memory", "96Mi")],
        mounts: vec![
            (Source::Secret(names::secret::API), names::mount::API),
            (Source::Secret(names::secret::HANDLER_CLIENT), names::mount::HANDLER_CLIENT),
            (Source::ConfigMap(names::config_map::CA), names::mount::CA),
        ],
    };
    deployment(workload, settings.api_replicas(), settings)
}
