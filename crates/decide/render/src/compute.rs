//! The `compute` container: virt-launcher, and below it libvirtd and QEMU.

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, EnvVarSource, ObjectFieldSelector, ResourceRequirements,
    SecurityContext, VolumeMount,
};

use crate::amount::parse;
use crate::{COMPUTE, Error, NON_ROOT_USER, grace_period, paths};

/// The shortest time to wait for QEMU before the launcher gives up, and by how much instances differ in it.
const QEMU_TIMEOUT_SECONDS: u64 = 240;
const QEMU_TIMEOUT_SPREAD: u64 = 120;

pub(crate) fn container(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    resources: ResourceRequirements,
    mounts: Vec<VolumeMount>,
) -> Result<Container, Error> {
    let ports = ports(vmi);
    Ok(Container {
        name: COMPUTE.to_owned(),
        image: Some(config.launcher_image.clone()),
        image_pull_policy: Some(config.image_pull_policy().to_owned()),
        command: Some(vec!["virt-launcher".to_owned()]),
        args: Some(args(vmi, config)?),
        env: Some(env()),
        ports: (!ports.is_empty()).then_some(ports),
        resources: Some(resources),
        security_context: Some(security_context()),
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    })
}

fn args(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<Vec<String>, Error> {
    let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
    let flags: [(&str, &str); 9] = [
        ("--qemu-timeout", &format!("{}s", qemu_timeout(uid))),
        ("--name", vmi.metadata.name.as_deref().unwrap_or_default()),
        ("--uid", uid),
        ("--namespace", vmi.metadata.namespace.as_deref().unwrap_or_default()),
        ("--kubevirt-share-dir", paths::SHARE),
        ("--ephemeral-disk-dir", paths::EPHEMERAL_DISKS),
        ("--container-disk-dir", paths::CONTAINER_DISKS),
        ("--grace-period-seconds", &grace_period::launcher(vmi).to_string()),
        ("--disk-memory-limit", &disk_memory_limit(config)?.to_string()),
    ];
    let mut args: Vec<String> = flags.iter().flat_map(|(flag, value)| [flag, value]).map(|&s| s.to_owned()).collect();
    args.push("--image-volume".to_owned());
    if config.use_emulation() {
        args.push("--allow-emulation".to_owned());
    }
    Ok(args)
}

/// How many bytes a look into a tenant's disk image may take.
fn disk_memory_limit(config: &ClusterConfig) -> Result<i64, Error> {
    let field = "spec.configuration.developerConfiguration.diskVerification.memoryLimit";
    Ok(parse(field, &config.disk_verification_memory_limit())?.value())
}

/// Instances that start together should not give up together, so the timeout is spread; by UID, so that the same
/// instance always gets the same Pod.
fn qemu_timeout(uid: &str) -> u64 {
    let hash = uid.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    QEMU_TIMEOUT_SECONDS + hash % QEMU_TIMEOUT_SPREAD
}

fn env() -> Vec<EnvVar> {
    let fixed =
        |name: &str, value: &str| EnvVar { name: name.to_owned(), value: Some(value.to_owned()), value_from: None };
    let field = ObjectFieldSelector { field_path: "metadata.name".to_owned(), api_version: None };
    let from = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    vec![
        // libvirtd in session mode keeps its sockets, images' metadata and logs below these.
        fixed("XDG_CACHE_HOME", paths::PRIVATE),
        fixed("XDG_CONFIG_HOME", paths::PRIVATE),
        fixed("XDG_RUNTIME_DIR", "/var/run"),
        EnvVar { name: "POD_NAME".to_owned(), value: None, value_from: Some(from) },
    ]
}

/// The ports the user listed. They open nothing by themselves; they document the Pod and name targets for services.
fn ports(vmi: &VirtualMachineInstance) -> Vec<ContainerPort> {
    let listed = vmi.spec.domain.devices.interfaces.iter().flat_map(|interface| &interface.ports);
    listed
        .map(|port| ContainerPort {
            name: port.name.clone().filter(|name| !name.is_empty()),
            container_port: port.port,
            protocol: Some(port.protocol.clone().filter(|p| !p.is_empty()).unwrap_or_else(|| "TCP".to_owned())),
            ..ContainerPort::default()
        })
        .collect()
}

/// No root, no way to become root, and of all capabilities only the one the DHCP server's port needs.
fn security_context() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(NON_ROOT_USER),
        run_as_group: Some(NON_ROOT_USER),
        run_as_non_root: Some(true),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: Some(vec!["NET_BIND_SERVICE".to_owned()]),
            drop: Some(vec!["ALL".to_owned()]),
        }),
        ..SecurityContext::default()
    }
}
