//! vCPUs: requests, topology, placement and flags.

use api::config::ClusterConfig;
use api::v1::{CPU, DomainSpec, VirtualMachineInstanceSpec};
use machinery::field::Path;
use machinery::quantity::Quantity;

use super::amount;
use super::findings::{Findings, text};

const NAME: &str = "cpu";
const FEATURE_POLICIES: [&str; 6] = ["", "force", "require", "optional", "disable", "forbid"];

/// Requests and limits.
pub(super) fn resources(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let Some(resources) = &given.resources else { return };
    let (request, limit) = (amount(&resources.requests, NAME), amount(&resources.limits, NAME));
    let requests = domain.child("resources.requests.cpu");
    if request.is_negative() {
        found.invalid(&requests, request.to_string(), "must be greater than or equal to 0");
    }
    if limit.is_negative() {
        let limits = domain.child("resources.limits.cpu");
        found.invalid(&limits, limit.to_string(), "must be greater than or equal to 0");
    }
    if limit > Quantity::ZERO && request.milli_value() > limit.milli_value() {
        found.invalid(&requests, request.to_string(), format_args!("must not be greater than the limit {limit}"));
    }
}

/// Everything about the CPUs themselves.
pub(super) fn check(
    found: &mut Findings,
    field: &Path<'_>,
    domain: &Path<'_>,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let Some(cpu) = &spec.domain.cpu else { return };
    let dedicated = cpu.dedicated_cpu_placement == Some(true);
    if dedicated {
        dedicated_memory(found, domain, &spec.domain);
        dedicated_cpus(found, domain, cpu, &spec.domain);
        threads(found, field, domain, cpu, spec, config);
    }
    numa(found, domain, cpu, &spec.domain);
    if cpu.isolate_emulator_thread == Some(true) && !dedicated {
        let detail = "needs dedicatedCpuPlacement";
        found.invalid(&domain.child("cpu.isolateEmulatorThread"), true, detail);
    }
    let features = domain.child("cpu.features");
    for (index, feature) in cpu.features.iter().enumerate() {
        let policy = text(&feature.policy);
        if !FEATURE_POLICIES.contains(&policy) {
            found.not_supported(&features.index(index).child("policy"), policy, &FEATURE_POLICIES[1..]);
        }
    }
    let (sockets, most) = (cpu.sockets.unwrap_or(0), cpu.max_sockets.unwrap_or(0));
    if most != 0 && sockets > most {
        let detail = format_args!("must not be greater than maxSockets, which is {most}");
        found.invalid(&domain.child("cpu.sockets"), sockets, detail);
    }
}

/// Real-time CPUs must be dedicated, with NUMA passthrough.
pub(super) fn realtime(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let Some(cpu) = given.cpu.as_ref().filter(|cpu| cpu.realtime.is_some()) else { return };
    if cpu.dedicated_cpu_placement != Some(true) {
        found.required(&domain.child("cpu.dedicatedCpuPlacement"), "real-time CPUs have to be pinned");
    }
    if !maps_numa(cpu) {
        found
            .required(&domain.child("cpu.numa.guestMappingPassthrough"), "real-time CPUs have to be near their memory");
    }
}

