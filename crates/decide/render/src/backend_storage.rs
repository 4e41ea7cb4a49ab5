//! The claim with a guest's persistent state beyond its disks: TPM, NVRAM and changed block tracking.

use api::v1::VirtualMachineInstance;
use launcher_contract::paths;

use crate::context::Context;
use crate::error::Error;
use crate::pod_volumes::{PodVolumes, claim, mount, sub_path};
use crate::traits;

/// The name of the claim's volume in a launcher Pod.
pub const VOLUME: &str = "vm-state";

/// Where one kind of state is stored, for non-root and root launchers.
struct Place {
    kept: fn(&VirtualMachineInstance) -> bool,
    directory: &'static str,
    user: &'static str,
    root: &'static str,
}

const PLACES: &[Place] = &[
    Place {
        kept: traits::has_persistent_tpm,
        directory: "swtpm",
        user: "libvirt/qemu/swtpm",
        root: "/var/lib/libvirt/swtpm",
    },
    Place {
        kept: traits::has_persistent_tpm,
        directory: "swtpm-localca",
        user: "var/lib/swtpm-localca",
        root: "/var/lib/swtpm-localca",
    },
    Place {
        kept: traits::has_persistent_efi,
        directory: "nvram",
        user: "libvirt/qemu/nvram",
        root: "/var/lib/libvirt/qemu/nvram",
    },
    Place {
        kept: traits::tracks_blocks,
        directory: "cbt",
        user: "libvirt/qemu/cbt",
        root: "/var/lib/libvirt/qemu/cbt",
    },
];

pub(crate) fn add(vmi: &VirtualMachineInstance, ctx: &Context, all: &mut PodVolumes) -> Result<(), Error> {
    if !traits::needs_backend_claim(vmi) {
        return Ok(());
    }
    let name = ctx.backend_claim.as_deref().ok_or(Error::NoBackendClaim)?;
    let meta = mount(VOLUME, paths::STATE_META);
    all.add(claim(VOLUME, name, None), sub_path(meta, "meta"));
    let non_root = traits::non_root(vmi);
    if non_root {
        // Missing parents of mount points would be created as root; as volumes they belong to the Pod's group.
        all.scratch("private-libvirt", &format!("{}/libvirt", paths::PRIVATE));
        all.scratch("private-libvirt-qemu", &format!("{}/libvirt/qemu", paths::PRIVATE));
    }
    for place in PLACES.iter().filter(|place| (place.kept)(vmi)) {
        let path = if non_root { format!("{}/{}", paths::PRIVATE, place.user) } else { place.root.to_owned() };
        all.mounts.push(sub_path(mount(VOLUME, &path), place.directory));
    }
    Ok(())
}
