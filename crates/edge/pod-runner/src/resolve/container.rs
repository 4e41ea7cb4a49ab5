//! One container: its root, command, environment, mounts and limits.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Container;
use podstate::Blocked;

use super::environment::{expand, variables};
use super::volumes::{VolumePlan, image};
use super::{Resolver, credentials, misconfigured, resources};
use crate::record::{BlockDevice, ContainerSpec, Credentials, MountSpec, TerminationMessage};

/// Where containers find the program, first in their PATH.
pub(crate) const PROGRAM_DIR: &str = "/ferrovirt/bin";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(super) fn resolve(
    r: &Resolver<'_>,
    container: &Container,
    volumes: &BTreeMap<String, VolumePlan>,
) -> Result<ContainerSpec, Blocked> {
    let reference = container.image.as_deref().unwrap_or_default();
    let root = image(r, reference, container.image_pull_policy.as_deref())?.source();
    let credentials = credentials::resolve(r.spec, container)?;
    let env = environment(r, container, &credentials)?;
    let argv: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).map(|a| expand(a, &env)).collect();
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        return Err(misconfigured(format!(
            "container {} has no command, and images of this node have no default one: set command",
            container.name
        )));
    }
    let security = container.security_context.as_ref();
    Ok(ContainerSpec {
        name: container.name.clone(),
        root,
        read_only_root: security.and_then(|s| s.read_only_root_filesystem) == Some(true),
        argv,
        env,
        cwd: container.working_dir.clone().unwrap_or_else(|| "/".to_owned()),
        mounts: mounts(container, volumes)?,
        devices: resources::devices(container),
        block_devices: block_devices(r, container, volumes, &credentials)?,
        credentials,
        limits: resources::limits(container)?,
        oom_score_adj: resources::oom_score_adj(r.spec, container, r.node.memory_bytes)?,
        termination: TerminationMessage {
            path: container.termination_message_path.clone().unwrap_or_else(|| "/dev/termination-log".to_owned()),
            fall_back_to_logs: container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError"),
        },
    })
}

fn environment(
    r: &Resolver<'_>,
    container: &Container,
    credentials: &Credentials,
) -> Result<BTreeMap<String, String>, Blocked> {
    let mut env = variables(r, container)?;
    let path = env.get("PATH").map_or(PATH, String::as_str);
    env.insert("PATH".to_owned(), format!("{PROGRAM_DIR}:{path}"));
    env.entry("HOSTNAME".to_owned()).or_insert_with(|| r.hostname.clone());
    env.entry("HOME".to_owned()).or_insert_with(|| home(credentials.uid).to_owned());
    Ok(env)
}

/// A user's home directory, as in the generated `/etc/passwd`.
pub(crate) fn home(uid: u32) -> &'static str {
    match uid {
        0 => "/root",
        107 => "/home/qemu",
        _ => "/",
    }
}

/// The container's user and group own its devices, as with containerd's `device_ownership_from_security_context`.
fn block_devices(
    r: &Resolver<'_>,
    container: &Container,
    volumes: &BTreeMap<String, VolumePlan>,
    credentials: &Credentials,
) -> Result<Vec<BlockDevice>, Blocked> {
    let own = container.security_context.as_ref().and_then(|c| c.run_as_group);
    let group = own.or(r.spec.security_context.as_ref().and_then(|c| c.run_as_group));
    let gid = match (group, credentials::fs_group(r.spec)?) {
        (None, Some(fs_group)) => fs_group,
        _ => credentials.gid,
    };
    let mut devices = Vec::new();
    for device in container.volume_devices.iter().flatten() {
        let Some(source) = volumes.get(&device.name).and_then(VolumePlan::block_device) else {
            return Err(misconfigured(format!(
                "container {} uses the volume {} as a device, and it is none",
                container.name, device.name
            )));
        };
        is_below_root("device path", &device.device_path)?;
        let target = device.device_path.clone();
        devices.push(BlockDevice { source: source.clone(), target, uid: credentials.uid, gid });
    }
    Ok(devices)
}

fn climbs(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

fn is_below_root(what: &str, path: &str) -> Result<(), Blocked> {
    let names = path.split('/').filter(|part| !part.is_empty()).count();
    if path.starts_with('/') && names > 0 && !climbs(path) {
        return Ok(());
    }
    Err(misconfigured(format!("{what} {path:?} must be absolute, below / and without \"..\"")))
}

/// Sorted so that parents come before mounts inside them.
fn mounts(container: &Container, volumes: &BTreeMap<String, VolumePlan>) -> Result<Vec<MountSpec>, Blocked> {
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let Some(volume) = volumes.get(&mount.name) else {
            return Err(misconfigured(format!(
                "container {} mounts a volume {} that is not there",
                container.name, mount.name
            )));
        };
        is_below_root("mount path", &mount.mount_path)?;
        let sub_path = mount.sub_path.clone().filter(|p| !p.is_empty());
        if sub_path.as_deref().is_some_and(|p| p.starts_with('/') || climbs(p)) {
            return Err(misconfigured(format!("subPath {sub_path:?} must be relative and without \"..\"")));
        }
        mounts.push(MountSpec {
            source: volume.source(),
            sub_path,
            target: mount.mount_path.clone(),
            read_only: volume.read_only() || mount.read_only == Some(true),
            follows_node: mount.mount_propagation.as_deref() == Some("HostToContainer"),
        });
    }
    mounts.sort_by_key(|m| m.target.split('/').filter(|part| !part.is_empty()).count());
    Ok(mounts)
}
