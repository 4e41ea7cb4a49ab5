//! The images that a test cluster gets: ours, from the program that is built already, and one for clients of guests.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use launcher_contract::USER;
use oci_image::{Compression, Entry, Image, Kind, Run, Tree};

/// The machine's own programs, which the Pod mounts.
pub const HOST: &str = "registry.local/host:1";
/// As manifests of tests and examples name the guest's images.
pub const PREFIX: &str = "ferrovirt.io";
pub const TAG: &str = "latest";

const OURS: [&str; 4] = ["ferrovirt", "virt-launcher", "guest-disk", "guest-kernel"];

/// How the program in our images is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// With the tests.
    Dev,
    /// Optimised and static, as it ships.
    Dist,
}

impl Build {
    fn flag(self) -> Option<&'static str> {
        match self {
            Build::Dev => Some("--dev"),
            Build::Dist => None,
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Build::Dev => "build/images-dev",
            Build::Dist => "build/images",
        }
    }
}

/// Makes all archives that are not up to date; small ones in this folder.
pub fn all(folder: &Path, build: Build) -> Result<Vec<PathBuf>> {
    let workspace = crate::workspace();
    let status = Command::new(env!("CARGO"))
        .current_dir(&workspace)
        .args(["run", "-q", "-p", "xtask", "--", "images", "--prefix", PREFIX, "--tag", TAG])
        .args(build.flag())
        .stdin(Stdio::null())
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "`cargo xtask images {}` failed (see above)", build.flag().unwrap_or_default());
    let ours = OURS.iter().map(|name| workspace.join(build.folder()).join(format!("{name}.tar")));
    Ok(ours.chain([host(folder)?]).collect())
}

fn host(folder: &Path) -> Result<PathBuf> {
    let mut tree = Tree::default();
    for name in ["bin", "sbin", "lib", "lib64"] {
        tree.insert(name, Entry::symlink(format!("usr/{name}")))?;
    }
    tree.insert("usr", Entry::directory(0o755))?;
    test_cluster::images::write(folder, "host", &tree, Run::default())
}

/// The guest's kernel as an image of this name, readable for QEMU.
pub fn kernel(folder: &Path, reference: &str) -> Result<PathBuf> {
    let mut tree = Tree::from_dir(&crate::guest_dir()?.join("kernel"))?;
    for (_, entry) in tree.iter_mut() {
        (entry.uid, entry.gid) = (USER, USER);
        entry.mode = if entry.kind == Kind::Directory { 0o755 } else { 0o440 };
    }
    let layer = tree.write_layer(&folder.join("blobs"), Compression::None)?;
    let archive = folder.join("kernel.tar");
    Image::new(reference, Run::default(), vec![layer])?.write_archive(&archive)?;
    Ok(archive)
}
