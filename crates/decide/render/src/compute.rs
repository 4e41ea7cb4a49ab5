//! The `compute` container: virt-launcher, and below it libvirtd and QEMU.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use api::{annotations, labels};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector, ResourceRequirements,
    SecurityContext,
};
use launcher_contract::{flags, paths, variables};

use crate::amount::parse;
use crate::context::Context;
use crate::error::Error;
use crate::pod_volumes::PodVolumes;
use crate::traits::{annotation, interfaces, label, non_root, requested};
use crate::{COMPUTE, NON_ROOT_USER, container_disks, grace_period, probes, traits};

/// The range over which the timeout for QEMU is spread between VMIs.
const QEMU_TIMEOUT_SPREAD: u64 = 120;
/// The verbosity above which libvirt and virtiofsd log everything.
const DEBUG_VERBOSITY: u64 = 5;
/// The launcher's default verbosity.
const DEFAULT_VERBOSITY: u64 = 2;

/// What the container does.
pub(crate) enum Work {
    /// Runs the guest.
    Guest {
        /// How many sidecars to wait for.
        sidecars: usize,
    },
    /// Exits at once: the Pod exists only so that its volumes are bound where it would run.
    Nothing,
}

pub(crate) fn container(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    work: &Work,
    resources: ResourceRequirements,
    volumes: &mut PodVolumes,
) -> Result<Container, Error> {
    let (command, args) = match work {
        Work::Guest { sidecars } => (vec!["virt-launcher"], args(vmi, config, ctx, *sidecars)?),
        Work::Nothing => (vec!["/bin/bash", "-c", "exit 0"], vec![]),
    };
    let non_root = non_root(vmi);
    Ok(Container {
        name: COMPUTE.to_owned(),
        command: Some(command.into_iter().map(str::to_owned).collect()),
        args: crate::some(args),
        env: Some(env(vmi, config, &volumes.shared_paths)?),
        liveness_probe: vmi.spec.liveness_probe.as_ref().map(|probe| probes::probe(vmi, probe)),
        ports: crate::some(ports(vmi)),
        readiness_probe: vmi.spec.readiness_probe.as_ref().map(|probe| probes::probe(vmi, probe)),
        resources: Some(resources),
        security_context: Some(SecurityContext { capabilities: Some(capabilities(non_root)), ..user(non_root) }),
        volume_devices: crate::some(std::mem::take(&mut volumes.devices)),
        volume_mounts: Some(std::mem::take(&mut volumes.mounts)),
        ..launcher_container(non_root, config)
    })
}

/// A container from the launcher's image, without capabilities.
pub(crate) fn launcher_container(non_root: bool, config: &ClusterConfig) -> Container {
    let none = Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) };
    Container {
        image: Some(config.launcher_image.clone()),
        image_pull_policy: Some(config.image_pull_policy().to_owned()),
        env: crate::some(if non_root { home() } else { vec![] }),
        security_context: Some(SecurityContext { capabilities: Some(none), ..user(non_root) }),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        ..Container::default()
    }
}

/// The launcher's command line. Flags for unused features are left out.
fn args(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    ctx: &Context,
    sidecars: usize,
) -> Result<Vec<String>, Error> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let images = container_disks::image_volumes(config);
    let architecture = traits::architecture(vmi, config);
    let with_value: [(&str, Option<String>); 13] = [
        (flags::QEMU_TIMEOUT, Some(format!("{}s", qemu_timeout(uid, ctx)))),
        (flags::NAME, vmi.metadata.name.clone()),
        (flags::UID, Some(uid.to_owned())),
        (flags::NAMESPACE, vmi.metadata.namespace.clone()),
        (flags::SHARE_DIRECTORY, Some(paths::SHARE.to_owned())),
        (flags::EPHEMERAL_DISK_DIRECTORY, Some(paths::EPHEMERAL_DISKS.to_owned())),
        (
            flags::CONTAINER_DISK_DIRECTORY,
            Some(if images { paths::CONTAINER_DISKS } else { paths::COPIED_CONTAINER_DISKS }.to_owned()),
        ),
        (flags::GRACE_PERIOD_SECONDS, Some(grace_period::launcher(vmi).to_string())),
        (flags::DISK_MEMORY_LIMIT, Some(disk_memory_limit(config)?.to_string())),
        (flags::HOOK_SIDECARS, (sidecars > 0).then(|| sidecars.to_string())),
        (flags::OVMF_PATH, traits::has_efi(vmi).then(|| config.ovmf_path(architecture).to_owned())),
        (flags::HYPERVISOR, Some(config.hypervisor().to_owned()).filter(|name| name != "kvm")),
        (flags::LIBVIRT_LOG_FILTERS, requested(vmi, annotations::LIBVIRT_LOG_FILTERS).map(str::to_owned)),
    ];
    let switches = [
        (flags::IMAGE_VOLUME, images),
        (flags::VGPU_DEDICATED_HOOK, config.feature_gate("VGPULiveMigration")),
        (flags::VM_STATS_COLLECTOR, config.feature_gate("VMStatsCollector")),
        (flags::FIRMWARE_AUTO_SELECTION, config.feature_gate("FirmwareAutoSelection")),
        (flags::ALLOW_EMULATION, config.use_emulation()),
        (flags::ALLOW_CROSS_ARCH_EMULATION, config.feature_gate("CrossArchitectureVirtualization")),
        (flags::KEEP_AFTER_FAILURE, requested(vmi, annotations::KEEP_LAUNCHER_ALIVE_AFTER_FAILURE).is_some()),
        (flags::SIMULATE_CRASH, annotation(vmi, annotations::SIMULATE_LAUNCHER_CRASH).is_some()),
    ];
    let with_value = with_value.into_iter().filter_map(|(flag, value)| Some([format!("--{flag}"), value?]));
    let switches = switches.into_iter().filter(|(_, on)| *on).map(|(flag, _)| format!("--{flag}"));
    Ok(with_value.flatten().chain(switches).collect())
}

