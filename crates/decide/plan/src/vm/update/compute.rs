//! CPU and memory hotplug.
//!
//! The VMI's spec holds the desired size; it is then usually applied by migrating the guest to a larger Pod. Changes
//! are serialized: the next one waits until the last one has reached the guest.

use std::borrow::Cow;
use std::collections::BTreeMap;

use api::conditions;
use api::v1::{CPU, ResourceRequirements, VirtualMachineInstanceTemplateSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use super::{Draft, Obstacle};
use crate::vm::expand;
use crate::vm::world::World;

const CPU_RESOURCE: &str = "cpu";
const MEMORY: &str = "memory";

/// The template with instance type and preference applied.
pub(super) fn with_sizes(w: &World) -> Result<Cow<'_, VirtualMachineInstanceTemplateSpec>, Obstacle> {
    expand::template(w, &w.vm).map_err(|error| error.message)
}

pub(super) fn cpu(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let template = with_sizes(w)?;
    let Some(vmi) = &mut draft.vmi else { return Ok(()) };
    let (Some(wanted), Some(current)) = (&template.spec.domain.cpu, &mut vmi.spec.domain.cpu) else { return Ok(()) };
    // A template without sockets leaves their number to the VMI's defaults.
    let (sockets, now) = (wanted.sockets.unwrap_or(0), current.sockets.unwrap_or(0));
    if sockets == 0 || sockets == now {
        return Ok(());
    }
    one_at_a_time(w, conditions::HOT_VCPU_CHANGE, "the number of CPUs")?;
    let refused = if sockets > current.max_sockets.unwrap_or(0) {
        Some("more CPU sockets requested than maxSockets of the running guest")
    } else if sockets < now {
        Some("CPU sockets can only be removed by a restart")
    } else if template.spec.architecture.as_deref() == Some("arm64") {
        Some("CPU hotplug is not supported on this architecture; restart the VM")
    } else {
        None
    };
    if let Some(why) = refused {
        draft.restart = Some(why.to_owned());
        return Ok(());
    }
    let more = vcpus(wanted) - vcpus(current);
    current.sockets = Some(sockets);
    let delta = Quantity::from_milli(more * (1000 / w.config.cpu_allocation_ratio()), Format::DecimalSi);
    let asked = template.spec.domain.resources.clone().unwrap_or_default();
    let resources = &mut vmi.spec.domain.resources;
    if is_some(asked.requests.get(CPU_RESOURCE)) {
        add(&mut resources.get_or_insert_default().requests, CPU_RESOURCE, delta);
    }
    if is_some(asked.limits.get(CPU_RESOURCE)) {
        add(&mut resources.get_or_insert_default().limits, CPU_RESOURCE, delta);
    }
    Ok(())
}

pub(super) fn memory(w: &World, draft: &mut Draft) -> Result<(), Obstacle> {
    let template = with_sizes(w)?;
    let Some(vmi) = &mut draft.vmi else { return Ok(()) };
    let status = vmi.status.as_ref().and_then(|status| status.memory.as_ref());
    let current = status.and_then(|memory| quantity(memory.guest_current.as_ref()));
    let at_boot = status.and_then(|memory| quantity(memory.guest_at_boot.as_ref()));
    let wanted = template.spec.domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let now = vmi.spec.domain.memory.as_ref().and_then(|memory| quantity(memory.guest.as_ref()));
    let (Some(current), Some(guest), Some(now)) = (current, quantity(wanted), now) else { return Ok(()) };
    if vmi.condition(conditions::HOT_MEMORY_CHANGE).is_some_and(|condition| condition.is_false()) {
        draft.restart = Some("memory hotplug failed; restart the VM to apply the new memory size".to_owned());
        return Ok(());
    }
    if guest == now {
        return Ok(());
    }
    let most = vmi.spec.domain.memory.as_ref().and_then(|memory| memory.max_guest.clone());
    if !vmi.has_condition(conditions::LIVE_MIGRATABLE) {
        draft.restart = Some("a memory change needs a restart: the VMI is not live-migratable".to_owned());
        return Ok(());
    }
    let Some(most) = most else {
        draft.restart =
            Some("the running guest cannot grow its memory; restart the VM to apply the new size".to_owned());
        return Ok(());
    };
    one_at_a_time(w, conditions::HOT_MEMORY_CHANGE, "the memory")?;
    let refused = match admission::memory_hotplug(&template.spec, Some(&most)) {
        Err(why) => Some(format!("a memory change needs a restart: {why}")),
        Ok(()) if at_boot.is_some_and(|at_boot| guest < at_boot) => {
            Some("memory cannot shrink below its size at boot; restart the VM".to_owned())
        }
        Ok(()) => None,
    };
    if let Some(why) = refused {
        draft.restart = Some(why);
        return Ok(());
    }
    if let (Some(memory), Some(wanted)) = (&mut vmi.spec.domain.memory, wanted) {
        memory.guest = Some(wanted.clone());
    }
    let limited = template.spec.domain.resources.as_ref().and_then(|asked| asked.limits.get(MEMORY));
    grow(&mut vmi.spec.domain.resources, guest, guest - current, is_some(limited));
    Ok(())
}

/// The request grows with the guest, and never falls below the guest's memory: unplugged memory may not all have been
/// returned. Where that minimum applies, the limit is already large enough.
fn grow(resources: &mut Option<ResourceRequirements>, guest: Quantity, delta: Quantity, limited: bool) {
    let mut delta = delta;
    let request = quantity(resources.as_ref().and_then(|resources| resources.requests.get(MEMORY)));
    if let Some(request) = request.filter(|request| !request.is_zero()) {
        let mut grown = request + delta;
        if grown < guest {
            (grown, delta) = (guest, Quantity::ZERO);
        }
        resources.get_or_insert_default().requests.insert(MEMORY.to_owned(), grown.into());
    }
    if limited {
        add(&mut resources.get_or_insert_default().limits, MEMORY, delta);
    }
}

fn one_at_a_time(w: &World, condition: &str, what: &str) -> Result<(), Obstacle> {
    let Some(vmi) = w.living_instance() else { return Ok(()) };
    if vmi.has_condition(condition) {
        return Err(format!("{what} cannot change again before the last change is applied"));
    }
    if w.is_migrating(vmi) {
        return Err(format!("{what} cannot change during a migration; the change is applied afterwards"));
    }
    Ok(())
}

/// The product of all specified parts.
fn vcpus(cpu: &CPU) -> i64 {
    let parts = [cpu.sockets, cpu.cores, cpu.threads].into_iter().flatten().filter(|part| *part != 0);
    let parts: Vec<i64> = parts.map(i64::from).collect();
    if parts.is_empty() { 0 } else { parts.into_iter().fold(1, i64::saturating_mul) }
}

fn quantity(wire: Option<&Wire>) -> Option<Quantity> {
    wire.and_then(|wire| Quantity::try_from(wire).ok())
}

fn is_some(wire: Option<&Wire>) -> bool {
    quantity(wire).is_some_and(|amount| !amount.is_zero())
}

fn add(amounts: &mut BTreeMap<String, Wire>, name: &str, delta: Quantity) {
    let sum = quantity(amounts.get(name)).unwrap_or(Quantity::ZERO) + delta;
    amounts.insert(name.to_owned(), sum.into());
}
