//! The claims of a Pod: which volume stands behind each, or why the Pod has to wait for it.
//!
//! A Pod starts when all its claims are there, bound, not being deleted, and of the mode that its containers expect. The
//! words are the kubelet's, since people search for them.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PodSpec};
use volumeplan::AccessMode;

use crate::{Blocked, FAILED_MOUNT, containers};

const BLOCK: &str = "Block";
const FILESYSTEM: &str = "Filesystem";

/// A claim as a Pod names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'a> {
    pub namespace: &'a str,
    pub claim: &'a str,
    /// The volume's name in the Pod.
    pub volume: &'a str,
    pub read_only: bool,
    pub uses: Uses,
}

/// How containers use a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    pub mounted: bool,
    pub as_device: bool,
}

/// How the containers of a Pod use one of its volumes.
pub fn uses(spec: &PodSpec, volume: &str) -> Uses {
    let mut mounts = containers(spec).flat_map(|c| c.volume_mounts.iter().flatten());
    let mut devices = containers(spec).flat_map(|c| c.volume_devices.iter().flatten());
    Uses { mounted: mounts.any(|m| m.name == volume), as_device: devices.any(|d| d.name == volume) }
}

/// The volume behind a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The PersistentVolume's name.
    pub persistent_volume: String,
    pub block: bool,
    pub read_only: bool,
    pub backing: Backing,
}

/// Where its content is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// In the pool of the volume engine.
    Pool { handle: String, mode: AccessMode, mount_options: Vec<String> },
    /// A directory of the machine.
    Directory(PathBuf),
}

/// Looks behind a claim. `driver` is the name of our own volumes' driver.
pub fn claimed(
    wanted: &Wanted<'_>,
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&PersistentVolume>,
    driver: &str,
) -> Result<Claimed, Blocked> {
    let why = |why: String| wanted.blocked(&format!("error processing PVC {}: {why}", wanted.full_name()));
    let claim = claim.ok_or_else(|| why(format!("persistentvolumeclaim {:?} not found", wanted.claim)))?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(why("PVC is being deleted".to_owned()));
    }
    let name = bound_to(claim).map_err(|text| why(text.to_owned()))?;
    let missing = || why(format!("failed to fetch PV {name} from API server: it does not exist"));
    let spec = volume.ok_or_else(missing)?.spec.as_ref().ok_or_else(missing)?;
    let owner = spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_deref());
    if owner != claim.metadata.uid.as_deref() {
        return Err(why(format!("PV {name} is not bound to this claim (its claimRef names another one)")));
    }
    let mode = spec.volume_mode.as_deref().unwrap_or(FILESYSTEM);
    let block = mode == BLOCK;
    let wrong = |field: &str| {
        wanted.blocked(&format!(
            "volume {} has volumeMode {mode}, but is specified in {field} (PVC {})",
            wanted.volume,
            wanted.full_name()
        ))
    };
    match wanted.uses {
        Uses { mounted: true, .. } if block => return Err(wrong("volumeMounts")),
        Uses { as_device: true, .. } if !block => return Err(wrong("volumeDevices")),
        _ => {}
    }
    let mut read_only = wanted.read_only;
    let backing = if let Some(csi) = spec.csi.as_ref().filter(|csi| csi.driver == driver) {
        read_only |= csi.read_only == Some(true);
        let mode = access_mode(spec.access_modes.as_deref().unwrap_or_default(), read_only);
        let mount_options = spec.mount_options.clone().unwrap_or_default();
        Backing::Pool { handle: csi.volume_handle.clone(), mode, mount_options }
    } else if let Some(directory) = spec.host_path.as_ref().map(|h| &h.path).or(spec.local.as_ref().map(|l| &l.path))
        && !block
    {
        Backing::Directory(PathBuf::from(directory))
    } else {
        return Err(why(format!(
            "PV {name} is of a type that this node cannot mount; it mounts volumes of {driver}, and hostPath and local \
             volumes that are directories"
        )));
    };
    Ok(Claimed { persistent_volume: name.to_owned(), block, read_only, backing })
}

fn bound_to(claim: &PersistentVolumeClaim) -> Result<&str, &'static str> {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    match phase {
        Some("Lost") => Err("its PersistentVolume is gone (the claim is Lost)"),
        Some("Bound") if !name.is_empty() => Ok(name),
        _ => Err("PVC is not bound"),
    }
}

/// What the volume's access modes mean to the engine. A volume of several modes is used by the one that lets most users
/// in beside a Pod like this.
fn access_mode(modes: &[String], read_only: bool) -> AccessMode {
    let has = |mode: &str| modes.iter().any(|m| m == mode);
    if has("ReadWriteMany") {
        AccessMode::MultiNodeMultiWriter
    } else if has("ReadWriteOncePod") {
        AccessMode::SingleNodeSingleWriter
    } else if has("ReadOnlyMany") && (read_only || !has("ReadWriteOnce")) {
        AccessMode::MultiNodeReaderOnly
    } else {
        AccessMode::SingleNodeMultiWriter
    }
}

