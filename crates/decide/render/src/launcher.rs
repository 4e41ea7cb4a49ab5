//! The launcher Pod as a whole, in each of its variants.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use api::{annotations, labels};
use k8s_openapi::api::core::v1::{
    Container, LocalObjectReference, Pod, PodReadinessGate, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile,
};

use crate::compute::{self, Work};
use crate::container_disks::{self, Images};
use crate::context::Context;
use crate::error::Error;
use crate::traits::{annotation, non_root};
use crate::{
    COMPUTE, NON_ROOT_USER, console_log, grace_period, metadata, resources, scheduling, sidecars, some, virtiofs,
    volumes,
};

/// The differences between launcher Pods of a VMI.
pub(crate) struct Variant<'a> {
    /// The Pod's purpose, which becomes part of its name. The guest's first Pod has none.
    pub(crate) purpose: Option<&'a str>,
    /// Whether it only triggers the binding of volumes.
    pub(crate) temporary: bool,
    /// Images pinned by digest.
    pub(crate) images: Images,
}

pub(crate) fn pod(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    variant: &Variant<'_>,
) -> Result<Pod, Error> {
    let compute = resources::compute(vmi, config, ctx)?;
    let mut metadata = metadata::pod_metadata(vmi, config, ctx, variant.purpose, compute.overhead)?;
    if variant.temporary {
        let mark = (annotations::EPHEMERAL_PROVISIONING.to_owned(), "true".to_owned());
        metadata.annotations.get_or_insert_default().extend([mark]);
    }
    let sidecars = sidecars::of(vmi, config)?;
    let mut volumes = volumes::launcher(vmi, config, ctx, &variant.images, !sidecars.is_empty())?;
    let work = if variant.temporary { Work::Nothing } else { Work::Guest { sidecars: sidecars.len() } };
    let mut container = compute::container(vmi, config, ctx, &work, compute.requirements, &mut volumes)?;
    let additions = sidecars::render(&sidecars, vmi, config, ctx)?;
    container.volume_mounts.get_or_insert_default().extend(additions.compute_mounts);
    volumes.volumes.extend(additions.volumes);
    // Webhooks that add devices of network plugins put them into the first container.
    let mut containers = vec![container];
    containers.extend(container_disks::containers(vmi, config, &variant.images));
    containers.extend(virtiofs::containers(vmi, config));
    containers.extend(additions.containers);
    let mut init_containers: Vec<Container> = console_log::container(vmi, config)?.into_iter().collect();
    init_containers.extend(container_disks::init_containers(vmi, config, &variant.images));
    if config.feature_gate("DockerSELinuxMCSWorkaround") {
        share_selinux_level(&mut containers, config);
    }
    check_names(volumes.volumes.iter().map(|volume| volume.name.as_str()))?;
    let spec = PodSpec {
        containers,
        init_containers: some(init_containers),
        volumes: Some(volumes.volumes),
        ..base_spec(vmi, config, ctx)?
    };
    Ok(Pod { metadata, spec: Some(spec), status: None })
}

/// The part of the Pod's spec that does not depend on its containers.
fn base_spec(vmi: &VirtualMachineInstance, config: &ClusterConfig, ctx: &Context) -> Result<PodSpec, Error> {
    let spec = &vmi.spec;
    let named = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let volume_account = spec.volumes.iter().find_map(|volume| volume.source().service_account());
    let account = volume_account.and_then(|account| named(&account.service_account_name));
    let istio = annotation(vmi, labels::ISTIO_INJECT).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let pull_secrets = container_disks::pull_secrets(vmi, ctx.launcher.pull_secret.as_deref());
    let pull_secrets = pull_secrets.into_iter().map(|name| LocalObjectReference { name: name.to_owned() });
    Ok(PodSpec {
        affinity: scheduling::affinity(vmi, config, ctx)?,
        automount_service_account_token: Some(account.is_some() || istio),
        dns_config: spec.dns_config.clone(),
        dns_policy: named(&spec.dns_policy),
        enable_service_links: Some(false),
        hostname: Some(metadata::hostname(vmi)),
        image_pull_secrets: some(pull_secrets.collect()),
        node_selector: Some(scheduling::node_selector(vmi, config)),
        priority_class_name: named(&spec.priority_class_name),
        readiness_gates: Some(vec![PodReadinessGate {
            condition_type: api::conditions::VIRTUAL_MACHINE_UNPAUSED.to_owned(),
        }]),
        resource_claims: some(spec.resource_claims.clone()),
        restart_policy: Some("Never".to_owned()),
        runtime_class_name: config.default_runtime_class().map(str::to_owned),
        scheduler_name: named(&spec.scheduler_name),
        security_context: Some(security_context(vmi, config)),
        service_account_name: named(&spec.service_account_name).or(account),
        subdomain: named(&spec.subdomain),
        termination_grace_period_seconds: Some(grace_period::pod(vmi)),
        tolerations: some(spec.tolerations.clone()),
        topology_spread_constraints: some(spec.topology_spread_constraints.clone()),
        ..PodSpec::default()
    })
}

/// The group owns the content of claims even if the launcher is root: the virtiofs servers are not.
fn security_context(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> PodSecurityContext {
    let non_root = non_root(vmi);
    let user = if non_root { NON_ROOT_USER } else { 0 };
    PodSecurityContext {
        fs_group: Some(NON_ROOT_USER),
        run_as_user: Some(user),
        run_as_group: non_root.then_some(NON_ROOT_USER),
        run_as_non_root: non_root.then_some(true),
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

/// Docker gives every container SELinux categories of its own, and containers without any are accessible to all.
fn share_selinux_level(containers: &mut [Container], config: &ClusterConfig) {
    for container in containers.iter_mut().filter(|container| container.name != COMPUTE) {
        let options = container.security_context.get_or_insert_default().se_linux_options.get_or_insert_default();
        options.type_ = config.selinux_launcher_type().map(str::to_owned);
        options.level = Some("s0".to_owned());
    }
}

/// Rejects a volume whose name the Pod reserves.
fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = std::collections::BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::VolumeName { name: name.to_owned() });
        }
    }
    Ok(())
}
