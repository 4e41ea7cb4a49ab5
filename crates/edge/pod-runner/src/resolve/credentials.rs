//! User, groups and capabilities of a container's processes.

use k8s_openapi::api::core::v1::{Container, PodSpec};
use podstate::Blocked;
use rustix::thread::CapabilitySet;

use super::misconfigured;
use crate::record::Credentials;

/// Default capabilities. MKNOD is not included, since there is no device filter for `/dev`.
const DEFAULT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// All capabilities of Linux, up to CHECKPOINT_RESTORE.
const ALL: CapabilitySet = CapabilitySet::from_bits_retain((CapabilitySet::CHECKPOINT_RESTORE.bits() << 1) - 1);

pub(super) fn resolve(spec: &PodSpec, container: &Container) -> Result<Credentials, Blocked> {
    let pod = spec.security_context.as_ref();
    let own = container.security_context.as_ref();
    let user = own.and_then(|c| c.run_as_user).or(pod.and_then(|p| p.run_as_user)).unwrap_or(0);
    let group = own.and_then(|c| c.run_as_group).or(pod.and_then(|p| p.run_as_group)).unwrap_or(0);
    let non_root = own.and_then(|c| c.run_as_non_root).or(pod.and_then(|p| p.run_as_non_root)).unwrap_or(false);
    if non_root && user == 0 {
        return Err(misconfigured(format!(
            "container {} has runAsNonRoot and would run as root: set runAsUser to another user's number",
            container.name
        )));
    }
    let mut groups = vec![];
    for number in pod.into_iter().flat_map(|p| p.supplemental_groups.iter().flatten().chain(&p.fs_group)) {
        groups.push(id("group", *number)?);
    }
    groups.sort_unstable();
    groups.dedup();
    let (bounding, added) = capabilities(container)?;
    Ok(Credentials {
        uid: id("runAsUser", user)?,
        gid: id("runAsGroup", group)?,
        groups,
        bounding: bounding.bits(),
        // Root gets its bounding set anyway; other users would lose an added capability at exec.
        ambient: if user == 0 { 0 } else { (added & bounding).bits() },
        no_new_privileges: own.and_then(|c| c.allow_privilege_escalation) == Some(false),
    })
}

pub(super) fn fs_group(spec: &PodSpec) -> Result<Option<u32>, Blocked> {
    spec.security_context.as_ref().and_then(|c| c.fs_group).map(|g| id("fsGroup", g)).transpose()
}

fn id(field: &str, number: i64) -> Result<u32, Blocked> {
    u32::try_from(number).map_err(|_| misconfigured(format!("{field} {number} is out of range")))
}

/// The bounding set, and the capabilities added by name.
fn capabilities(container: &Container) -> Result<(CapabilitySet, CapabilitySet), Blocked> {
    let asked = container.security_context.as_ref().and_then(|c| c.capabilities.clone()).unwrap_or_default();
    let parse = |names: Option<Vec<String>>| -> Result<Vec<CapabilitySet>, Blocked> {
        names.unwrap_or_default().iter().map(|n| capability(&container.name, n)).collect()
    };
    let (add, drop) = (parse(asked.add)?, parse(asked.drop)?);
    let added = add.iter().fold(CapabilitySet::empty(), |all, c| all | *c);
    let base = if drop.contains(&ALL) { CapabilitySet::empty() } else { DEFAULT };
    let dropped = drop.iter().filter(|c| **c != ALL).fold(CapabilitySet::empty(), |all, c| all | *c);
    Ok(((base | added) & !dropped, added))
}

fn capability(container: &str, name: &str) -> Result<CapabilitySet, Blocked> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if plain == "ALL" {
        return Ok(ALL);
    }
    CapabilitySet::from_name(plain)
        .ok_or_else(|| misconfigured(format!("container {container} names an unknown capability {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn credentials(pod: serde_json::Value, container: serde_json::Value) -> Result<Credentials, Blocked> {
        let spec = json!({"securityContext": pod, "containers": [{"name": "c", "securityContext": container}]});
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        resolve(&spec, &spec.containers[0])
    }

    #[test]
    fn a_launcher_keeps_one_capability_and_nothing_else() {
        let c = credentials(
            json!({"fsGroup": 107, "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true}),
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}}),
        );
        let only = CapabilitySet::NET_BIND_SERVICE.bits();
        let expected = Credentials {
            uid: 107,
            gid: 107,
            groups: vec![107],
            bounding: only,
            ambient: only,
            no_new_privileges: true,
        };
        assert_eq!(c.unwrap(), expected);
    }

    #[test]
    fn by_default_root_has_the_usual_capabilities_and_no_device_making() {
        let c = credentials(json!({}), json!({})).unwrap();
        let bounding = CapabilitySet::from_bits_retain(c.bounding);
        assert!(bounding.contains(CapabilitySet::NET_RAW));
        assert!(!bounding.intersects(CapabilitySet::MKNOD | CapabilitySet::SYS_ADMIN));
        assert_eq!((c.uid, c.ambient, c.no_new_privileges), (0, 0, false));
    }

    #[test]
    fn the_containers_wish_overrides_the_pods_and_drops_come_last() {
        let c = credentials(
            json!({"runAsUser": 1, "supplementalGroups": [5, 5]}),
            json!({"runAsUser": 2, "capabilities": {"add": ["CAP_SYS_NICE", "net_admin"], "drop": ["NET_ADMIN"]}}),
        )
        .unwrap();
        assert_eq!((c.uid, c.groups), (2, vec![5]));
        assert_eq!(c.ambient, CapabilitySet::SYS_NICE.bits());
    }

    #[test]
    fn impossible_wishes_wait_with_a_remedy() {
        let root = credentials(json!({"runAsNonRoot": true}), json!({})).unwrap_err();
        assert!(root.message.contains("set runAsUser"), "{}", root.message);
        let unknown = credentials(json!({}), json!({"capabilities": {"add": ["FLY"]}})).unwrap_err();
        assert!(unknown.message.contains("\"FLY\""), "{}", unknown.message);
        assert!(credentials(json!({"runAsUser": -1}), json!({})).is_err());
    }
}
