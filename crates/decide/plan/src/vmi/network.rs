//! Pod networks: the status of the VMI's interfaces, and which changes need a migration.

use std::collections::BTreeMap;
use std::time::Duration;

use admission::{Operation, Review, Shape, User, judge};
use api::nad;
use api::v1::{
    Binding, Condition, ConditionStatus, Interface, VirtualMachineInstance,
    VirtualMachineInstanceNetworkInterface as Status,
};
use api::{annotations, conditions, reasons};
use k8s_openapi::api::core::v1::Pod;
use render::network::Naming;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::action::Action;
use super::world::World;
use crate::{SyncError, meta};

const PRIMARY: &str = "eth0";
const MULTUS_STATUS: &str = "multus-status";
const DOMAIN: &str = "domain";
const SEPARATOR: &str = ", ";
const ABSENT: &str = "absent";
/// How long a change is left to a controller that can hot-plug interfaces into running Pods.
const GRACE_SECONDS: i64 = 15;
/// When to check such a change again.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// A network the Pod has joined, as reported by Multus.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Joined {
    name: String,
    interface: String,
    mac: String,
    default: bool,
    #[serde(rename = "device-info")]
    device_info: Option<Value>,
}

fn joined(pod: &Pod) -> Vec<Joined> {
    let text = meta::annotation(&pod.metadata, nad::NETWORK_STATUS).unwrap_or_default();
    serde_json::from_str(text).unwrap_or_default()
}

fn status_of<'a>(list: &'a [Status], name: &str) -> Option<&'a Status> {
    list.iter().find(|status| status.name.as_deref() == Some(name))
}

fn known(vmi: &VirtualMachineInstance) -> &[Status] {
    vmi.status.as_ref().map(|status| status.interfaces.as_slice()).unwrap_or_default()
}

fn is_sriov(interface: &Interface) -> bool {
    interface.bound_by() == Binding::Sriov
}

fn is_absent(interface: &Interface) -> bool {
    interface.state.as_deref() == Some(ABSENT)
}

/// The interfaces of the Pod, with what virt-handler has reported about each.
pub(super) fn interfaces(vmi: &VirtualMachineInstance, pod: &Pod) -> Vec<Status> {
    let joined = joined(pod);
    let names = Naming::of_pod(pod).names(&vmi.spec.networks);
    let old = known(vmi);
    let mut all = vec![];
    if let Some(network) = vmi.spec.networks.iter().find(|network| network.source().is_primary()) {
        let given = joined.iter().find(|joined| joined.default).map(|joined| joined.interface.as_str());
        let name = given.filter(|name| !name.is_empty()).unwrap_or(PRIMARY);
        let mut status = status_of(old, &network.name).cloned().unwrap_or_default();
        status.name = Some(network.name.clone());
        status.pod_interface_name = Some(name.to_owned());
        all.push(status);
    }
    for network in vmi.spec.networks.iter().filter(|network| !network.source().is_primary()) {
        let before = status_of(old, &network.name);
        match names.get(&network.name).filter(|_| network.source().is_secondary()) {
            Some(name) => all.extend(secondary(&network.name, name, &joined, before)),
            None => all.extend(before.cloned()),
        }
    }
    let foreign = |status: &&Status| !vmi.spec.networks.iter().any(|n| status.name.as_deref() == Some(&n.name));
    all.extend(old.iter().filter(foreign).cloned());
    all
}

fn secondary(network: &str, interface: &str, joined: &[Joined], before: Option<&Status>) -> Option<Status> {
    let exists = joined.iter().any(|joined| joined.interface == interface);
    if !exists && before.is_none() {
        return None;
    }
    let mut status = before.cloned().unwrap_or_default();
    status.name = Some(network.to_owned());
    status.pod_interface_name = Some(interface.to_owned());
    let sources = status.info_source.unwrap_or_default();
    let mut sources: Vec<&str> = sources.split(SEPARATOR).filter(|source| !source.is_empty()).collect();
    if exists && !sources.contains(&MULTUS_STATUS) {
        sources.push(MULTUS_STATUS);
    } else if !exists {
        sources.retain(|source| *source != MULTUS_STATUS);
    }
    status.info_source = Some(sources.join(SEPARATOR)).filter(|sources| !sources.is_empty());
    Some(status)
}

fn has_source(status: &Status, source: &str) -> bool {
    status.info_source.as_deref().is_some_and(|sources| sources.split(SEPARATOR).any(|known| known == source))
}