/// The memory limit in bytes for inspecting a user's disk image.
fn disk_memory_limit(config: &ClusterConfig) -> Result<i64, Error> {
    let field = "spec.configuration.developerConfiguration.diskVerification.memoryLimit";
    Ok(parse(field, &config.disk_verification_memory_limit())?.value())
}

/// VMIs that start together should not time out together, so the timeout is spread; by UID, so that the same VMI always
/// gets the same Pod.
fn qemu_timeout(uid: &str, ctx: &Context) -> u64 {
    let hash = uid.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    ctx.launcher.qemu_timeout_seconds.saturating_add(hash % QEMU_TIMEOUT_SPREAD)
}

pub(crate) fn variable(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None }
}

/// libvirtd in session mode keeps its sockets, image metadata and logs below these directories.
pub(crate) fn home() -> Vec<EnvVar> {
    vec![
        variable(variables::XDG_CACHE_HOME, paths::PRIVATE),
        variable(variables::XDG_CONFIG_HOME, paths::PRIVATE),
        variable(variables::XDG_RUNTIME_DIR, paths::RUNTIME),
    ]
}

fn env(vmi: &VirtualMachineInstance, config: &ClusterConfig, shared_paths: &[String]) -> Result<Vec<EnvVar>, Error> {
    let mut all = if non_root(vmi) { home() } else { vec![] };
    if !shared_paths.is_empty() {
        all.push(variable(variables::SHARED_FILESYSTEM_PATHS, &shared_paths.join(":")));
    }
    let verbosity = log_verbosity(vmi, config)?;
    if label(vmi, labels::LOG_VERBOSITY).is_some() || verbosity != DEFAULT_VERBOSITY {
        all.push(variable(variables::LOG_VERBOSITY, &verbosity.to_string()));
    }
    for (name, key) in [
        (variables::LIBVIRT_DEBUG_LOGS, labels::DEBUG_LOGS),
        (variables::VIRTIOFSD_DEBUG_LOGS, labels::VIRTIOFSD_DEBUG_LOGS),
    ] {
        let asked = label(vmi, key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        if asked || verbosity > DEBUG_VERBOSITY {
            all.push(variable(name, "1"));
        }
    }
    let field = ObjectFieldSelector { field_path: "metadata.name".to_owned(), api_version: None };
    let from = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    all.push(EnvVar { name: variables::POD_NAME.to_owned(), value: None, value_from: Some(from) });
    Ok(all)
}

/// The launcher's log verbosity: from the VMI's label, else from the cluster configuration.
pub(crate) fn log_verbosity(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<u64, Error> {
    let Some(text) = label(vmi, labels::LOG_VERBOSITY) else { return Ok(config.launcher_log_verbosity()) };
    text.parse().map_err(|_| Error::Invalid {
        field: "metadata.labels.logVerbosity",
        value: text.to_owned(),
        remedy: "use a whole number of at least 0",
    })
}

/// The ports that the user listed. They have no effect by themselves; they document the Pod and name targets for
/// Services.
fn ports(vmi: &VirtualMachineInstance) -> Vec<ContainerPort> {
    let listed = interfaces(vmi).iter().flat_map(|interface| &interface.ports);
    listed
        .map(|port| ContainerPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            container_port: port.port,
            protocol: Some(port.protocol.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| "TCP".to_owned())),
            ..ContainerPort::default()
        })
        .collect()
}

/// The user of a launcher container: unprivileged without escalation, or root where the feature gate allows it.
pub(crate) fn user(non_root: bool) -> SecurityContext {
    let base = SecurityContext { run_as_non_root: Some(non_root), ..SecurityContext::default() };
    if !non_root {
        return SecurityContext { run_as_user: Some(0), ..base };
    }
    SecurityContext {
        run_as_user: Some(NON_ROOT_USER),
        run_as_group: Some(NON_ROOT_USER),
        allow_privilege_escalation: Some(false),
        ..base
    }
}

/// The DHCP server's port needs one capability; CPU pinning as root needs another.
fn capabilities(non_root: bool) -> Capabilities {
    let add: &[&str] = if non_root { &["NET_BIND_SERVICE"] } else { &["NET_BIND_SERVICE", "SYS_NICE"] };
    let drop = non_root.then(|| vec!["ALL".to_owned()]);
    Capabilities { add: Some(add.iter().map(|&name| name.to_owned()).collect()), drop }
}
