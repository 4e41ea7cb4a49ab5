//! Features of Pods that this runner does not support. A Pod that uses one fails at once and says which: with partial
//! support it would only seem to work.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

/// The field, and why it is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {why}")]
pub struct Unsupported {
    pub field: String,
    pub why: &'static str,
}

fn refuse<T>(field: impl Into<String>, why: &'static str) -> Result<T, Unsupported> {
    Err(Unsupported { field: field.into(), why })
}

/// Looks for the first unsupported feature.
pub fn check(pod: &Pod) -> Result<&PodSpec, Unsupported> {
    let Some(spec) = &pod.spec else { return refuse("spec", "a Pod without a spec cannot run") };
    pod_fields(spec)?;
    for (list, containers) in
        [("initContainers", spec.init_containers.as_deref()), ("containers", Some(&*spec.containers))]
    {
        for (i, container) in containers.unwrap_or_default().iter().enumerate() {
            container_fields(&format!("spec.{list}[{i}]"), container)?;
        }
    }
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        volume_fields(&format!("spec.volumes[{i}]"), volume)?;
    }
    Ok(spec)
}

fn pod_fields(spec: &PodSpec) -> Result<(), Unsupported> {
    const SHARED: &str = "Pods of this node always have namespaces of their own";
    let yes = |flag: Option<bool>| flag == Some(true);
    let checks = [
        (yes(spec.host_network), "hostNetwork", SHARED),
        (yes(spec.host_pid), "hostPID", SHARED),
        (yes(spec.host_ipc), "hostIPC", SHARED),
        (yes(spec.share_process_namespace), "shareProcessNamespace", "every container has its own process namespace"),
        (spec.host_users == Some(false), "hostUsers", "user namespaces are not supported"),
        (spec.active_deadline_seconds.is_some(), "activeDeadlineSeconds", "deadlines are not supported"),
        (spec.runtime_class_name.is_some(), "runtimeClassName", "there is one runtime only"),
        (spec.ephemeral_containers.iter().flatten().next().is_some(), "ephemeralContainers", "not supported"),
        (spec.resource_claims.iter().flatten().next().is_some(), "resourceClaims", "not supported"),
    ];
    if let Some((_, field, why)) = checks.into_iter().find(|(bad, ..)| *bad) {
        return refuse(format!("spec.{field}"), why);
    }
    let context = spec.security_context.as_ref();
    if context.and_then(|c| c.sysctls.as_ref()).is_some_and(|s| !s.is_empty()) {
        return refuse("spec.securityContext.sysctls", "kernel settings of a Pod are not supported");
    }
    if context.and_then(|c| c.seccomp_profile.as_ref()).is_some_and(|p| p.type_ == "Localhost") {
        return refuse("spec.securityContext.seccompProfile", "profiles from files are not supported");
    }
    Ok(())
}

fn container_fields(path: &str, container: &Container) -> Result<(), Unsupported> {
    const PROBE: &str = "probes are not supported by this runner";
    let security = container.security_context.as_ref();
    let checks = [
        (container.liveness_probe.is_some(), "livenessProbe", PROBE),
        (container.readiness_probe.is_some(), "readinessProbe", PROBE),
        (container.startup_probe.is_some(), "startupProbe", PROBE),
        (container.lifecycle.is_some(), "lifecycle", "lifecycle hooks are not supported"),
        (container.restart_policy.is_some(), "restartPolicy", "sidecar containers are not supported by this runner"),
        (container.tty == Some(true), "tty", "terminals are not supported"),
        (container.stdin == Some(true), "stdin", "standard input is not supported"),
        (security.is_some_and(|s| s.privileged == Some(true)), "securityContext.privileged", "not supported"),
        (
            security.and_then(|s| s.proc_mount.as_deref()).is_some_and(|m| m != "Default"),
            "securityContext.procMount",
            "only Default is supported",
        ),
        (
            security.and_then(|s| s.seccomp_profile.as_ref()).is_some_and(|p| p.type_ == "Localhost"),
            "securityContext.seccompProfile",
            "profiles from files are not supported",
        ),
    ];
    if let Some((_, field, why)) = checks.into_iter().find(|(bad, ..)| *bad) {
        return refuse(format!("{path}.{field}"), why);
    }
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if mount.mount_propagation.as_deref().is_some_and(|p| !matches!(p, "None" | "HostToContainer")) {
            let field = format!("{path}.volumeMounts[{i}].mountPropagation");
            return refuse(field, "what a container mounts stays in the container; use None or HostToContainer");
        }
        if mount.sub_path_expr.is_some() {
            return refuse(format!("{path}.volumeMounts[{i}].subPathExpr"), "not supported; use subPath");
        }
    }
    Ok(())
}

fn volume_fields(path: &str, volume: &Volume) -> Result<(), Unsupported> {
    if let Some(medium) = volume.empty_dir.as_ref().and_then(|e| e.medium.as_deref())
        && !matches!(medium, "" | "Memory")
    {
        return refuse(format!("{path}.emptyDir.medium"), "only the default and Memory are supported");
    }
    let known = volume.empty_dir.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.host_path.is_some()
        || volume.image.is_some()
        || volume.persistent_volume_claim.is_some();
    if known {
        return Ok(());
    }
    refuse(
        path,
        "only emptyDir, configMap, secret, downwardAPI, hostPath, image and persistentVolumeClaim volumes are supported by this runner",
    )
}
