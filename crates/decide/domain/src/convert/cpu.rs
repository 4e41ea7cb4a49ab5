//! vCPUs: number, topology and model.

use api::v1::{CPU, VirtualMachineInstance};

use super::memory::quantity;
use super::yes_no;
use crate::error::Error;
use crate::xml::{Cpu, CpuFeature, Topology, Vcpu, VcpuState, Vcpus};

/// More than any of libvirt's machine types supports; prevents overflow.
const CPUS_MAX: u32 = 4096;

pub(super) struct Cpus {
    sockets: u32,
    /// The maximum number of sockets; those beyond the current number start empty.
    max_sockets: u32,
    cores: u32,
    threads: u32,
    mode: &'static str,
    model: Option<String>,
    features: Vec<CpuFeature>,
}

pub(super) fn cpus(vmi: &VirtualMachineInstance, domain_type: &str) -> Result<Cpus, Error> {
    let cpu = vmi.spec.domain.cpu.as_ref();
    let part = |get: fn(&CPU) -> Option<u32>| cpu.and_then(get).filter(|&n| n > 0);
    let (sockets, cores, threads) = (part(|c| c.sockets), part(|c| c.cores), part(|c| c.threads));
    let sockets = match (sockets, cores, threads) {
        (None, None, None) => from_resources(vmi)?.unwrap_or(1),
        _ => sockets.unwrap_or(1),
    };
    let (cores, threads) = (cores.unwrap_or(1), threads.unwrap_or(1));
    let max_sockets = part(|c| c.max_sockets).unwrap_or(sockets).max(sockets);
    let count = [max_sockets, cores, threads].map(u64::from).into_iter().fold(1, u64::saturating_mul);
    if count > u64::from(CPUS_MAX) {
        return Err(Error::invalid("spec.domain.cpu", format!("{count} CPUs are more than {CPUS_MAX}")));
    }
    let (mode, model) = match cpu.and_then(|cpu| cpu.model.as_deref()).unwrap_or_default() {
        "" | "host-model" => ("host-model", None),
        "host-passthrough" if domain_type == "qemu" => {
            let detail = "host-passthrough needs KVM, and this node emulates; use host-model";
            return Err(Error::unsupported("spec.domain.cpu.model", detail));
        }
        "host-passthrough" => ("host-passthrough", None),
        model => ("custom", Some(model.to_owned())),
    };
    Ok(Cpus { sockets, max_sockets, cores, threads, mode, model, features: features(cpu) })
}

/// A spec without a topology gets one socket per requested CPU.
fn from_resources(vmi: &VirtualMachineInstance) -> Result<Option<u32>, Error> {
    let Some(resources) = vmi.spec.domain.resources.as_ref() else { return Ok(None) };
    for (map, field) in [(&resources.limits, "limits"), (&resources.requests, "requests")] {
        if let Some(cpu) = map.get("cpu") {
            let path = format!("spec.domain.resources.{field}.cpu");
            let count = quantity(cpu, &path)?.clamp(1, u64::from(CPUS_MAX));
            return Ok(u32::try_from(count).ok());
        }
    }
    Ok(None)
}

fn features(cpu: Option<&CPU>) -> Vec<CpuFeature> {
    let Some(cpu) = cpu else { return Vec::new() };
    let policy = |policy: Option<&str>| policy.filter(|p| !p.is_empty()).unwrap_or("require").to_owned();
    let mut features: Vec<_> = cpu
        .features
        .iter()
        .map(|feature| CpuFeature { name: feature.name.clone(), policy: policy(feature.policy.as_deref()) })
        .collect();
    // Named models still include MPX, which kernels and newer CPUs have dropped; a guest with it could not migrate.
    let by_name = !matches!(cpu.model.as_deref(), Some("host-model" | "host-passthrough"));
    if by_name && !features.iter().any(|feature| feature.name == "mpx") {
        features.push(CpuFeature { name: "mpx".into(), policy: "disable".into() });
    }
    features
}

impl Cpus {
    fn per_socket(&self) -> u32 {
        self.cores * self.threads
    }

    fn max(&self) -> u32 {
        self.max_sockets * self.per_socket()
    }

    pub(super) fn vcpu(&self) -> Vcpu {
        Vcpu { placement: "static", count: self.max() }
    }

    /// Which CPUs are online from the start, if more can be plugged. Those of the first socket are permanent.
    pub(super) fn states(&self) -> Option<Vcpus> {
        if self.max_sockets == self.sockets {
            return None;
        }
        let enabled = self.sockets * self.per_socket();
        let vcpu = (0..self.max()).map(|id| VcpuState {
            id,
            enabled: yes_no(id < enabled),
            hotpluggable: yes_no(id >= self.per_socket()),
        });
        Some(Vcpus { vcpu: vcpu.collect() })
    }

    pub(super) fn cpu(self) -> Cpu {
        Cpu {
            mode: self.mode,
            model: self.model,
            topology: Topology { sockets: self.max_sockets, cores: self.cores, threads: self.threads },
            feature: self.features,
        }
    }
}
