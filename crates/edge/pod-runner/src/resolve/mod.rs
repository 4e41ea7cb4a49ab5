//! Resolves a Pod into what a shim can run: looks up references, sets defaults, and rejects everything that is not
//! supported. It reads no files except the image store's directory.
//!
//! Three outcomes: a [`ShimSpec`] with the volumes to prepare; [`Blocked`], which is transient (a missing image or
//! ConfigMap); [`podstate::Unsupported`], which is permanent.

mod container;
mod credentials;
mod environment;
mod etc;
mod resources;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, Container, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec, Secret};
use podstate::{Blocked, CONFIG_ERROR, containers, restart_policy};

use crate::ownership;
use crate::paths::PodPaths;
use crate::record::ShimSpec;

pub(crate) use container::{PROGRAM_DIR, home};
pub use etc::Dns;
pub(crate) use resources::amounts;
pub(crate) use volumes::{FileContent, HostPathKind, VolumePlan};

fn misconfigured(message: impl Into<String>) -> Blocked {
    Blocked { reason: CONFIG_ERROR, message: message.into() }
}

/// Facts about the node that Pods can see.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    pub name: String,
    pub address: Ipv4Addr,
    pub images_dir: PathBuf,
    pub exe: PathBuf,
    pub dns: Dns,
    pub memory_bytes: u64,
}

/// Objects that the Pod refers to, by name; `None` for missing ones.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub config_maps: BTreeMap<String, Option<ConfigMap>>,
    pub secrets: BTreeMap<String, Option<Secret>>,
    pub claims: BTreeMap<String, Claim>,
}

/// A claim with the volume it is bound to.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    pub claim: Option<PersistentVolumeClaim>,
    pub volume: Option<PersistentVolume>,
}

/// The names of the objects that [`Inputs`] must contain for a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct References {
    pub(crate) config_maps: BTreeSet<String>,
    pub(crate) secrets: BTreeSet<String>,
    pub(crate) claims: BTreeSet<String>,
}

pub(crate) fn references(spec: &PodSpec) -> References {
    let mut found = References::default();
    for volume in spec.volumes.iter().flatten() {
        found.config_maps.extend(volume.config_map.as_ref().map(|c| c.name.clone()));
        found.secrets.extend(volume.secret.as_ref().and_then(|s| s.secret_name.clone()));
        found.claims.extend(volume.persistent_volume_claim.as_ref().map(|c| c.claim_name.clone()));
    }
    for container in containers(spec) {
        environment::references(container, &mut found);
    }
    found
}

/// A resolved Pod: the shim's spec, and the volumes that must be prepared first.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub(crate) spec: ShimSpec,
    pub(crate) volumes: BTreeMap<String, VolumePlan>,
    /// Group of the volumes' files.
    pub(crate) fs_group: Option<ownership::Group>,
}

/// The input of a resolution.
struct Resolver<'a> {
    pod: &'a Pod,
    spec: &'a PodSpec,
    paths: &'a PodPaths,
    node: &'a NodeFacts,
    inputs: &'a Inputs,
    address: Ipv4Addr,
    hostname: String,
}

pub(crate) fn resolve(
    pod: &Pod,
    spec: &PodSpec,
    paths: &PodPaths,
    node: &NodeFacts,
    inputs: &Inputs,
    address: Ipv4Addr,
    cgroup: &str,
) -> Result<Resolved, Blocked> {
    let hostname = etc::hostname(pod, spec);
    let resolver = Resolver { pod, spec, paths, node, inputs, address, hostname };
    let volumes = volumes::plan(&resolver)?;
    let all = |containers: Option<&Vec<Container>>| -> Result<Vec<_>, Blocked> {
        containers.into_iter().flatten().map(|c| container::resolve(&resolver, c, &volumes)).collect()
    };
    let shim = ShimSpec {
        hostname: resolver.hostname.clone(),
        restart_policy: restart_policy(spec),
        cgroup: cgroup.to_owned(),
        etc: etc::files(&resolver),
        exe: node.exe.clone(),
        init_containers: all(spec.init_containers.as_ref())?,
        containers: all(Some(&spec.containers))?,
    };
    let policy = spec.security_context.as_ref().and_then(|c| c.fs_group_change_policy.as_deref());
    let on_root_mismatch = policy == Some("OnRootMismatch");
    let fs_group = credentials::fs_group(spec)?.map(|gid| ownership::Group { gid, on_root_mismatch });
    Ok(Resolved { spec: shim, volumes, fs_group })
}

#[cfg(test)]
mod tests;
