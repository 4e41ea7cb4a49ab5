//! Platform features, the clock, and the reboot action.

use api::v1::{Timer as Timers, VirtualMachineInstance};

use super::yes_no;
use crate::error::Error;
use crate::xml::{Clock, Empty, Features, OnOff, Timer};

/// ACPI is on unless the spec disables it: without it a guest cannot be asked to power off.
pub(super) fn features(vmi: &VirtualMachineInstance) -> Features {
    let given = vmi.spec.domain.features.as_ref();
    let acpi = given.and_then(|features| features.acpi.as_ref()?.enabled).unwrap_or(true);
    let apic = given.and_then(|features| features.apic.as_ref()).is_some_and(|apic| apic.enabled != Some(false));
    let smm = given.and_then(|features| features.smm.as_ref());
    let state = |on: bool| OnOff { state: if on { "on" } else { "off" } };
    Features {
        acpi: acpi.then_some(Empty {}),
        apic: apic.then_some(Empty {}),
        smm: smm.map(|smm| state(smm.enabled != Some(false))),
        // Only VMware's tools would use this port.
        vmport: Some(state(false)),
    }
}

pub(super) fn clock(vmi: &VirtualMachineInstance) -> Result<Option<Clock>, Error> {
    let Some(clock) = &vmi.spec.domain.clock else { return Ok(None) };
    let timer = clock.timer.as_ref().map(timers).unwrap_or_default();
    Ok(Some(match (&clock.timezone, &clock.utc) {
        (Some(_), Some(_)) => {
            return Err(Error::invalid("spec.domain.clock", "utc and timezone exclude each other"));
        }
        (Some(timezone), None) => {
            Clock { offset: "timezone", adjustment: None, timezone: Some(timezone.clone()), timer }
        }
        (None, Some(utc)) => {
            let adjustment = utc.offset_seconds.map_or_else(|| "reset".to_owned(), |seconds| seconds.to_string());
            Clock { offset: "utc", adjustment: Some(adjustment), timezone: None, timer }
        }
        (None, None) => Clock { offset: "utc", adjustment: None, timezone: None, timer },
    }))
}

fn timers(timers: &Timers) -> Vec<Timer> {
    let timer = |name, present: Option<bool>, tickpolicy: Option<&String>, track: Option<&String>| Timer {
        name,
        track: track.cloned(),
        tickpolicy: tickpolicy.cloned(),
        present: yes_no(present.unwrap_or(true)),
    };
    let rtc = timers.rtc.as_ref().map(|t| timer("rtc", t.present, t.tick_policy.as_ref(), t.track.as_ref()));
    let pit = timers.pit.as_ref().map(|t| timer("pit", t.present, t.tick_policy.as_ref(), None));
    let kvm = timers.kvm.as_ref().map(|t| timer("kvmclock", t.present, None, None));
    let hpet = timers.hpet.as_ref().map(|t| timer("hpet", t.present, t.tick_policy.as_ref(), None));
    let hyperv = timers.hyperv.as_ref().map(|t| timer("hypervclock", t.present, None, None));
    [rtc, pit, kvm, hpet, hyperv].into_iter().flatten().collect()
}

pub(super) fn on_reboot(vmi: &VirtualMachineInstance) -> Result<&'static str, Error> {
    match vmi.spec.domain.reboot_policy.as_deref() {
        None | Some("" | "Reboot") => Ok("restart"),
        Some("Terminate") => Ok("destroy"),
        Some(other) => {
            let detail = format!("{other:?} is neither Reboot nor Terminate");
            Err(Error::invalid("spec.domain.rebootPolicy", detail))
        }
    }
}
