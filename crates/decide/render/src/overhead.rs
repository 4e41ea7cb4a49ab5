//! Memory a launcher Pod needs beyond the guest's own.
//!
//! The guest's memory is what the user asked for; around it live virt-launcher, libvirtd and QEMU itself. Their share
//! is added to the Pod's memory request (and to its limit, if there is one) so that the scheduler does not overbook
//! the node and a limit does not kill a well-behaved guest.

use api::v1::VirtualMachineInstance;

use crate::resources::vcpus;

const MIB: u64 = 1024 * 1024;

/// What the size of the overhead depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// The memory request written in the instance, in bytes; 0 if it has none.
    pub memory_request: u64,
    /// Virtual CPUs.
    pub vcpus: u64,
    /// Whether the guest has a display.
    pub graphics: bool,
    /// Whether the guest may run without hardware virtualization.
    pub emulation: bool,
}

impl Facts {
    /// The facts of one instance.
    pub(crate) fn of(vmi: &VirtualMachineInstance, memory_request: u64, emulation: bool) -> Self {
        Facts {
            memory_request,
            vcpus: vcpus(vmi).max(1),
            graphics: vmi.spec.domain.devices.autoattach_graphics_device.unwrap_or(true),
            emulation,
        }
    }
}

/// One part of the overhead.
pub struct Part {
    /// What takes the memory.
    pub name: &'static str,
    /// How much it takes.
    pub bytes: fn(&Facts) -> u64,
}

/// Every part, in the order in which it is added.
///
/// The sizes are estimates: chosen below the sum KubeVirt reserves, because there is one process less (no monitor, and
/// libvirtd logs through the launcher instead of virtlogd) and the launcher carries no garbage-collected heap.
pub const PARTS: &[Part] = &[
    // Two page table entries of 8 bytes for each 4 KiB page that guest and host map, rounded the way KubeVirt does:
    // from the *request* in the instance, in whole kibibytes.
    Part { name: "page tables", bytes: |f| f.memory_request.div_ceil(1024) * 1024 / 512 },
    // A Rust program of a few threads: its heap holds one domain description and a few connections.
    Part { name: "virt-launcher", bytes: |_| 30 * MIB },
    // libvirtd in session mode with the QEMU driver only.
    Part { name: "libvirtd", bytes: |_| 40 * MIB },
    // QEMU's own heap, device state and mapped libraries.
    Part { name: "qemu", bytes: |_| 50 * MIB },
    // Stack and KVM state of each virtual CPU's thread.
    Part { name: "virtual CPUs", bytes: |f| 8 * MIB * f.vcpus },
    // The main loop serves disks; its thread pool and bounce buffers grow with load.
    Part { name: "disk IO", bytes: |_| 8 * MIB },
    // 16 MiB of video memory and the VNC server's shadow of it.
    Part { name: "display", bytes: |f| if f.graphics { 32 * MIB } else { 0 } },
    // Translated guest code. QEMU would take up to 1 GiB for it in the worst case; booting and running an ordinary
    // Linux guest stays far below, and the request is for what is ordinary.
    Part { name: "code translation", bytes: |f| if f.emulation { 128 * MIB } else { 0 } },
];

/// The whole overhead in bytes. A configured ratio multiplies it, in whole kibibytes as KubeVirt computes it.
pub fn memory_overhead(facts: &Facts, ratio: Option<f64>) -> u64 {
    let sum: u64 = PARTS.iter().map(|part| (part.bytes)(facts)).sum();
    match ratio {
        Some(ratio) => ((sum / 1024) as f64 * ratio) as u64 * 1024,
        None => sum,
    }
}
