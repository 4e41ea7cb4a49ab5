//! Pods that bring hot-plugged claims to the node of a running guest.
//!
//! Volumes cannot be added to a running launcher Pod. An *attachment Pod* mounts them on the same node instead, and
//! virt-handler passes them on; a *trigger Pod* only triggers the binding of one claim to that node.
//!
//! Both are owned by the launcher Pod and end with it. Their names are derived from it and from their claims, so that a
//! second attempt to create one collides with the first.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use api::{annotations, labels};
use k8s_openapi::api::core::v1::{
    Affinity, Container, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinity,
    PodAffinityTerm, PodSecurityContext, PodSpec, SELinuxOptions, SeccompProfile, SecurityContext, Toleration,
    VolumeDevice,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use machinery::{meta, names};

use crate::auxiliary::{self, Kind};
use crate::context::Context;
use crate::error::Error;
use crate::pod_volumes::{self, empty_dir, mount, propagated};
use crate::selinux;

const CONTAINER: &str = "hotplug-disk";
const SCRATCH: &str = "hotplug-disks";
const SCRATCH_PATH: &str = "/path";

/// A hot-plugged volume and its claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attachment {
    /// The volume's name in the VMI.
    pub volume: String,
    /// The claim's name.
    pub claim: String,
}

impl Attachment {
    /// The attachment for a volume of the VMI; `None` if the volume is not backed by a claim.
    pub fn of(volume: &api::v1::Volume) -> Option<Self> {
        let claim = crate::claim_name(volume)?;
        Some(Attachment { volume: volume.name.clone(), claim: claim.to_owned() })
    }
}

/// The Pod that mounts all hot-plugged volumes on the launcher's node.
///
/// Also those that have already reached the guest: the kubelet gives a volume back that no container of any Pod mounts, and
/// the storage could then be given to another node while the guest writes to it.
pub fn attachment_pod(
    vmi: &VirtualMachineInstance,
    launcher: &Pod,
    volumes: &[Attachment],
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Pod, Error> {
    attach(vmi, launcher, volumes, config, ctx)
}

/// The attachment Pod for a migration's target Pod.
pub fn migration_attachment_pod(
    vmi: &VirtualMachineInstance,
    target: &Pod,
    volumes: &[Attachment],
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Pod, Error> {
    let mut pod = attach(vmi, target, volumes, config, ctx)?;
    let copy =
        |from: &Option<BTreeMap<String, String>>, key: &str| Some((key.to_owned(), from.as_ref()?.get(key)?.clone()));
    let label = copy(&target.metadata.labels, labels::MIGRATION_JOB_UID);
    let annotation = copy(&target.metadata.annotations, annotations::MIGRATION_JOB_NAME);
    pod.metadata.labels.get_or_insert_default().extend(label);
    pod.metadata.annotations.get_or_insert_default().extend(annotation);
    Ok(pod)
}

fn attach(
    vmi: &VirtualMachineInstance,
    launcher: &Pod,
    attachments: &[Attachment],
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Pod, Error> {
    let node = launcher.spec.as_ref().and_then(|spec| spec.node_name.clone()).ok_or(Error::Missing("spec.nodeName"))?;
    // By its name alone: an embedded node has it in a directory of its own.
    let command = ["container-disk", "--copy-path", "/path/hp"];
    let mut container = container(vmi, config, &command, config.selinux_launcher_type())?;
    let mut volumes = vec![empty_dir(SCRATCH)];
    let mut sorted: Vec<&Attachment> = attachments.iter().collect();
    sorted.sort();
    let mut seed = uid(launcher)?.to_owned();
    for Attachment { volume, claim: name } in sorted {
        let claim = claim(ctx, volume, name)?;
        volumes.push(pod_volumes::claim(volume, name, None));
        if claim.block {
            let device_path = format!("{SCRATCH_PATH}/{volume}/{}", claim.uid);
            container.volume_devices.get_or_insert_default().push(VolumeDevice { name: volume.clone(), device_path });
        } else {
            container.volume_mounts.get_or_insert_default().push(mount(volume, &format!("/{volume}")));
        }
        seed.push_str(&format!("/{volume}={name}"));
    }
    Ok(Pod {
        metadata: metadata(vmi, launcher, &seed, [])?,
        spec: Some(PodSpec {
            affinity: Some(on_node(node)),
            containers: vec![container],
            termination_grace_period_seconds: Some(0),
            tolerations: Some(tolerations(launcher)),
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        status: None,
    })
}

/// The Pod that consumes one claim on the launcher's node and ends at once.
pub fn trigger_pod(
    vmi: &VirtualMachineInstance,
    launcher: &Pod,
    attachment: &Attachment,
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Pod, Error> {
    let Attachment { volume, claim: name } = attachment;
    let claim = claim(ctx, volume, name)?;
    let mut container = container(vmi, config, &["/bin/bash", "-c", "exit", "0"], None)?;
    let mut security_context = None;
    if claim.block {
        let device = VolumeDevice { name: volume.clone(), device_path: "/dev/hotplugblockdevice".to_owned() };
        container.volume_devices = Some(vec![device]);
        security_context = Some(PodSecurityContext { run_as_user: Some(0), ..PodSecurityContext::default() });
    } else {
        container.volume_mounts.get_or_insert_default().push(mount(volume, "/pvc"));
    }
    let spec = launcher.spec.as_ref();
    let seed = format!("{}/trigger/{volume}={name}", uid(launcher)?);
    Ok(Pod {
        metadata: metadata(vmi, launcher, &seed, [(annotations::EPHEMERAL_PROVISIONING, "true")])?,
        spec: Some(PodSpec {
            affinity: Some(beside(launcher)),
            containers: vec![container],
            security_context,
            termination_grace_period_seconds: Some(0),
            tolerations: spec.and_then(|spec| spec.tolerations.clone()),
            volumes: Some(vec![pod_volumes::claim(volume, name, None), empty_dir(SCRATCH)]),
            ..PodSpec::default()
        }),
        status: None,
    })
}

fn metadata<const N: usize>(
    vmi: &VirtualMachineInstance,
    launcher: &Pod,
    seed: &str,
    more: [(&str, &str); N],
) -> Result<ObjectMeta, Error> {
    let name = vmi.metadata.name.as_deref().ok_or(Error::Missing("metadata.name"))?;
    let instance = vmi.metadata.uid.as_deref().ok_or(Error::Missing("metadata.uid"))?;
    let own = [(annotations::OWNER_VMI_NAME, name), (annotations::OWNER_VMI_UID, instance)];
    let annotations = own.into_iter().chain(more).map(|(key, value)| (key.to_owned(), value.to_owned()));
    Ok(ObjectMeta {
        name: Some(names::truncated_name(&format!("hp-volume-{name}"), &names::suffix(seed), names::LABEL_MAX)),
        namespace: vmi.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([(labels::APP.to_owned(), labels::app::HOTPLUG_DISK.to_owned())])),
        annotations: Some(annotations.collect()),
        owner_references: meta::controller_ref(launcher).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    })
}

fn uid(pod: &Pod) -> Result<&str, Error> {
    pod.metadata.uid.as_deref().filter(|uid| !uid.is_empty()).ok_or(Error::Missing("metadata.uid"))
}

fn claim<'a>(ctx: &'a Context, volume: &str, name: &str) -> Result<&'a crate::Claim, Error> {
    let missing = || Error::ClaimNotFound { volume: volume.to_owned(), name: name.to_owned() };
    ctx.claims.get(name).ok_or_else(missing)
}

/// The only container. It has the guest's SELinux label, so that the guest can open what it mounts.
fn container(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    command: &[&str],
    selinux_type: Option<&str>,
) -> Result<Container, Error> {
    let level = selinux::guest_level(vmi)?.unwrap_or_else(|| "s0".to_owned());
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: Some(config.launcher_image.clone()),
        command: Some(command.iter().map(|&word| word.to_owned()).collect()),
        resources: Some(auxiliary::resources(Kind::HotplugDisk, false, config)),
        security_context: Some(SecurityContext {
            se_linux_options: Some(SELinuxOptions {
                type_: selinux_type.map(str::to_owned),
                level: Some(level),
                ..SELinuxOptions::default()
            }),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), localhost_profile: None }),
            ..auxiliary::security_context()
        }),
        volume_mounts: Some(vec![propagated(mount(SCRATCH, SCRATCH_PATH))]),
        ..Container::default()
    })
}

