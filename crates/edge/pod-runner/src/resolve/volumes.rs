//! What must be on disk before a Pod starts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret, Volume};
use podstate::claims::{Backing, Wanted, claimed, uses};
use podstate::{Blocked, NEVER_PULL, PULL_ERROR};

use super::{Resolver, misconfigured, resources};
use crate::images::{self, ImageRoot};
use crate::record::MountSource;
use crate::storage::Need;

/// A volume: its directory and how it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum VolumePlan {
    EmptyDir {
        dir: PathBuf,
    },
    /// A memory-backed directory.
    MemoryDir {
        dir: PathBuf,
        size: Option<u64>,
    },
    Files {
        dir: PathBuf,
        files: BTreeMap<String, FileContent>,
    },
    HostPath {
        path: PathBuf,
        kind: HostPathKind,
    },
    Image {
        dir: PathBuf,
    },
    Claim {
        /// A directory, or the node of a block device.
        path: PathBuf,
        need: Need,
    },
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FileContent {
    pub(crate) bytes: Vec<u8>,
    pub(crate) mode: u32,
}

/// Redacted, since the content may come from a Secret.
impl std::fmt::Debug for FileContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes, mode {:o}", self.bytes.len(), self.mode)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostPathKind {
    Any,
    Directory,
    DirectoryOrCreate,
    File,
}

impl VolumePlan {
    pub(super) fn source(&self) -> MountSource {
        match self {
            VolumePlan::EmptyDir { dir } | VolumePlan::MemoryDir { dir, .. } | VolumePlan::Files { dir, .. } => {
                MountSource::Path(dir.clone())
            }
            VolumePlan::HostPath { path, .. } | VolumePlan::Claim { path, .. } => MountSource::Path(path.clone()),
            VolumePlan::Image { dir } => MountSource::Image(dir.clone()),
        }
    }

    /// Images are shared, and containers must not change what comes from the API server.
    pub(super) fn read_only(&self) -> bool {
        match self {
            VolumePlan::Image { .. } | VolumePlan::Files { .. } => true,
            VolumePlan::Claim { need, .. } => need.claimed.read_only,
            VolumePlan::EmptyDir { .. } | VolumePlan::MemoryDir { .. } | VolumePlan::HostPath { .. } => false,
        }
    }

    /// The node of a block device, if it is one.
    pub(super) fn block_device(&self) -> Option<&PathBuf> {
        match self {
            VolumePlan::Claim { path, need } if need.claimed.block => Some(path),
            _ => None,
        }
    }
}

pub(super) fn plan(r: &Resolver<'_>) -> Result<BTreeMap<String, VolumePlan>, Blocked> {
    r.spec.volumes.iter().flatten().map(|v| Ok((v.name.clone(), plan_one(r, v)?))).collect()
}

fn plan_one(r: &Resolver<'_>, volume: &Volume) -> Result<VolumePlan, Blocked> {
    let dir = |plugin: &str| r.paths.volume(plugin, &volume.name);
    if let Some(empty) = &volume.empty_dir {
        let size = empty.size_limit.as_ref().map(resources::bytes).transpose()?;
        return Ok(match empty.medium.as_deref() {
            Some("Memory") => VolumePlan::MemoryDir { dir: dir("empty-dir"), size },
            _ => VolumePlan::EmptyDir { dir: dir("empty-dir") },
        });
    }
    if let Some(source) = &volume.config_map {
        let map = r.config_map(&source.name, source.optional)?;
        let all = map.map(config_map_files).unwrap_or_default();
        let files =
            select(all, source.items.as_deref(), source.default_mode, map.is_none(), "ConfigMap", &source.name)?;
        return Ok(VolumePlan::Files { dir: dir("configmap"), files });
    }
    if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let secret = r.secret(name, source.optional)?;
        let all = secret.map(secret_files).unwrap_or_default();
        let files = select(all, source.items.as_deref(), source.default_mode, secret.is_none(), "Secret", name)?;
        return Ok(VolumePlan::Files { dir: dir("secret"), files });
    }
    if let Some(source) = &volume.downward_api {
        let mut files = BTreeMap::new();
        for item in source.items.iter().flatten() {
            let mode = item.mode.or(source.default_mode);
            let Some(field) = &item.field_ref else {
                return Err(misconfigured(format!("volume {}: only fieldRef is supported", volume.name)));
            };
            let bytes = r.field(&field.field_path)?.into_bytes();
            files.insert(file_name(&item.path)?, FileContent { bytes, mode: file_mode(mode) });
        }
        return Ok(VolumePlan::Files { dir: dir("downward-api"), files });
    }
    if let Some(source) = &volume.host_path {
        let kind = match source.type_.as_deref() {
            None | Some("") => HostPathKind::Any,
            Some("Directory") => HostPathKind::Directory,
            Some("DirectoryOrCreate") => HostPathKind::DirectoryOrCreate,
            Some("File") => HostPathKind::File,
            Some(other) => {
                return Err(misconfigured(format!("volume {}: host path type {other} is not supported", volume.name)));
            }
        };
        return Ok(VolumePlan::HostPath { path: PathBuf::from(&source.path), kind });
    }
    if let Some(source) = &volume.image {
        let reference = source.reference.as_deref().unwrap_or_default();
        return match image(r, reference, source.pull_policy.as_deref())? {
            ImageRoot::Stored(dir) => Ok(VolumePlan::Image { dir }),
            ImageRoot::Host => Err(misconfigured(format!("volume {}: the host's image is no volume", volume.name))),
        };
    }
    if let Some(source) = &volume.persistent_volume_claim {
        return claim(r, &volume.name, &source.claim_name, source.read_only == Some(true));
    }
    Err(misconfigured(format!("volume {} has no source", volume.name)))
}

