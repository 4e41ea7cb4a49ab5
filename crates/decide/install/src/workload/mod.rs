//! The workloads: what their Pods have in common, and one module for each program.

pub(crate) mod api;
pub(crate) mod controller;
pub(crate) mod handler;
pub(crate) mod operator;
pub(crate) mod placement;

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::{
    Capabilities, ConfigMapVolumeSource, Container, ContainerPort, HTTPGetAction, PodSecurityContext, PodSpec,
    PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, TCPSocketAction,
    Volume, VolumeMount,
};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;

use crate::object::{self, Texts, of_program, texts, typed};
use crate::services::METRICS_PORT;
use crate::{Settings, names};

/// The user and group of unprivileged Pods.
const USER: i64 = 1001;
/// File mode of mounted keys: for the owner, and the group where the Pod sets one.
const KEY_MODE: i32 = 0o440;

/// Flag of virt-api and virt-handler: a virt-handler's certificate must name its node.
const REQUIRE_NODE_CERTIFICATES: &str = "--require-node-certificates";

/// One of our programs as a workload.
struct Workload {
    /// Its name, and that of its container.
    app: &'static str,
    account: &'static str,
    /// The subcommand, then its flags.
    args: Vec<String>,
    ports: Vec<ContainerPort>,
    readiness: Probe,
    liveness: Probe,
    /// CPU and memory.
    requests: [(&'static str, &'static str); 2],
    /// What is mounted, and where.
    mounts: Vec<(Source, &'static str)>,
}

/// What is mounted from the installation's namespace.
#[derive(Clone, Copy, Debug)]
enum Source {
    Secret(&'static str),
    ConfigMap(&'static str),
}

fn arguments(subcommand: &str, flags: &[(&str, &str)]) -> Vec<String> {
    let flags = flags.iter().map(|(flag, value)| format!("--{flag}={value}"));
    [subcommand.to_owned()].into_iter().chain(flags).collect()
}

/// The port with the program's API, health and metrics.
fn https() -> ContainerPort {
    port(METRICS_PORT, names::port::HTTPS)
}

fn port(name: &str, number: i32) -> ContainerPort {
    ContainerPort {
        name: Some(name.to_owned()),
        container_port: number,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }
}

/// Readiness: the API server is reachable.
fn ready(path: &str) -> Probe {
    Probe { http_get: Some(get(path)), ..probe(5, 10, 3) }
}

/// Liveness: does not depend on the API server, since a restart would not bring that back.
fn alive(path: &str) -> Probe {
    Probe { http_get: Some(get(path)), ..probe(15, 20, 5) }
}

/// Liveness by TCP connection; for programs whose responses all depend on the API server.
fn listening() -> Probe {
    let tcp_socket = Some(TCPSocketAction { port: IntOrString::Int(names::port::HTTPS), host: None });
    Probe { tcp_socket, ..probe(15, 20, 5) }
}

fn probe(delay: i32, period: i32, failures: i32) -> Probe {
    Probe {
        initial_delay_seconds: Some(delay),
        period_seconds: Some(period),
        timeout_seconds: Some(10),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

fn get(path: &str) -> HTTPGetAction {
    HTTPGetAction {
        path: Some(path.to_owned()),
        port: IntOrString::Int(names::port::HTTPS),
        scheme: Some("HTTPS".to_owned()),
        ..HTTPGetAction::default()
    }
}

/// A Deployment, and its disruption budget if it has more than one replica.
fn deployment(workload: Workload, replicas: i32, settings: &Settings) -> Vec<Value> {
    let app = workload.app;
    let mut template = template(workload, settings);
    if let Some(spec) = &mut template.spec {
        placement::infra(spec, app, settings);
        spec.security_context = Some(unprivileged_pod());
        for container in &mut spec.containers {
            container.security_context = Some(unprivileged());
        }
    }
    let spec = DeploymentSpec {
        replicas: Some(replicas),
        selector: selector(app),
        strategy: Some(DeploymentStrategy {
            type_: Some("RollingUpdate".to_owned()),
            rolling_update: Some(RollingUpdateDeployment {
                max_surge: Some(IntOrString::Int(1)),
                // With a single replica, the old Pod stops once the new one is ready.
                max_unavailable: Some(IntOrString::Int((replicas - 1).clamp(0, 1))),
            }),
        }),
        template,
        ..DeploymentSpec::default()
    };
    let deployment = Deployment { metadata: of_program(app, settings), spec: Some(spec), status: None };
    let budget = disruption_budget(app, replicas, settings);
    [typed(&deployment, settings)].into_iter().chain(budget).collect()
}

fn disruption_budget(app: &str, replicas: i32, settings: &Settings) -> Option<Value> {
    // A budget of zero would have no effect.
    let available = Some(replicas - 1).filter(|&available| available > 0)?;
    let spec = PodDisruptionBudgetSpec {
        min_available: Some(IntOrString::Int(available)),
        selector: Some(selector(app)),
        ..PodDisruptionBudgetSpec::default()
    };
    let metadata = ObjectMeta { name: Some(format!("{app}-pdb")), ..of_program(app, settings) };
    Some(typed(&PodDisruptionBudget { metadata, spec: Some(spec), status: None }, settings))
}

fn selector(app: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(texts([(::api::labels::APP, app)])), ..LabelSelector::default() }
}

fn template(workload: Workload, settings: &Settings) -> PodTemplateSpec {
    let Workload { app, account, args, ports, readiness, liveness, requests, mounts } = workload;
    let container = Container {
        name: app.to_owned(),
        image: Some(settings.image()),
        image_pull_policy: Some(settings.image_pull_policy.clone()),
        args: Some(args),
        ports: Some(ports),
        readiness_probe: Some(readiness),
        liveness_probe: Some(liveness),
        resources: Some(ResourceRequirements {
            requests: Some(quantities(requests)),
            ..ResourceRequirements::default()
        }),
        volume_mounts: Some(mounts.iter().map(mount).collect()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    };
    let pull_secrets = Some(settings.image_pull_secrets.clone()).filter(|secrets| !secrets.is_empty());
    let spec = PodSpec {
        service_account_name: Some(account.to_owned()),
        priority_class_name: Some(names::PRIORITY_CLASS.to_owned()),
        image_pull_secrets: pull_secrets,
        containers: vec![container],
        volumes: Some(mounts.iter().map(volume).collect()),
        ..PodSpec::default()
    };
    let metadata = ObjectMeta {
        labels: Some(pod_labels(app, settings)),
        annotations: Some(object::version(settings)),
        ..ObjectMeta::default()
    };
    PodTemplateSpec { metadata: Some(metadata), spec: Some(spec) }
}

fn pod_labels(app: &str, settings: &Settings) -> Texts {
    let own = texts([
        (::api::labels::APP, app),
        (names::METRICS_LABEL, ""),
        (::api::labels::ALLOW_ACCESS_CLUSTER_SERVICES, "true"),
    ]);
    object::managed(settings).into_iter().chain(own).collect()
}

fn quantities(requests: [(&str, &str); 2]) -> BTreeMap<String, Quantity> {
    requests.map(|(resource, quantity)| (resource.to_owned(), Quantity(quantity.to_owned()))).into()
}

fn volume_name(source: Source) -> &'static str {
    match source {
        Source::Secret(name) | Source::ConfigMap(name) => name,
    }
}

fn volume((source, _): &(Source, &str)) -> Volume {
    let name = volume_name(*source).to_owned();
    match source {
        Source::Secret(secret) => {
            let secret_name = Some((*secret).to_owned());
            let secret =
                SecretVolumeSource { secret_name, default_mode: Some(KEY_MODE), ..SecretVolumeSource::default() };
            Volume { name, secret: Some(secret), ..Volume::default() }
        }
        Source::ConfigMap(config_map) => {
            let config_map =
                ConfigMapVolumeSource { name: (*config_map).to_owned(), ..ConfigMapVolumeSource::default() };
            Volume { name, config_map: Some(config_map), ..Volume::default() }
        }
    }
}

fn mount((source, path): &(Source, &'static str)) -> VolumeMount {
    VolumeMount {
        name: volume_name(*source).to_owned(),
        mount_path: (*path).to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

/// As the Pod security standard `restricted` demands. The group may read the mounted keys.
fn unprivileged_pod() -> PodSecurityContext {
    PodSecurityContext {
        run_as_non_root: Some(true),
        run_as_user: Some(USER),
        run_as_group: Some(USER),
        fs_group: Some(USER),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        ..PodSecurityContext::default()
    }
}

fn unprivileged() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
        read_only_root_filesystem: Some(true),
        ..SecurityContext::default()
    }
}
