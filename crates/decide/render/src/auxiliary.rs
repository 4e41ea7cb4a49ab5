//! Resources and users of the auxiliary containers around `compute`.

use std::collections::BTreeMap;

use api::config::ClusterConfig;
use k8s_openapi::api::core::v1::{Capabilities, ResourceRequirements, SecurityContext};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::NON_ROOT_USER;

/// A kind of auxiliary container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Keeps a container disk's image mounted, prefetches it, or determines its digest.
    ContainerDisk,
    /// Copies the binary that the former run.
    ContainerDiskBinary,
    /// Copies the guest's serial console into the Pod's log.
    GuestConsoleLog,
    /// Serves a directory to the guest.
    Virtiofs,
    /// Changes the domain before it starts.
    Sidecar,
    /// Holds hot-plugged volumes on a node.
    HotplugDisk,
}

/// The defaults of a kind, unless the cluster configuration overrides them.
struct Row {
    kind: Kind,
    /// The kind's name in `spec.configuration.supportContainerResources`.
    configured_as: &'static str,
    /// CPU and memory.
    requests: Option<[&'static str; 2]>,
    limits: Option<[&'static str; 2]>,
    /// Limits in a Pod with QoS class Guaranteed, where they differ; its requests are equal to them.
    guaranteed: Option<[&'static str; 2]>,
    ephemeral_storage: Option<&'static str>,
}

const ROWS: &[Row] = &[
    Row {
        kind: Kind::ContainerDisk,
        configured_as: "container-disk",
        requests: Some(["1m", "1M"]),
        limits: Some(["10m", "40M"]),
        guaranteed: None,
        ephemeral_storage: Some("50M"),
    },
    Row {
        kind: Kind::ContainerDiskBinary,
        configured_as: "container-disk",
        requests: Some(["10m", "1M"]),
        limits: Some(["100m", "40M"]),
        guaranteed: Some(["10m", "40M"]),
        ephemeral_storage: None,
    },
    Row {
        kind: Kind::GuestConsoleLog,
        configured_as: "guest-console-log",
        requests: Some(["5m", "35M"]),
        limits: Some(["15m", "60M"]),
        guaranteed: None,
        ephemeral_storage: None,
    },
    Row {
        kind: Kind::Virtiofs,
        configured_as: "virtiofs",
        requests: Some(["10m", "1M"]),
        limits: Some(["100m", "80M"]),
        guaranteed: None,
        ephemeral_storage: None,
    },
    Row {
        kind: Kind::Sidecar,
        configured_as: "sidecar",
        requests: None,
        limits: None,
        guaranteed: Some(["200m", "64M"]),
        ephemeral_storage: None,
    },
    Row {
        kind: Kind::HotplugDisk,
        configured_as: "hotplug-disk",
        requests: Some(["10m", "2M"]),
        limits: Some(["100m", "80M"]),
        guaranteed: None,
        ephemeral_storage: None,
    },
];

const NAMES: [&str; 2] = ["cpu", "memory"];

type Amounts = BTreeMap<String, Quantity>;

/// Requests and limits of a container. In a Pod with dedicated CPUs or QoS class Guaranteed the requests of every
/// container must equal its limits, or the whole Pod loses its class.
pub(crate) fn resources(kind: Kind, guaranteed: bool, config: &ClusterConfig) -> ResourceRequirements {
    let row = ROWS.iter().find(|row| row.kind == kind).expect("every kind has a row");
    let all = &config.configuration.support_container_resources;
    let configured = all.iter().find(|entry| entry.type_ == row.configured_as).map(|entry| &entry.resources);
    let limits = if guaranteed { row.guaranteed.or(row.limits) } else { row.limits };
    let limits = amounts(limits, configured.map(|resources| &resources.limits));
    let mut requests = amounts(row.requests, configured.map(|resources| &resources.requests));
    if guaranteed {
        requests.extend(limits.clone());
    }
    requests.extend(row.ephemeral_storage.map(|amount| ("ephemeral-storage".to_owned(), Quantity(amount.to_owned()))));
    let some = |amounts: Amounts| (!amounts.is_empty()).then_some(amounts);
    ResourceRequirements { requests: some(requests), limits: some(limits), claims: None }
}

fn amounts(defaults: Option<[&str; 2]>, configured: Option<&Amounts>) -> Amounts {
    let defaults = defaults.into_iter().flat_map(|values| NAMES.into_iter().zip(values));
    let mut amounts: Amounts = defaults.map(|(name, value)| (name.to_owned(), Quantity(value.to_owned()))).collect();
    let configured = NAMES.iter().filter_map(|name| configured?.get_key_value(*name));
    amounts.extend(configured.map(|(name, amount)| (name.clone(), amount.clone())));
    amounts
}

/// No root, no way to become root, no capabilities.
pub(crate) fn security_context() -> SecurityContext {
    SecurityContext {
        run_as_user: Some(NON_ROOT_USER),
        run_as_non_root: Some(true),
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
        ..SecurityContext::default()
    }
}
