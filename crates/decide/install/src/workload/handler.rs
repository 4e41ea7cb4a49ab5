//! virt-handler: the node agent, the only privileged program.

use api::nad::{MIGRATION_LINK, NETWORKS};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetUpdateStrategy, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{
    EnvVar, EnvVarSource, HostPathVolumeSource, ObjectFieldSelector, PodSpec, SELinuxOptions, SecurityContext, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use super::{Source, Workload, arguments, https, listening, placement, port, ready, selector, template};
use crate::Settings;
use crate::names::{self, environment, host};
use crate::object::{of_program, typed};

/// Seconds to finish migrations in progress, with a margin for the rest.
const GRACE: i64 = 330;

pub(crate) fn objects(settings: &Settings) -> Vec<Value> {
    let mut template = template(workload(settings), settings);
    if let Some(spec) = &mut template.spec {
        placement::workloads(spec, settings);
        use_launcher_image(spec, settings);
        make_privileged(spec);
        add_directories(spec, settings);
    }
    if let (Some(metadata), Some(network)) = (&mut template.metadata, &settings.migration_network) {
        let joined = migration_network(network, &settings.namespace);
        metadata.annotations.get_or_insert_default().insert(NETWORKS.to_owned(), joined);
    }
    let spec = DaemonSetSpec {
        selector: selector(names::app::HANDLER),
        template,
        update_strategy: Some(DaemonSetUpdateStrategy {
            type_: Some("RollingUpdate".to_owned()),
            // virt-operator raises it once the canary is ready.
            rolling_update: Some(RollingUpdateDaemonSet {
                max_unavailable: Some(IntOrString::Int(1)),
                ..RollingUpdateDaemonSet::default()
            }),
        }),
        ..DaemonSetSpec::default()
    };
    let daemon_set = DaemonSet { metadata: of_program(names::app::HANDLER, settings), spec: Some(spec), status: None };
    vec![typed(&daemon_set, settings)]
}

/// As Multus reads it. The link's name is how virt-handler knows the network from others.
fn migration_network(network: &str, namespace: &str) -> String {
    let place = if network.contains('/') { String::new() } else { format!("{namespace}/") };
    format!("{place}{network}@{}", MIGRATION_LINK)
}

/// virt-handler runs nft and asks QEMU for its machine types, which only virt-launcher's image has.
fn use_launcher_image(spec: &mut PodSpec, settings: &Settings) {
    for container in &mut spec.containers {
        container.image = Some(settings.launcher_image());
        container.command = Some(vec!["/usr/bin/ferrovirt".to_owned()]);
    }
}

fn workload(settings: &Settings) -> Workload {
    let (node, address) = (variable(environment::NODE_NAME), variable(environment::POD_IP));
    let flags = [
        ("hostname-override", node.as_str()),
        ("pod-ip-address", address.as_str()),
        ("port", &names::port::HTTPS.to_string()),
        ("kubelet-root", &settings.kubelet_root),
    ];
    let mut args = arguments("handler", &flags);
    if settings.node_certificates {
        args.push(format!("--certificate-signer={}", names::SIGNER));
        args.push(super::REQUIRE_NODE_CERTIFICATES.to_owned());
    }
    Workload {
        app: names::app::HANDLER,
        account: names::account::HANDLER,
        args,
        ports: vec![https(), port("console", names::port::HANDLER)],
        readiness: ready(names::health::HEALTHZ),
        liveness: listening(),
        requests: [("cpu", "10m"), ("memory", "128Mi")],
        mounts: vec![
            (Source::Secret(names::secret::HANDLER_SERVER), names::mount::HANDLER_SERVER),
            (Source::ConfigMap(names::config_map::CA), names::mount::CA),
        ],
    }
}

/// As arguments refer to the environment.
fn variable(name: &str) -> String {
    format!("$({name})")
}

fn make_privileged(spec: &mut PodSpec) {
    // Launchers are found and entered by the IDs that their processes have on the node.
    spec.host_pid = Some(true);
    spec.termination_grace_period_seconds = Some(GRACE);
    for container in &mut spec.containers {
        container.security_context = Some(SecurityContext {
            privileged: Some(true),
            run_as_user: Some(0),
            se_linux_options: Some(SELinuxOptions { level: Some("s0".to_owned()), ..SELinuxOptions::default() }),
            ..SecurityContext::default()
        });
        container.env =
            Some(vec![of_pod(environment::NODE_NAME, "spec.nodeName"), of_pod(environment::POD_IP, "status.podIP")]);
    }
}

fn of_pod(name: &str, field: &str) -> EnvVar {
    let field_ref = ObjectFieldSelector { field_path: field.to_owned(), api_version: Some("v1".to_owned()) };
    let value_from = Some(EnvVarSource { field_ref: Some(field_ref), ..EnvVarSource::default() });
    EnvVar { name: name.to_owned(), value: None, value_from }
}

/// A directory of the node.
struct Directory {
    volume: &'static str,
    on_node: String,
    in_pod: &'static str,
    /// Whether to create it if it is missing. The kubelet creates its own, except the one for seccomp profiles.
    is_made: bool,
    /// `Bidirectional` where virt-handler mounts something for a launcher.
    propagation: Option<&'static str>,
}

fn directories(settings: &Settings) -> [Directory; 5] {
    let kubelet = |below: &str| format!("{}/{below}", settings.kubelet_root.trim_end_matches('/'));
    [
        Directory {
            volume: "kubelet-pods",
            on_node: kubelet(host::KUBELET_PODS),
            in_pod: host::PODS,
            is_made: false,
            propagation: Some("Bidirectional"),
        },
        Directory {
            volume: "device-plugins",
            on_node: kubelet(host::KUBELET_DEVICE_PLUGINS),
            in_pod: host::DEVICE_PLUGINS,
            is_made: false,
            propagation: None,
        },
        Directory {
            volume: "seccomp",
            on_node: kubelet(host::KUBELET_SECCOMP),
            in_pod: host::SECCOMP,
            is_made: true,
            propagation: None,
        },
        Directory {
            volume: "share",
            on_node: host::SHARE.to_owned(),
            in_pod: host::SHARE,
            is_made: true,
            propagation: Some("Bidirectional"),
        },
        Directory {
            volume: "private",
            on_node: host::PRIVATE.to_owned(),
            in_pod: host::PRIVATE,
            is_made: true,
            propagation: None,
        },
    ]
}

fn add_directories(spec: &mut PodSpec, settings: &Settings) {
    for Directory { volume, on_node, in_pod, is_made, propagation } in directories(settings) {
        let type_ = if is_made { "DirectoryOrCreate" } else { "Directory" };
        spec.volumes.get_or_insert_default().push(Volume {
            name: volume.to_owned(),
            host_path: Some(HostPathVolumeSource { path: on_node, type_: Some(type_.to_owned()) }),
            ..Volume::default()
        });
        for container in &mut spec.containers {
            container.volume_mounts.get_or_insert_default().push(VolumeMount {
                name: volume.to_owned(),
                mount_path: in_pod.to_owned(),
                mount_propagation: propagation.map(str::to_owned),
                ..VolumeMount::default()
            });
        }
    }
}