/// Looks behind a claim. One that no container uses is brought to the node all the same: a hot-plugged volume that has
/// reached its guest stays in the attachment Pod like this.
fn claim(r: &Resolver<'_>, volume: &str, claim: &str, read_only: bool) -> Result<VolumePlan, Blocked> {
    let namespace = r.pod.metadata.namespace.as_deref().unwrap_or_default();
    let wanted = Wanted { namespace, claim, volume, read_only, uses: uses(r.spec, volume) };
    let found = r.inputs.claims.get(claim);
    let (object, bound) = (found.and_then(|found| found.claim.as_ref()), found.and_then(|found| found.volume.as_ref()));
    let claimed = claimed(&wanted, object, bound, volumes::csi::DRIVER_NAME)?;
    let path = match &claimed.backing {
        Backing::Pool { .. } => r.paths.claim(&file_name(&claimed.persistent_volume)?, claimed.block),
        Backing::Directory(path) => path.clone(),
    };
    Ok(VolumePlan::Claim { path, need: Need { claim: wanted.full_name(), claimed } })
}

/// Looks up an image in the store. A missing image may be imported later, so this blocks the Pod.
pub(super) fn image(r: &Resolver<'_>, reference: &str, pull_policy: Option<&str>) -> Result<ImageRoot, Blocked> {
    images::resolve(&r.node.images_dir, reference).map_err(|missing| Blocked {
        reason: if pull_policy == Some("Never") { NEVER_PULL } else { PULL_ERROR },
        message: missing.to_string(),
    })
}

fn config_map_files(map: &ConfigMap) -> BTreeMap<String, Vec<u8>> {
    let text = map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone()));
    text.chain(binary).collect()
}

fn secret_files(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    secret.data.iter().flatten().map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

/// All keys, or the listed ones at the listed paths.
fn select(
    mut all: BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    default_mode: Option<i32>,
    absent: bool,
    kind: &str,
    name: &str,
) -> Result<BTreeMap<String, FileContent>, Blocked> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        let file = |(key, bytes)| Ok((file_name(key)?, FileContent { bytes, mode: file_mode(default_mode) }));
        return all.iter().map(|(key, bytes)| (key.as_str(), bytes.clone())).map(file).collect();
    };
    let mut files = BTreeMap::new();
    for item in items {
        match all.remove(&item.key) {
            Some(bytes) => {
                let mode = file_mode(item.mode.or(default_mode));
                files.insert(file_name(&item.path)?, FileContent { bytes, mode });
            }
            None if absent => {} // the whole object is optional
            None => return Err(misconfigured(format!("{kind} {name} has no key {}", item.key))),
        }
    }
    Ok(files)
}

fn file_mode(mode: Option<i32>) -> u32 {
    mode.and_then(|m| u32::try_from(m).ok()).unwrap_or(0o644) & 0o777
}

/// Files are placed directly in the volume; paths with subdirectories or `..` are rejected.
fn file_name(path: &str) -> Result<String, Blocked> {
    let plain = !path.is_empty() && path != "." && path != ".." && !path.contains(['/', '\0']);
    if plain { Ok(path.to_owned()) } else { Err(misconfigured(format!("{path:?} cannot be a file of a volume"))) }
}

impl Resolver<'_> {
    pub(super) fn config_map(&self, name: &str, optional: Option<bool>) -> Result<Option<&ConfigMap>, Blocked> {
        found(self.inputs.config_maps.get(name).and_then(Option::as_ref), optional, "ConfigMap", name)
    }

    pub(super) fn secret(&self, name: &str, optional: Option<bool>) -> Result<Option<&Secret>, Blocked> {
        found(self.inputs.secrets.get(name).and_then(Option::as_ref), optional, "Secret", name)
    }
}

fn found<'a, T>(
    object: Option<&'a T>,
    optional: Option<bool>,
    kind: &str,
    name: &str,
) -> Result<Option<&'a T>, Blocked> {
    if object.is_none() && optional != Some(true) {
        return Err(misconfigured(format!("{kind} {name} does not exist")));
    }
    Ok(object)
}
