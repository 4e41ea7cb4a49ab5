//! Which changes to the template require a restart.
//!
//! The template that the VMI was started from is compared with the current one, both with instance type and preference
//! applied, after normalizing everything that may differ. Any remaining difference requires a restart.

use api::v1::{Disk, Interface, Network, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceSpec, Volume};
use api::v1::{VirtualMachineInstanceTemplateSpec, VirtualMachineSpec};

use super::expand;
use super::world::World;
use crate::claims::is_hotpluggable;

/// The message of the condition.
pub(super) const CHANGED: &str = "a template field was changed that cannot be changed on the running instance";

/// What is known about the need for a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Restart {
    /// Not determined; the current condition stands.
    #[default]
    Unknown,
    No,
    Required(String),
}

/// Whether the VMI lacks a change that requires a restart.
pub(super) fn judge(w: &World, vmi: &VirtualMachineInstance, started: &VirtualMachineSpec) -> Restart {
    let mut earlier = VirtualMachine { metadata: w.vm.metadata.clone(), spec: started.clone(), status: None };
    earlier.metadata.resource_version = None;
    // A template that cannot be expanded cannot be compared; that is reported as a failure of its own.
    let (Ok(current), Ok(earlier)) = (expand::template(w, &w.vm), expand::template(w, &earlier)) else {
        return Restart::Unknown;
    };
    if earlier.spec == current.spec {
        return Restart::No;
    }
    let mut earlier = earlier.into_owned();
    allow(w, vmi, &mut earlier, &current);
    if earlier.spec == current.spec { Restart::No } else { Restart::Required(CHANGED.to_owned()) }
}

/// Normalizes the fields that may differ.
fn allow(
    w: &World,
    vmi: &VirtualMachineInstance,
    earlier: &mut VirtualMachineInstanceTemplateSpec,
    current: &VirtualMachineInstanceTemplateSpec,
) {
    let (old, new) = (&mut earlier.spec, &current.spec);
    let migrates = w.vm.spec.update_volumes_strategy.as_deref() == Some("Migration");
    let (volumes, disks) = (volumes_may_change(old, new, migrates), disks_may_change(old, new));
    if volumes {
        old.volumes.clone_from(&new.volumes);
    }
    if disks {
        old.domain.devices.disks.clone_from(&new.domain.devices.disks);
    }
    if w.config.is_live_update() {
        if let (Some(old), Some(new)) = (&mut old.domain.cpu, &new.domain.cpu) {
            old.sockets = new.sockets;
        }
        if let Some(guest) = new.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()) {
            old.domain.memory.get_or_insert_default().guest = Some(guest.clone());
        }
        old.node_selector.clone_from(&new.node_selector);
        old.affinity.clone_from(&new.affinity);
        old.tolerations.clone_from(&new.tolerations);
    }
    if !networks_need_restart(new, vmi) {
        old.networks.clone_from(&new.networks);
        old.domain.devices.interfaces.clone_from(&new.domain.devices.interfaces);
    }
    let uuid = |spec: &VirtualMachineInstanceSpec| spec.domain.firmware.as_ref().and_then(|f| f.uuid.clone());
    let wanted = uuid(new);
    if wanted.is_some() && uuid(&vmi.spec) == wanted {
        // Written into the template after the start; the VMI has had it from the beginning.
        old.domain.firmware.get_or_insert_default().uuid = wanted;
    }
}

fn by_name<'a>(volumes: &'a [Volume], name: &str) -> Option<&'a Volume> {
    volumes.iter().find(|volume| volume.name == name)
}

fn volumes_may_change(old: &VirtualMachineInstanceSpec, new: &VirtualMachineInstanceSpec, migrates: bool) -> bool {
    let may = |volume: &Volume| match by_name(&old.volumes, &volume.name) {
        _ if is_hotpluggable(volume) => true,
        None => false,
        Some(_) if migrates && volume.is_claim() => true,
        Some(old) => old == volume,
    };
    let removed = old.volumes.iter().filter(|old| by_name(&new.volumes, &old.name).is_none());
    new.volumes.iter().all(may) && removed.into_iter().all(is_hotpluggable)
}

fn disks_may_change(old: &VirtualMachineInstanceSpec, new: &VirtualMachineInstanceSpec) -> bool {
    let (old_disks, new_disks) = (&old.domain.devices.disks, &new.domain.devices.disks);
    let find = |disks: &[Disk], name: &str| disks.iter().find(|disk| disk.name == name).cloned();
    let may = |disk: &Disk| match find(old_disks, &disk.name) {
        _ if by_name(&new.volumes, &disk.name).is_some_and(is_hotpluggable) => true,
        None => false,
        Some(old) => old == *disk,
    };
    let may_go = |disk: &Disk| !disk.is_cdrom() && by_name(&old.volumes, &disk.name).is_none_or(is_hotpluggable);
    let mut removed = old_disks.iter().filter(|old| find(new_disks, &old.name).is_none());
    new_disks.iter().all(may) && removed.all(may_go)
}

/// Whether changed networks of the template require a restart. Interfaces are plugged and unplugged by their state; a
/// network may be replaced if the guest can migrate.
fn networks_need_restart(new: &VirtualMachineInstanceSpec, vmi: &VirtualMachineInstance) -> bool {
    let plain = |interface: &Interface| Interface { state: None, ..interface.clone() };
    let same_interface = |current: &Interface| {
        let mut wanted = new.domain.devices.interfaces.iter();
        wanted.any(|wanted| wanted.name == current.name && plain(wanted) == plain(current))
    };
    let moves = vmi.has_condition(api::conditions::LIVE_MIGRATABLE);
    let leading = |network: &Network| {
        let mut network = network.clone();
        if let Some(multus) = network.multus_mut().filter(|_| moves) {
            multus.network_name.clear();
        }
        network
    };
    let same_network = |current: &Network| {
        new.networks.iter().any(|wanted| wanted.name == current.name && leading(wanted) == leading(current))
    };
    let has_pod = |networks: &[Network]| networks.iter().any(|network| network.source().is_pod());
    (has_pod(&new.networks) && !has_pod(&vmi.spec.networks))
        || !vmi.spec.domain.devices.interfaces.iter().all(same_interface)
        || !vmi.spec.networks.iter().all(same_network)
}
