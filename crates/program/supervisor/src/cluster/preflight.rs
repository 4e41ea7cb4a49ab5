//! Checks before anything is created: each error is one sentence with its remedy.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// Programs a node needs, with their Debian packages.
const PROGRAMS: &[(&str, &str)] = &[
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("qemu-img", "qemu-utils"),
    ("libvirtd", "libvirt-daemon libvirt-daemon-driver-qemu"),
    ("nft", "nftables"),
];

/// Minimum free disk space: a full disk loses writes.
const MIN_FREE_BYTES: u64 = 64 << 20;

/// Checks everything `up` needs of the machine.
pub fn check(data_dir: &Path) -> Result<()> {
    root()?;
    for (program, package) in PROGRAMS {
        if find(program).is_none() {
            bail!("{program} is not installed; install it with: apt-get install {package}");
        }
    }
    free_space(data_dir)
}

/// Requires root, for namespaces, mounts and cgroups.
pub fn root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("this needs root (network namespaces, mounts, cgroups); run it with sudo");
    }
    Ok(())
}

fn free_space(data_dir: &Path) -> Result<()> {
    // The directory may not exist yet; its nearest existing parent is on the same file system.
    let existing = data_dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let Ok(stat) = rustix::fs::statvfs(existing) else { return Ok(()) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < MIN_FREE_BYTES {
        bail!(
            "the disk that holds {} has only {} MiB free; make room or choose another place with --data-dir",
            data_dir.display(),
            free >> 20
        );
    }
    Ok(())
}

/// Finds a program like a shell does, including directories that root's PATH may lack.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(extra).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}
