//! Memory a launcher Pod needs beyond the guest's own.
//!
//! The guest's memory is what the user asked for; virt-launcher, libvirtd and QEMU itself need memory on top. It is
//! added to the Pod's memory request (and to its limit, if there is one) so that the scheduler does not overcommit the
//! node and the limit does not kill a well-behaved guest.

use api::config::ClusterConfig;
use api::v1::{Binding, ProbeHandler, VirtualMachineInstance};

use crate::amount::{parse, value};
use crate::error::Error;
use crate::resources::{MEMORY, vcpus};
use crate::{network, traits};

const MIB: u64 = 1024 * 1024;

/// The input for computing the overhead.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Facts {
    /// The memory request in the VMI, in bytes; 0 if it has none.
    pub memory_request: u64,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Whether the guest has a display.
    pub graphics: bool,
    /// Whether the guest may run without hardware virtualization.
    pub emulation: bool,
    /// Whether the guest uses arm64 firmware.
    pub arm64: bool,
    /// Whether host devices are passed through to the guest.
    pub vfio: bool,
    /// Whether host metrics are kept in memory for the guest.
    pub downward_metrics: bool,
    /// How many probes run a command in the guest.
    pub exec_probes: u64,
    /// Whether guest memory is encrypted (AMD).
    pub sev: bool,
    /// Whether the guest has a TPM.
    pub tpm: bool,
    /// Whether the Pod has QoS class Guaranteed.
    pub guaranteed: bool,
    /// The reservation in the VMI's own spec.
    pub reserved: u64,
    /// Whether the guest uses passt.
    pub passt: bool,
    /// The overhead of network binding plugins.
    pub plugins: u64,
}

