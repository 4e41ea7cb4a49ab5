//! virt-controller: the cluster-wide controllers.

use serde_json::Value;

use super::{Source, Workload, alive, arguments, deployment, https, ready};
use crate::{Settings, names};

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    let (port, image) = (names::port::HTTPS.to_string(), settings.launcher_image());
    let mut flags = vec![("port", port.as_str()), ("launcher-image", image.as_str())];
    // Launcher Pods are in the namespaces of users, who provide a Secret of this name there.
    flags.extend(settings.image_pull_secrets.first().map(|secret| ("image-pull-secret", secret.name.as_str())));
    let workload = Workload {
        app: names::app::CONTROLLER,
        account: names::account::CONTROLLER,
        args: arguments("controller", &flags),
        ports: vec![https()],
        readiness: ready(names::health::HEALTHZ),
        liveness: alive(names::health::LEADER),
        requests: [("cpu", "10m"), ("memory", "128Mi")],
        mounts: vec![(Source::Secret(names::secret::CONTROLLER), names::mount::CONTROLLER)],
    };
    deployment(workload, settings.infra_replicas(), settings)
}
