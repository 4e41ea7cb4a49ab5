//! The test guest as images: a container disk, and a kernel to boot directly.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use oci_image::{Compression, Kind, Tree};

use super::{MB, Options, Places, Recipe, debian, launcher, make, program, stamp};

/// Names of images, each with its directory below the guest's.
const IMAGES: [(&str, &str); 2] = [("guest-disk", "containerdisk"), ("guest-kernel", "kernel")];
const LIMIT: u64 = 100 * MB;
/// Image volumes keep owners and modes, and QEMU runs as this user.
const QEMU: u32 = 107;

pub(super) fn images(places: &Places, options: &Options) -> Result<()> {
    let guest = places.workspace.join("build/guest");
    for (name, below) in IMAGES {
        let tree = files(&guest.join(below)).context("the test guest is missing; `make guest` builds it")?;
        let layers = || Ok(vec![tree.write_layer(&places.layers(), Compression::None)?]);
        let recipe = Recipe {
            name,
            from: stamp::of_files(&[&guest.join(".stamp"), &largest(&guest, below)])?,
            run: program::labelled("Ferrovirt: test guest"),
            limit: LIMIT,
            layers: &layers,
            contents: &|| debian::packages(&guest.join("packages")),
        };
        let made = make(places, options, &recipe);
        launcher::discard_layers(places)?;
        made?;
    }
    Ok(())
}

/// The files of an image, readable for QEMU and writable for nobody.
fn files(dir: &Path) -> Result<Tree> {
    let mut tree = Tree::from_dir(dir)?;
    for (_, entry) in tree.iter_mut() {
        (entry.uid, entry.gid) = (QEMU, QEMU);
        entry.mode = if entry.kind == Kind::Directory { 0o755 } else { 0o440 };
    }
    Ok(tree)
}

/// The file that differs between two builds of the guest.
fn largest(guest: &Path, below: &str) -> PathBuf {
    let file = if below == "kernel" { "kernel/boot/initrd.gz" } else { "containerdisk/disk/disk.qcow2" };
    guest.join(file)
}
