//! The target Pod of a migration.
//!
//! It equals the guest's launcher Pod except for what must differ (its name, its placement) and what must be taken from
//! the running guest: images, names of networks, the CPU and the SELinux level that it was started with.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use api::{annotations, labels};
use k8s_openapi::api::core::v1::{Node, Pod, SELinuxOptions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::container_disks::Images;
use crate::context::Context;
use crate::error::Error;
use crate::launcher::{self, Variant};
use crate::network::{self, Naming};
use crate::{scheduling, selinux};

/// The source of a migration.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The Pod it runs in.
    pub pod: &'a Pod,
    /// That Pod's node. A guest from another cluster has none here; its VMI holds the required values.
    pub node: Option<&'a Node>,
}

/// The Pod that a migration moves the guest to. The state claim in the context is the target's.
pub fn migration_target_pod(
    vmi: &VirtualMachineInstance,
    migration: &VirtualMachineInstanceMigration,
    source: Source<'_>,
    config: &ClusterConfig,
    ctx: &Context,
) -> Result<Pod, Error> {
    let uid = migration.metadata.uid.as_deref().filter(|uid| !uid.is_empty()).ok_or(Error::Missing("metadata.uid"))?;
    let variant = Variant { purpose: Some(uid), temporary: false, images: Images::of_pod(vmi, source.pod)? };
    let mut pod = launcher::pod(vmi, config, ctx, &variant)?;
    let metadata = &mut pod.metadata;
    metadata.labels.get_or_insert_default().insert(labels::MIGRATION_JOB_UID.to_owned(), uid.to_owned());
    let name = migration.metadata.name.clone().unwrap_or_default();
    metadata.annotations.get_or_insert_default().insert(annotations::MIGRATION_JOB_NAME.to_owned(), name);
    keep_network_names(vmi, source.pod, config, &mut pod)?;
    keep_apart(vmi, migration, &mut pod);
    let mut selector = migration.spec.added_node_selector.clone();
    let spec = pod.spec.get_or_insert_default();
    selector.extend(spec.node_selector.take().unwrap_or_default());
    for (label, value) in cpu_selectors(vmi, source)? {
        selector.entry(label).or_insert(value);
    }
    spec.node_selector = Some(selector);
    if config.migrations().match_selinux_level_on_migration != Some(false) {
        match_level(vmi, &mut pod)?;
    }
    if let Some(image) = machinery::meta::annotation(&migration.metadata, annotations::MIGRATION_TARGET_IMAGE_OVERRIDE)
    {
        let compute = pod.spec.iter_mut().flat_map(|spec| spec.containers.first_mut());
        compute.for_each(|container| container.image = Some(image.to_owned()));
    }
    Ok(pod)
}

/// Whether the guest comes from another namespace or cluster.
fn is_decentralized(migration: &VirtualMachineInstanceMigration) -> bool {
    migration.spec.receive.is_some() && migration.spec.send_to.is_none()
}

fn keep_network_names(
    vmi: &VirtualMachineInstance,
    source: &Pod,
    config: &ClusterConfig,
    pod: &mut Pod,
) -> Result<(), Error> {
    if config.feature_gate("PodSecondaryInterfaceNamingUpgrade") || Naming::of_pod(source) == Naming::Hashed {
        return Ok(());
    }
    let list = network::ordinal_annotation(vmi, config)?;
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.extend(list.map(|list| (network::NETWORKS.to_owned(), list)));
    Ok(())
}

/// Keeps the target off the source's node.
fn keep_apart(vmi: &VirtualMachineInstance, migration: &VirtualMachineInstanceMigration, pod: &mut Pod) {
    let affinity = &mut pod.spec.get_or_insert_default().affinity;
    if is_decentralized(migration) {
        let state = vmi.status.as_ref().and_then(|status| status.migration_state.as_ref());
        let node = state.and_then(|state| state.source_state.as_ref()?.node.as_deref());
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            scheduling::avoid_node(affinity, node);
        }
        return;
    }
    let uid = vmi.metadata.uid.clone().unwrap_or_default();
    let same = LabelSelector {
        match_labels: Some(BTreeMap::from([(labels::CREATED_BY.to_owned(), uid)])),
        match_expressions: None,
    };
    scheduling::keep_away(affinity, same);
}

/// Labels of nodes whose CPU is compatible with what the guest has seen on the source.
fn cpu_selectors(vmi: &VirtualMachineInstance, source: Source<'_>) -> Result<BTreeMap<String, String>, Error> {
    let published = || {
        let state = vmi.status.as_ref()?.migration_state.as_ref()?;
        Some(state.source_state.as_ref()?.node_selectors.clone())
    };
    let labels_of_node = source.node.map(|node| node.metadata.labels.clone().unwrap_or_default());
    let node_labels = labels_of_node.or_else(published).unwrap_or_default();
    let mut selectors = BTreeMap::new();
    let model = vmi.spec.domain.cpu.as_ref().and_then(|cpu| cpu.model.as_deref());
    if model == Some("host-model") {
        selectors = host_model_selectors(vmi, source, &node_labels)?;
    }
    let vendor = node_labels.keys().find(|label| label.starts_with(labels::CPU_VENDOR_PREFIX));
    selectors.extend(vendor.map(|vendor| (vendor.clone(), "true".to_owned())));
    Ok(selectors)
}

fn host_model_selectors(
    vmi: &VirtualMachineInstance,
    source: Source<'_>,
    node_labels: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Error> {
    let kept = |label: &str| {
        label.starts_with(labels::CPU_MODEL_MIGRATION_PREFIX) || label.starts_with(labels::CPU_FEATURE_PREFIX)
    };
    let selected = source.pod.spec.iter().flat_map(|spec| spec.node_selector.iter().flatten());
    let selected: BTreeMap<String, String> =
        selected.filter(|(label, _)| kept(label)).map(|(label, value)| (label.clone(), value.clone())).collect();
    if !selected.is_empty() {
        return Ok(selected);
    }
    // A source elsewhere publishes the resulting selectors instead of its node's labels.
    let published: BTreeMap<String, String> = node_labels
        .iter()
        .filter(|(l, _)| kept(l) && source.node.is_none())
        .map(|(l, v)| (l.clone(), v.clone()))
        .collect();
    if !published.is_empty() {
        return Ok(published);
    }
    let after = |prefix: &'static str| node_labels.keys().filter_map(move |label| label.strip_prefix(prefix));
    let Some(model) = after(labels::HOST_MODEL_CPU_PREFIX).next() else {
        let own = || vmi.status.as_ref().and_then(|status| status.node_name.clone());
        let node = source.node.and_then(|node| node.metadata.name.clone()).or_else(own).unwrap_or_default();
        return Err(Error::NoHostModel { node });
    };
    let features = after(labels::HOST_MODEL_REQUIRED_FEATURES_PREFIX);
    let features = features.map(|feature| format!("{}{feature}", labels::CPU_FEATURE_PREFIX));
    let all = std::iter::once(format!("{}{model}", labels::CPU_MODEL_MIGRATION_PREFIX)).chain(features);
    Ok(all.map(|label| (label, "true".to_owned())).collect())
}

/// Files used by both sides have the guest's SELinux level, so the target must run with it. It overrides what the
/// cluster configures for launchers.
fn match_level(vmi: &VirtualMachineInstance, pod: &mut Pod) -> Result<(), Error> {
    if let Some(level) = selinux::guest_level(vmi)? {
        let context = pod.spec.get_or_insert_default().security_context.get_or_insert_default();
        context.se_linux_options = Some(SELinuxOptions { level: Some(level), ..SELinuxOptions::default() });
    }
    Ok(())
}
