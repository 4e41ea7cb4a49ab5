//! Volume hotplug and unplug: by request, or because the template has changed.

use api::v1::{Disk, VirtualMachineInstance, VirtualMachineInstanceSpec, VirtualMachineVolumeRequest, Volume};

use super::{Draft, Obstacle};
use crate::claims;
use crate::vm::world::World;

/// Applies recorded requests to the template and to the VMI. They are dropped when the template reflects them.
pub(super) fn requested(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let requests = w.vm.status.as_ref().map(|status| status.volume_requests.as_slice()).unwrap_or_default();
    for request in requests {
        apply(request, &mut draft.spec.template.spec);
        if let Some(vmi) = &mut draft.vmi {
            apply(request, &mut vmi.spec);
        }
    }
    Ok(())
}

fn apply(request: &VirtualMachineVolumeRequest, spec: &mut VirtualMachineInstanceSpec) {
    let VirtualMachineVolumeRequest { add_volume_options, remove_volume_options } = request;
    if let Some(add) = add_volume_options {
        if !spec.volumes.iter().any(|volume| volume.name == add.name) {
            spec.volumes.push(Volume::plugged(&add.name, &add.volume_source));
            spec.domain.devices.disks.push(Disk { name: add.name.clone(), ..add.disk.clone() });
        }
    } else if let Some(remove) = remove_volume_options {
        spec.volumes.retain(|volume| volume.name != remove.name);
        spec.domain.devices.disks.retain(|disk| disk.name != remove.name);
    }
}

/// Whether the template reflects a request.
pub(in crate::vm) fn is_done(request: &VirtualMachineVolumeRequest, spec: &VirtualMachineInstanceSpec) -> bool {
    let volume = |name: &str| spec.volumes.iter().any(|volume| volume.name == name);
    let disk = |name: &str| spec.domain.devices.disks.iter().any(|disk| disk.name == name);
    match (&request.add_volume_options, &request.remove_volume_options) {
        (Some(add), _) => volume(&add.name) && disk(&add.name),
        (None, Some(remove)) => !volume(&remove.name) && !disk(&remove.name),
        (None, None) => true,
    }
}

/// Applies the template's hotpluggable volumes to the running VMI.
pub(super) fn declared(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let active = !w.config.feature_gate("HotplugVolumes") && w.config.feature_gate("DeclarativeHotplugVolumes");
    let migrates = draft.spec.update_volumes_strategy.as_deref() == Some("Migration");
    if let Some(vmi) = draft.vmi.as_mut().filter(|vmi| active && !migrates && vmi.is_running()) {
        follow(&draft.spec.template.spec, vmi);
    }
    Ok(())
}

/// Claims for memory dumps are plugged and unplugged by requests of their own.
fn is_pluggable(volume: &Volume) -> bool {
    !volume.is_memory_dump() && claims::is_hotpluggable(volume)
}

fn follow(template: &VirtualMachineInstanceSpec, vmi: &mut VirtualMachineInstance) {
    let wanted = |name: &str| template.volumes.iter().find(|volume| volume.name == name);
    let stays = |volume: &Volume| match wanted(&volume.name) {
        _ if !is_pluggable(volume) => true,
        None => false,
        Some(wanted) => !is_pluggable(wanted) || wanted == volume,
    };
    let mut volumes = vmi.spec.volumes.clone();
    volumes.retain(stays);
    // A volume that is still being unplugged is not plugged again before it is gone.
    let reported = |name: &str| vmi.status.iter().flat_map(|status| &status.volume_status).any(|v| v.name == name);
    let before = |name: &str| vmi.spec.volumes.iter().any(|volume| volume.name == name);
    let new = template.volumes.iter().filter(|volume| is_pluggable(volume));
    volumes.extend(new.filter(|volume| !before(&volume.name) && !reported(&volume.name)).cloned());
    let disks = disks(template, vmi, &volumes);
    vmi.spec.volumes = volumes;
    vmi.spec.domain.devices.disks = disks;
}

/// The disks of the new volumes. A CD-ROM drive stays when its medium is changed or ejected.
fn disks(template: &VirtualMachineInstanceSpec, vmi: &VirtualMachineInstance, volumes: &[Volume]) -> Vec<Disk> {
    let wanted = |name: &str| template.domain.devices.disks.iter().find(|disk| disk.name == name);
    let has_volume = |name: &str| volumes.iter().any(|volume| volume.name == name);
    let in_template = |name: &str| template.volumes.iter().any(|volume| volume.name == name);
    let stays = |disk: &&Disk| match wanted(&disk.name) {
        _ if has_volume(&disk.name) => true,
        None => false,
        Some(wanted) => !in_template(&disk.name) || (wanted.is_cdrom() && disk.is_cdrom()),
    };
    let current = &vmi.spec.domain.devices.disks;
    let mut disks: Vec<Disk> = current.iter().filter(stays).cloned().collect();
    let plugged = |disk: &&Disk| volumes.iter().any(|volume| volume.name == disk.name && is_pluggable(volume));
    let new = template.domain.devices.disks.iter().filter(plugged);
    disks.extend(new.filter(|disk| !current.iter().any(|current| current.name == disk.name)).cloned());
    disks
}