impl Wanted<'_> {
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.claim)
    }

    fn blocked(&self, why: &str) -> Blocked {
        Blocked { reason: FAILED_MOUNT, message: format!("Unable to attach or mount volume {}: {why}", self.volume) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const DRIVER: &str = "csi.ferrovirt.io";

    fn claim(change: Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "disk", "namespace": "shop", "uid": "u1"},
            "spec": {"volumeName": "pvc-u1"},
            "status": {"phase": "Bound"},
        });
        merge(&mut claim, change);
        serde_json::from_value(claim).unwrap()
    }

    fn volume(change: Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": "pvc-u1"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "claimRef": {"uid": "u1"},
                "csi": {"driver": DRIVER, "volumeHandle": "vol-1"}},
        });
        merge(&mut volume, change);
        serde_json::from_value(volume).unwrap()
    }

    fn merge(into: &mut Value, from: Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                from.into_iter().for_each(|(key, value)| merge(into.entry(key).or_insert(Value::Null), value));
            }
            (into, from) => *into = from,
        }
    }

    fn wanted(uses: Uses) -> Wanted<'static> {
        Wanted { namespace: "shop", claim: "disk", volume: "root", read_only: false, uses }
    }

    const MOUNTED: Uses = Uses { mounted: true, as_device: false };
    const DEVICE: Uses = Uses { mounted: false, as_device: true };

    #[test]
    fn a_bound_claim_leads_to_its_volume() {
        let block = volume(json!({"spec": {"volumeMode": "Block", "accessModes": ["ReadWriteMany"]}}));
        for (uses, volume, block, mode) in [
            (MOUNTED, volume(json!({})), false, AccessMode::SingleNodeMultiWriter),
            (Uses::default(), volume(json!({})), false, AccessMode::SingleNodeMultiWriter),
            (DEVICE, block.clone(), true, AccessMode::MultiNodeMultiWriter),
            (Uses::default(), block, true, AccessMode::MultiNodeMultiWriter),
        ] {
            let found = claimed(&wanted(uses), Some(&claim(json!({}))), Some(&volume), DRIVER).unwrap();
            let backing = Backing::Pool { handle: "vol-1".to_owned(), mode, mount_options: vec![] };
            let expected = Claimed { persistent_volume: "pvc-u1".to_owned(), block, read_only: false, backing };
            assert_eq!(found, expected);
        }
        let host = volume(json!({"spec": {"csi": null, "hostPath": {"path": "/srv"}}}));
        let found = claimed(&wanted(MOUNTED), Some(&claim(json!({}))), Some(&host), DRIVER).unwrap();
        assert_eq!(found.backing, Backing::Directory("/srv".into()));
    }

    #[test]
    fn a_claim_that_cannot_be_used_is_named_with_the_reason() {
        let block = json!({"spec": {"volumeMode": "Block"}});
        for (uses, claim, volume, expected) in [
            (MOUNTED, None, None, "error processing PVC shop/disk: persistentvolumeclaim \"disk\" not found"),
            (
                MOUNTED,
                Some(claim(json!({"metadata": {"deletionTimestamp": "1970-01-01T00:00:00Z"}}))),
                Some(volume(json!({}))),
                "error processing PVC shop/disk: PVC is being deleted",
            ),
            (
                MOUNTED,
                Some(claim(json!({"status": {"phase": "Pending"}, "spec": {"volumeName": null}}))),
                None,
                "error processing PVC shop/disk: PVC is not bound",
            ),
            (MOUNTED, Some(claim(json!({"status": {"phase": "Lost"}}))), None, "the claim is Lost"),
            (MOUNTED, Some(claim(json!({}))), None, "failed to fetch PV pvc-u1"),
            (
                MOUNTED,
                Some(claim(json!({}))),
                Some(volume(json!({"spec": {"claimRef": {"uid": "u2"}}}))),
                "PV pvc-u1 is not bound to this claim",
            ),
            (
                MOUNTED,
                Some(claim(json!({}))),
                Some(volume(block.clone())),
                "volume root has volumeMode Block, but is specified in volumeMounts (PVC shop/disk)",
            ),
            (
                DEVICE,
                Some(claim(json!({}))),
                Some(volume(json!({}))),
                "volume root has volumeMode Filesystem, but is specified in volumeDevices (PVC shop/disk)",
            ),
            (
                MOUNTED,
                Some(claim(json!({}))),
                Some(volume(json!({"spec": {"csi": {"driver": "nfs.csi.k8s.io"}}}))),
                "PV pvc-u1 is of a type that this node cannot mount",
            ),
        ] {
            let blocked = claimed(&wanted(uses), claim.as_ref(), volume.as_ref(), DRIVER).unwrap_err();
            assert_eq!(blocked.reason, FAILED_MOUNT);
            assert!(blocked.message.contains(expected), "{}", blocked.message);
            assert!(blocked.message.starts_with("Unable to attach or mount volume root: "), "{}", blocked.message);
        }
    }

    #[test]
    fn access_modes_become_those_of_the_engine() {
        for (modes, read_only, expected) in [
            (&["ReadWriteOnce"][..], false, AccessMode::SingleNodeMultiWriter),
            (&["ReadWriteOncePod"], false, AccessMode::SingleNodeSingleWriter),
            (&["ReadOnlyMany"], false, AccessMode::MultiNodeReaderOnly),
            (&["ReadWriteOnce", "ReadOnlyMany"], false, AccessMode::SingleNodeMultiWriter),
            (&["ReadWriteOnce", "ReadOnlyMany"], true, AccessMode::MultiNodeReaderOnly),
            (&["ReadWriteOnce", "ReadWriteMany"], false, AccessMode::MultiNodeMultiWriter),
            (&[], false, AccessMode::SingleNodeMultiWriter),
        ] {
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            assert_eq!(access_mode(&modes, read_only), expected, "{modes:?}");
        }
    }

    #[test]
    fn all_containers_are_asked_how_they_use_a_volume() {
        let spec: PodSpec = serde_json::from_value(json!({
            "initContainers": [{"name": "i", "volumeDevices": [{"name": "b", "devicePath": "/dev/b"}]}],
            "containers": [{"name": "c", "volumeMounts": [{"name": "a", "mountPath": "/a"}]}],
        }))
        .unwrap();
        assert_eq!((uses(&spec, "a"), uses(&spec, "b"), uses(&spec, "x")), (MOUNTED, DEVICE, Uses::default()));
    }
}