/// Whether two lists are equal regardless of their order.
pub(super) fn same(a: &[Status], b: &[Status]) -> bool {
    let sorted = |list: &[Status]| {
        let mut list = list.to_vec();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    };
    a == b || (a.len() == b.len() && sorted(a) == sorted(b))
}

/// Annotations of a running launcher Pod that depend on its networks: which to join, and their devices.
pub(crate) fn annotations(w: &World, pod: &Pod) -> BTreeMap<String, String> {
    let devices = device_info(w, pod).map(|info| (annotations::NETWORK_INFO.to_owned(), info));
    let networks = networks(w, pod).map(|networks| (nad::NETWORKS.to_owned(), networks));
    devices.into_iter().chain(networks).collect()
}

/// The information about network devices that the launcher reads through the downward API.
fn device_info(w: &World, pod: &Pod) -> Option<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Device<'a> {
        network: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        device_info: Option<&'a Value>,
        #[serde(skip_serializing_if = "str::is_empty")]
        mac: &'a str,
    }
    #[derive(Serialize)]
    struct Info<'a> {
        interfaces: Vec<Device<'a>>,
    }
    let wants_info = |interface: &&Interface| {
        let plugin = interface.plugin().map(|binding| binding.name.as_str());
        let told = w.config.network_bindings().find(|(name, _)| Some(*name) == plugin);
        is_sriov(interface) || told.is_some_and(|(_, p)| p.downward_api.as_deref() == Some("device-info"))
    };
    let wanting: Vec<&Interface> = w.vmi.spec.domain.devices.interfaces.iter().filter(wants_info).collect();
    if wanting.is_empty() {
        return None;
    }
    let joined = joined(pod);
    let names = Naming::of_pod(pod).names(&w.vmi.spec.networks);
    let mut interfaces: Vec<Device<'_>> = wanting
        .iter()
        .filter_map(|interface| {
            let name = names.get(&interface.name)?;
            let found = joined.iter().find(|joined| joined.interface == *name)?;
            let (device_info, mac) = (found.device_info.as_ref(), found.mac.as_str());
            Some(Device { network: &interface.name, device_info, mac })
        })
        .collect();
    interfaces.sort_by_key(|device| device.network);
    (!interfaces.is_empty()).then(|| serde_json::to_string(&Info { interfaces }).ok()).flatten()
}

/// The list of networks to join, if interfaces are to be plugged or unplugged. SR-IOV devices cannot be added to a
/// running Pod, so those not present yet are left out.
fn networks(w: &World, pod: &Pod) -> Option<String> {
    let all = &w.vmi.spec.domain.devices.interfaces;
    let statuses = known(&w.vmi);
    let plugged = |interface: &Interface| status_of(statuses, &interface.name).is_some();
    let joining: Vec<&Interface> = all.iter().filter(|i| !is_absent(i) && (!is_sriov(i) || plugged(i))).collect();
    let unplugs = all.iter().any(is_absent);
    if !unplugs && joining.iter().all(|interface| plugged(interface)) {
        return None;
    }
    let mut wished = (*w.vmi).clone();
    wished.spec.networks.retain(|network| joining.iter().any(|interface| interface.name == network.name));
    wished.spec.domain.devices.interfaces = joining.into_iter().cloned().collect();
    let rendered = render::launcher_pod(&wished, &w.config, &w.context(super::backend::current_name(w))).ok()?;
    let list = meta::annotation(&rendered.metadata, nad::NETWORKS).unwrap_or_default();
    match Naming::of_pod(pod) {
        Naming::Hashed => Some(list.to_owned()),
        naming @ Naming::Ordinal => renamed(list, &Naming::Hashed.names(&w.vmi.spec.networks), naming, &wished),
    }
}

/// A Pod keeps the naming it started with.
fn renamed(list: &str, from: &BTreeMap<String, String>, to: Naming, vmi: &VirtualMachineInstance) -> Option<String> {
    let names = to.names(&vmi.spec.networks);
    let mut elements: Vec<Value> = serde_json::from_str(list).ok()?;
    for element in &mut elements {
        let given = element.get("interface").and_then(Value::as_str);
        let network = from.iter().find(|(_, name)| Some(name.as_str()) == given).map(|(network, _)| network);
        if let Some(name) = network.and_then(|network| names.get(network)) {
            element["interface"] = Value::String(name.clone());
        }
    }
    serde_json::to_string(&elements).ok()
}