/// Whether the guest sees the NUMA topology of its pinned CPUs.
pub(crate) fn maps_numa(cpu: &CPU) -> bool {
    cpu.numa.as_ref().is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

fn numa(found: &mut Findings, domain: &Path<'_>, cpu: &CPU, given: &DomainSpec) {
    if !maps_numa(cpu) {
        return;
    }
    let at = domain.child("cpu.numa.guestMappingPassthrough");
    if cpu.dedicated_cpu_placement != Some(true) {
        found.invalid(&at, "", "needs dedicatedCpuPlacement");
    }
    if given.memory.as_ref().is_none_or(|memory| memory.hugepages.is_none()) {
        found.invalid(&at, "", "needs memory.hugepages");
    }
}

fn dedicated_memory(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let resources = given.resources.as_ref();
    let request = resources.map(|resources| amount(&resources.requests, "memory")).unwrap_or_default();
    let limit = resources.map(|resources| amount(&resources.limits, "memory")).unwrap_or_default();
    let stated = given.memory.as_ref().is_some_and(|memory| {
        memory.hugepages.is_some() || memory.guest.as_ref().is_some_and(|guest| !super::parsed(guest).is_zero())
    });
    if request.is_zero() && limit.is_zero() && !stated {
        let detail = "with dedicatedCpuPlacement a request, a limit, huge pages or guest memory has to be given";
        found.invalid(&domain.child("resources.limits.memory"), "", detail);
    }
    if request.value() > 0 && limit.value() > 0 && request.value() != limit.value() {
        let detail = format_args!("must be equal to the limit {limit} with dedicatedCpuPlacement");
        found.invalid(&domain.child("resources.requests.memory"), request.to_string(), detail);
    }
}

/// The Pod requests as many whole CPUs as the guest has.
fn dedicated_cpus(found: &mut Findings, domain: &Path<'_>, cpu: &CPU, given: &DomainSpec) {
    let resources = given.resources.as_ref();
    let request = resources.map(|resources| amount(&resources.requests, NAME)).unwrap_or_default();
    let limit = resources.map(|resources| amount(&resources.limits, NAME)).unwrap_or_default();
    for (path, amount) in [("resources.requests.cpu", request), ("resources.limits.cpu", limit)] {
        if amount.value() > 0 && amount.milli_value() % 1000 != 0 {
            let detail = "must be a whole number with dedicatedCpuPlacement";
            found.invalid(&domain.child(path), amount.to_string(), detail);
        }
    }
    let (requested, limited, cpus) = (request.value(), limit.value(), count(cpu));
    let at = domain.child("cpu.dedicatedCpuPlacement");
    if requested == 0 && limited == 0 && cpus == 0 {
        found.invalid(&at, true, "needs a CPU request, a CPU limit or a topology");
    }
    if requested > 0 && limited > 0 && requested != limited {
        found.invalid(&at, true, "needs equal CPU request and limit");
    }
    if (requested > 0 || limited > 0) && cpus > 0 && requested != cpus && limited != cpus {
        let detail = format_args!("needs a CPU request or limit of {cpus}, which is what the topology makes");
        found.invalid(&at, true, detail);
    }
}

fn threads(
    found: &mut Findings,
    field: &Path<'_>,
    domain: &Path<'_>,
    cpu: &CPU,
    spec: &VirtualMachineInstanceSpec,
    config: &ClusterConfig,
) {
    let threads = cpu.threads.unwrap_or(0);
    let architecture = super::architecture(spec, config);
    if threads > 1 && architecture == "arm64" {
        let detail = "cores of this architecture have one thread: set cpu.threads to 1";
        found.invalid(&field.child("architecture"), architecture, detail);
    }
    if threads > 2 {
        found.invalid(&domain.child("cpu.dedicatedCpuPlacement"), true, "allows at most two threads per core");
    }
}

/// The number of CPUs of a topology. Unset parts count as one, but an empty topology has none.
fn count(cpu: &CPU) -> i64 {
    let parts = [cpu.cores, cpu.sockets, cpu.threads].map(|part| i64::from(part.unwrap_or(0)));
    if parts == [0, 0, 0] {
        return 0;
    }
    parts.iter().map(|part| (*part).max(1)).fold(1, i64::saturating_mul)
}

#[cfg(test)]
mod tests {
    use api::config::ClusterConfig;
    use api::v1::{CPU, VirtualMachineInstanceSpec};
    use machinery::field::Path;

    use super::super::findings::Findings;

    /// Defaulting sets a topology, so no object that went through it gets here.
    #[test]
    fn dedicated_cpus_are_some() {
        let refused = |cpu: CPU| {
            let mut spec = VirtualMachineInstanceSpec::default();
            spec.domain.cpu = Some(CPU { dedicated_cpu_placement: Some(true), ..cpu });
            let mut found = Findings::default();
            let (field, domain) = (Path::new("spec"), Path::new("spec.domain"));
            super::check(&mut found, &field, &domain, &spec, &ClusterConfig::default());
            found.into_errors().iter().any(|error| error.field.as_str() == "spec.domain.cpu.dedicatedCpuPlacement")
        };
        assert!(refused(CPU::default()));
        assert!(!refused(CPU { cores: Some(1), ..CPU::default() }));
    }
}
