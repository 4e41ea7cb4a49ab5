//! A dump of the guest's memory: the claim is hot-plugged, written, and unplugged.
//!
//! ```text
//! Associating ─► InProgress ─► Unmounting ─► Completed          remove: any phase ─► Dissociating ─► (no request)
//!                     └──────► Failed
//! ```

use api::v1::{
    MemoryDumpPhase as Phase, MemoryDumpVolumeSource, VirtualMachineInstance, VirtualMachineInstanceSpec,
    VirtualMachineMemoryDumpRequest, Volume, VolumePhase, VolumeStatus,
};
use api::{annotations, reasons};

use super::action::Action;
use super::update::{Draft, Obstacle};
use super::world::World;
use crate::effect::Why;
use crate::guard::Guarded;
use crate::object::Kind;

/// The claim's annotation after a failed dump.
const FAILED: &str = "Memory dump failed";

/// Applies what the phase requires to the template, the VMI and the claim.
pub(super) fn carry_on(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let Some(request) = w.vm.status.as_ref().and_then(|status| status.memory_dump_request.as_ref()) else {
        return Ok(());
    };
    let claim = &request.claim_name;
    match request.phase {
        Phase::Associating => {
            if let Some(vmi) = draft.vmi.as_mut().filter(|vmi| vmi.is_running()) {
                put_in(&mut draft.spec.template.spec, claim);
                put_in(&mut vmi.spec, claim);
            }
        }
        Phase::Unmounting | Phase::Failed => {
            draft.claims.extend(annotate(w, request)?);
            if let Some(vmi) = &mut draft.vmi {
                take_out(&mut vmi.spec, claim);
            }
        }
        Phase::Dissociating => {
            take_out(&mut draft.spec.template.spec, claim);
            if let Some(vmi) = &mut draft.vmi {
                take_out(&mut vmi.spec, claim);
            }
        }
        Phase::InProgress | Phase::Completed | Phase::Other(_) => {}
    }
    Ok(())
}

fn put_in(spec: &mut VirtualMachineInstanceSpec, claim: &str) {
    if spec.volumes.iter().any(|volume| volume.name == claim) {
        return;
    }
    let claim_name = claim.to_owned();
    let dump = MemoryDumpVolumeSource { claim_name, hotpluggable: Some(true), ..MemoryDumpVolumeSource::default() };
    spec.volumes.push(Volume { name: claim.to_owned(), memory_dump: Some(dump), ..Volume::default() });
}

pub(super) fn take_out(spec: &mut VirtualMachineInstanceSpec, claim: &str) {
    spec.volumes.retain(|volume| volume.name != claim);
}

/// Annotates the claim with the name of the dump file, or with the failure.
fn annotate(w: &World, request: &VirtualMachineMemoryDumpRequest) -> Result<Option<Action>, Obstacle> {
    let name = &request.claim_name;
    let claim = w.claims.claim(name).ok_or_else(|| {
        format!("PersistentVolumeClaim {name} of the memory dump does not exist; create it or remove the request")
    })?;
    let words = if request.phase == Phase::Failed { Some(FAILED) } else { request.file_name.as_deref() };
    let Some(words) = words else { return Ok(None) };
    let mut noted = claim.metadata.annotations.clone().unwrap_or_default();
    noted.insert(annotations::MEMORY_DUMP.to_owned(), words.to_owned());
    let patch = Guarded::new(&claim.metadata).annotations(&noted).build();
    Ok(patch.map(|patch| Action::patch(Kind::Claim, name, patch, Why::shown(reasons::MEMORY_DUMP_ERROR, ""))))
}

/// The updated request; `None` once it is done.
pub(super) fn progress(w: &World, old: &VirtualMachineMemoryDumpRequest) -> Option<VirtualMachineMemoryDumpRequest> {
    let mut new = old.clone();
    let report = w.instance().and_then(|vmi| report(vmi, &old.claim_name));
    let in_template = w.vm.spec.template.spec.volumes.iter().any(|volume| volume.name == old.claim_name);
    if old.remove == Some(true) && old.phase != Phase::Dissociating {
        new.phase = Phase::Dissociating;
        return Some(new);
    }
    match old.phase {
        Phase::Associating if in_template => new.phase = Phase::InProgress,
        Phase::InProgress => take_down(&mut new, report),
        Phase::Unmounting if report.is_none() => new.phase = Phase::Completed,
        Phase::Dissociating if report.is_none() && !in_template => return None,
        _ => {}
    }
    Some(new)
}

fn report<'a>(vmi: &'a VirtualMachineInstance, claim: &str) -> Option<&'a VolumeStatus> {
    vmi.status.as_ref()?.volume_status.iter().find(|status| status.name == claim)
}

/// Copies virt-handler's report about the dump.
fn take_down(request: &mut VirtualMachineMemoryDumpRequest, report: Option<&VolumeStatus>) {
    let Some((report, dump)) = report.and_then(|report| Some((report, report.memory_dump_volume.as_ref()?))) else {
        return;
    };
    if dump.start_timestamp.is_some() {
        request.start_timestamp.clone_from(&dump.start_timestamp);
    }
    match report.phase {
        Some(VolumePhase::MemoryDumpCompleted) => {
            request.phase = Phase::Unmounting;
            request.end_timestamp.clone_from(&dump.end_timestamp);
            request.file_name.clone_from(&dump.target_file_name);
        }
        Some(VolumePhase::MemoryDumpFailed) => {
            request.phase = Phase::Failed;
            request.end_timestamp.clone_from(&dump.end_timestamp);
            request.message.clone_from(&report.message);
        }
        _ => {}
    }
}