/// Validates interfaces and networks against the current rules, which may be stricter than those at admission.
pub(super) fn refused(w: &World) -> Option<SyncError> {
    if is_plain(&w.vmi) {
        return None;
    }
    let object = serde_json::to_value(&*w.vmi).ok()?;
    let (version, resource, user) = (api::v1::VERSION, "virtualmachineinstances", User::default());
    let creation = Review::of(Operation::Create, version, resource, &user, &object, w.now.clone());
    // Whether the nodes support it is not asked again.
    let judged = judge(&creation, Shape::Kubernetes, &w.config, &admission::World::default()).ok()?;
    let about_networks =
        |field: &str| field.starts_with("spec.networks") || field.starts_with("spec.domain.devices.interfaces");
    let wrong = judged.causes.into_iter().find(|cause| about_networks(&cause.field.to_string()))?;
    Some(SyncError::new(reasons::FAILED_CREATE_VALIDATION, format!("{}: {}", wrong.field, wrong.message)))
}

/// The common case without anything to validate: one interface on the Pod network, or none at all.
fn is_plain(vmi: &VirtualMachineInstance) -> bool {
    match (vmi.spec.domain.devices.interfaces.as_slice(), vmi.spec.networks.as_slice()) {
        ([], []) => true,
        ([interface], [network]) => {
            interface.name == network.name
                && network.source().is_pod()
                && interface.bound_by() == Binding::Masquerade
                && interface.ports.is_empty()
                && interface.state.is_none()
        }
        _ => false,
    }
}

/// How a change of interfaces takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    /// It may be applied in place; if it is not, by migration.
    Pending,
    ByMigrating,
}

/// Maintains the condition that a change requires a migration. Requeues while the change may still be applied in place.
pub(super) fn migration_required(w: &World, pod: &Pod, list: &mut Vec<Condition>) -> Option<Action> {
    if w.is_migrating() {
        return None;
    }
    let type_ = conditions::MIGRATION_REQUIRED;
    let before = conditions::find(list, type_).cloned();
    let change = change(w, pod);
    if change == Change::None {
        conditions::remove(list, type_);
        return None;
    }
    if before.as_ref().is_some_and(Condition::is_true) {
        return None;
    }
    let since = before.as_ref().and_then(|condition| condition.last_transition_time.as_ref());
    let waited = since.map_or(0, |since| w.now.0.as_second() - since.0.as_second());
    let now = change == Change::ByMigrating || waited > GRACE_SECONDS;
    let (status, reason, message) = if now {
        let message = "interfaces or networks were changed; the VMI migrates to apply the change";
        (ConditionStatus::True, reasons::AUTO_MIGRATION_DUE_TO_LIVE_UPDATE, message)
    } else {
        let message = "interfaces were changed; the VMI migrates unless the change is applied in place soon";
        (ConditionStatus::False, reasons::AUTO_MIGRATION_PENDING, message)
    };
    conditions::set(list, Condition::new(type_, status, reason, message, w.now.clone()));
    (!now).then_some(Action::RequeueAfter(LOOK_AGAIN))
}

fn change(w: &World, pod: &Pod) -> Change {
    let joined = joined(pod);
    let statuses = known(&w.vmi);
    for interface in &w.vmi.spec.domain.devices.interfaces {
        let network = w.vmi.spec.networks.iter().find(|n| n.name == interface.name && n.source().is_secondary());
        let Some(definition) = network.and_then(|network| network.source().multus()) else { continue };
        let Some(status) = status_of(statuses, &interface.name) else {
            match (is_absent(interface), is_sriov(interface)) {
                (true, _) => continue,
                (false, true) => return Change::ByMigrating,
                (false, false) => return Change::Pending,
            }
        };
        if is_absent(interface) && has_source(status, MULTUS_STATUS) && !has_source(status, DOMAIN) {
            return Change::Pending;
        }
        let inside = status.pod_interface_name.as_deref().filter(|name| !name.is_empty());
        let found = joined.iter().find(|joined| Some(joined.interface.as_str()) == inside);
        if found.is_some_and(|found| !is_definition(&w.vmi, &definition.network_name, &found.name)) {
            return Change::ByMigrating;
        }
    }
    Change::None
}

/// Whether the name in the spec, which may lack its namespace, refers to the definition the Pod has joined.
fn is_definition(vmi: &VirtualMachineInstance, named: &str, joined: &str) -> bool {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or_default();
    named == joined || (!named.contains('/') && format!("{namespace}/{named}") == joined)
}