impl Facts {
    /// The values for one VMI.
    pub(crate) fn of(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Result<Self, Error> {
        let spec = &vmi.spec;
        let exec = |probe: &Option<api::v1::Probe>| {
            probe.as_ref().is_some_and(|probe| matches!(probe.handler(), ProbeHandler::Exec(_)))
        };
        let request = spec.domain.resources.as_ref().and_then(|resources| resources.requests.get(MEMORY));
        let reserved = spec.domain.memory.as_ref().and_then(|memory| memory.reserved_overhead.as_ref());
        let reserved = reserved.and_then(|reserved| reserved.added_overhead.as_ref());
        let bytes = |field: &str, amount| parse(field, amount).map(value);
        let mut plugins = 0;
        for plugin in network::plugins(vmi, config)?.into_values() {
            let amount = plugin.compute_resource_overhead.as_ref().and_then(|overhead| overhead.requests.get(MEMORY));
            let field = "spec.configuration.network.binding.computeResourceOverhead.requests.memory";
            plugins += amount.map(|amount| bytes(field, amount)).transpose()?.unwrap_or(0);
        }
        Ok(Facts {
            memory_request: request
                .map(|amount| bytes("spec.domain.resources.requests.memory", amount))
                .transpose()?
                .unwrap_or(0),
            vcpus: vcpus(vmi).max(1),
            graphics: spec.domain.devices.autoattach_graphics_device != Some(false),
            emulation: config.use_emulation(),
            arm64: traits::architecture(vmi, config) == "arm64",
            vfio: traits::has_vfio(vmi),
            downward_metrics: traits::has_downward_metrics(vmi),
            exec_probes: [exec(&spec.liveness_probe), exec(&spec.readiness_probe)].into_iter().map(u64::from).sum(),
            sev: traits::sev(vmi),
            tpm: traits::has_tpm(vmi),
            guaranteed: traits::guaranteed(vmi),
            reserved: reserved
                .map(|amount| bytes("spec.domain.memory.reservedOverhead.addedOverhead", amount))
                .transpose()?
                .unwrap_or(0),
            passt: traits::interfaces(vmi).iter().any(|interface| interface.bound_by() == Binding::Passt),
            plugins,
        })
    }
}

/// One part of the overhead.
pub struct Part {
    /// What takes the memory.
    pub name: &'static str,
    /// How much it takes.
    pub bytes: fn(&Facts) -> u64,
}

const fn when(needed: bool, mebibytes: u64) -> u64 {
    if needed { mebibytes * MIB } else { 0 }
}

/// Every part that a configured ratio multiplies, in the order in which it is added.
///
/// Sizes of programs are measured, with a margin; see `docs/performance.md` for the figures and the method. What could
/// not be measured (host devices, encryption, TPMs, probes) is the same as in KubeVirt.
pub const PARTS: &[Part] = &[
    // Two page table entries of 8 bytes for each 4 KiB page that guest and host map, rounded the way KubeVirt does:
    // from the *request* in the VMI, in whole kilobytes.
    Part { name: "page tables", bytes: |f| f.memory_request.div_ceil(1000) * 1000 / 512 },
    // 6.5 MiB of its own; the rest is for the page cache of the binary, which is charged to the first Pod on a node.
    Part { name: "virt-launcher", bytes: |_| 24 * MIB },
    // 6.5 MiB of its own and 22 MiB of libraries; in session mode with the QEMU driver only.
    Part { name: "libvirtd", bytes: |_| 36 * MIB },
    // 32 MiB of heap and device state and 22 MiB of libraries, with one virtual CPU.
    Part { name: "qemu", bytes: |_| 60 * MIB },
    // Its thread's stack and QEMU's state of it, 1 to 2 MiB; hardware virtualization adds state in the kernel.
    Part { name: "virtual CPUs", bytes: |f| f.vcpus.saturating_mul(4 * MIB) },
    // The main loop serves disks; its thread pool and bounce buffers grow with load.
    Part { name: "disk IO", bytes: |_| 8 * MIB },
    // 16 MiB of video memory and the VNC server's shadow copy, once a client connects. An idle text console touches 2
    // MiB.
    Part { name: "display", bytes: |f| when(f.graphics, 32) },
    // Translated guest code: 68 to 76 MiB after booting a Linux guest. The worst case of QEMU is 1 GiB; this covers the
    // normal case.
    Part { name: "code translation", bytes: |f| when(f.emulation, 128) },
    // Two flash devices of 64 MiB each hold firmware and variables.
    Part { name: "firmware", bytes: |f| when(f.arm64, 128) },
    // Device memory is mapped, and counts as locked, in addition to the guest's memory; 1 GiB is the usual reserve.
    Part { name: "host devices", bytes: |f| when(f.vfio, 1024) },
    // A directory in memory of at most this size.
    Part { name: "downward metrics", bytes: |f| when(f.downward_metrics, 1) },
    // A process per run of a probe, and its page cache.
    Part { name: "probes", bytes: |f| 10 * MIB * f.exec_probes + when(f.exec_probes > 0, 100) },
    // Pages that the firmware and QEMU keep locked for an encrypted guest.
    Part { name: "encrypted memory", bytes: |f| when(f.sev, 256) },
    // One more process, swtpm: all of its address space.
    Part { name: "tpm", bytes: |f| when(f.tpm, 53) },
    // Limits equal requests: there is no headroom for short peaks.
    Part { name: "no slack", bytes: |f| when(f.guaranteed, 100) },
    Part { name: "reserved by the instance", bytes: |f| f.reserved },
];

/// Parts that are not multiplied by the ratio: they are bounds, not estimates.
pub const FIXED_PARTS: &[Part] = &[
    // passt maps its buffers at its start and never grows.
    Part { name: "passt", bytes: |f| when(f.passt, 250) },
    Part { name: "network binding plugins", bytes: |f| f.plugins },
];

/// The total overhead in bytes. A configured ratio multiplies most of it, in whole kilobytes like KubeVirt.
pub fn memory_overhead(facts: &Facts, ratio: Option<f64>) -> u64 {
    let sum = |parts: &[Part]| parts.iter().map(|part| (part.bytes)(facts)).fold(0, u64::saturating_add);
    let estimated = sum(PARTS);
    let more = ratio.map_or(0, |ratio| ((estimated.div_ceil(1000) as f64 * (ratio - 1.0)) as u64).saturating_mul(1000));
    estimated.saturating_add(more).saturating_add(sum(FIXED_PARTS))
}
