//! What a virtual machine instance becomes in Kubernetes: its launcher Pod.
//!
//! A pure function of the instance, the cluster's configuration and a few facts about the namespace: the same input
//! gives the same Pod, byte for byte, name included. The Pod only carries what this build can run; what it cannot, such
//! as claims or host devices, admission has refused before.

mod amount;
mod compute;
mod grace_period;
mod metadata;
pub mod overhead;
pub mod paths;
mod resources;
mod scheduling;
mod volumes;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{
    LocalObjectReference, Pod, PodReadinessGate, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile,
};

pub use metadata::hostname;

/// The container that holds the guest. It is the first one.
pub const COMPUTE: &str = "compute";

/// The user and group a launcher runs as.
const NON_ROOT_USER: i64 = 107;

/// Facts about the instance's namespace. The default is a namespace without quotas.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// A quota in the namespace counts CPU limits, so every Pod must have one.
    pub quota_limits_cpu: bool,
    /// A quota in the namespace counts memory limits, so every Pod must have one: this many times its request.
    pub quota_memory_limit_ratio: Option<f64>,
}

/// Why an instance cannot become a Pod. Admission lets none of these through; an object written around it meets them.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A field without which there is no Pod.
    #[error("{0} is not set, and a launcher Pod cannot be made without it")]
    Missing(&'static str),
    /// An amount that is not one.
    #[error("failed to read {field}")]
    Quantity {
        /// The field's path.
        field: String,
        #[source]
        source: machinery::quantity::ParseError,
    },
}

/// The launcher Pod of an instance.
pub fn launcher_pod(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Result<Pod, Error> {
    let compute = resources::compute(vmi, config, ctx)?;
    let metadata = metadata::pod_metadata(vmi, compute.overhead)?;
    let volumes = volumes::volumes(vmi);
    let container = compute::container(vmi, config, compute.requirements, volumes.mounts)?;
    let spec = &vmi.spec;
    let pull_secrets = volumes::image_pull_secrets(vmi);
    Ok(Pod {
        metadata,
        spec: Some(PodSpec {
            affinity: scheduling::affinity(vmi),
            automount_service_account_token: Some(false),
            containers: vec![container],
            dns_config: spec.dns_config.clone(),
            dns_policy: spec.dns_policy.clone().filter(|policy| !policy.is_empty()),
            enable_service_links: Some(false),
            hostname: Some(hostname(vmi)),
            image_pull_secrets: some(pull_secrets.into_iter().map(|name| LocalObjectReference { name }).collect()),
            node_selector: Some(scheduling::node_selector(vmi, config)),
            priority_class_name: spec.priority_class_name.clone().filter(|class| !class.is_empty()),
            readiness_gates: Some(vec![PodReadinessGate {
                condition_type: api::conditions::VIRTUAL_MACHINE_UNPAUSED.to_owned(),
            }]),
            restart_policy: Some("Never".to_owned()),
            runtime_class_name: config.default_runtime_class().map(str::to_owned),
            scheduler_name: spec.scheduler_name.clone().filter(|name| !name.is_empty()),
            security_context: Some(security_context(config)),
            service_account_name: spec.service_account_name.clone().filter(|name| !name.is_empty()),
            subdomain: spec.subdomain.clone().filter(|subdomain| !subdomain.is_empty()),
            termination_grace_period_seconds: Some(grace_period::pod(vmi)),
            tolerations: some(spec.tolerations.clone()),
            topology_spread_constraints: some(spec.topology_spread_constraints.clone()),
            volumes: Some(volumes.volumes),
            ..PodSpec::default()
        }),
        status: None,
    })
}

fn security_context(config: &ClusterConfig) -> PodSecurityContext {
    PodSecurityContext {
        fs_group: Some(NON_ROOT_USER),
        run_as_user: Some(NON_ROOT_USER),
        run_as_group: Some(NON_ROOT_USER),
        run_as_non_root: Some(true),
        se_linux_options: config
            .selinux_launcher_type()
            .map(|label| SELinuxOptions { type_: Some(label.to_owned()), ..SELinuxOptions::default() }),
        seccomp_profile: seccomp_profile(config),
        ..PodSecurityContext::default()
    }
}

fn seccomp_profile(config: &ClusterConfig) -> Option<SeccompProfile> {
    let configured = config.configuration.seccomp_configuration.as_ref()?;
    let profile = configured.virtual_machine_instance_profile.as_ref()?.custom_profile.as_ref()?;
    match (&profile.localhost_profile, profile.runtime_default_profile) {
        (Some(file), _) => {
            Some(SeccompProfile { type_: "Localhost".to_owned(), localhost_profile: Some(file.clone()) })
        }
        (None, Some(true)) => Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
        _ => None,
    }
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}