fn on_node(node: String) -> Affinity {
    let expression = NodeSelectorRequirement {
        key: labels::HOSTNAME.to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node]),
    };
    let term = NodeSelectorTerm { match_expressions: Some(vec![expression]), match_fields: None };
    let required = NodeSelector { node_selector_terms: vec![term] };
    let node =
        NodeAffinity { required_during_scheduling_ignored_during_execution: Some(required), ..NodeAffinity::default() };
    Affinity { node_affinity: Some(node), ..Affinity::default() }
}

fn beside(launcher: &Pod) -> Affinity {
    let selector = LabelSelector { match_labels: launcher.metadata.labels.clone(), match_expressions: None };
    let term = PodAffinityTerm {
        label_selector: Some(selector),
        topology_key: labels::HOSTNAME.to_owned(),
        ..PodAffinityTerm::default()
    };
    let pod =
        PodAffinity { required_during_scheduling_ignored_during_execution: Some(vec![term]), ..PodAffinity::default() };
    Affinity { pod_affinity: Some(pod), ..Affinity::default() }
}

/// Tolerates node conditions that must not detach a disk from a running guest, and what the launcher tolerates.
fn tolerations(launcher: &Pod) -> Vec<Toleration> {
    const BORNE: [&str; 5] =
        ["unschedulable", "network-unavailable", "disk-pressure", "memory-pressure", "pid-pressure"];
    let mut all: Vec<Toleration> = BORNE
        .iter()
        .map(|taint| Toleration {
            key: Some(format!("node.kubernetes.io/{taint}")),
            operator: Some("Exists".to_owned()),
            effect: Some("NoSchedule".to_owned()),
            ..Toleration::default()
        })
        .chain(launcher.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten().cloned()))
        .collect();
    all.sort_by(|a, b| a.key.as_deref().unwrap_or_default().cmp(b.key.as_deref().unwrap_or_default()));
    all.dedup();
    all
}
