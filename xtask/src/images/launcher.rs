//! virt-launcher's image: Debian's QEMU and libvirt as one layer, which is kept, and our programs as another.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use oci_image::{Capability, Compression, Entry, Layer, Run, Tree};
use serde::{Deserialize, Serialize};

use super::program::{self, Programs};
use super::sbom::Package;
use super::{MB, Options, Places, Recipe, debian, make, stamp, step};

const NAME: &str = "virt-launcher";
const LIMIT: u64 = 300 * MB;
/// Guests run as this user.
const QEMU: u32 = 107;
const SCRIPT: &str = "tools/images/launcher.sh";

/// The kept layer.
#[derive(Serialize, Deserialize)]
pub(super) struct Base {
    /// The recipe it was made by. Newer packages are taken up when the cache is deleted.
    from: String,
    pub(super) layer: Layer,
    pub(super) packages: Vec<Package>,
}

pub(super) fn image(places: &Places, options: &Options, programs: &Programs) -> Result<()> {
    let base = base(places)?;
    let layers = || Ok(vec![base.layer.clone(), programs_layer(places, programs)?]);
    let contents = || {
        let mut all = base.packages.clone();
        all.extend(program::contents(&places.workspace, options.profile)?);
        Ok(all)
    };
    let run = Run {
        entrypoint: vec!["/usr/bin/virt-launcher".to_owned()],
        user: format!("{QEMU}:{QEMU}"),
        env: vec!["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
        ..program::labelled("Ferrovirt: virt-launcher with QEMU and libvirt")
    };
    let recipe = Recipe {
        name: NAME,
        from: format!("{} {}", base.layer.digest, stamp::of_files(&programs.all())?),
        run,
        limit: options.profile.limit(LIMIT),
        layers: &layers,
        contents: &contents,
    };
    let made = make(places, options, &recipe);
    discard_layers(places)?;
    made
}

/// One file with several names. Its capability lets a launcher without root's rights serve DHCP; who runs it in a container
/// that drops all capabilities is refused by the kernel, so `container-disk` and `virt-tail` are other files.
fn programs_layer(places: &Places, programs: &Programs) -> Result<Layer> {
    let mut tree = Tree::default();
    let program = Entry::file(&programs.ferrovirt, 0o755).with_capability(Capability::NetBindService);
    tree.insert("usr/bin/ferrovirt", program)?;
    tree.insert("usr/bin/virt-launcher", Entry::hard_link("usr/bin/ferrovirt"))?;
    tree.insert("usr/bin/container-disk", Entry::file(&programs.container_disk, 0o755))?;
    tree.insert("usr/bin/virt-tail", Entry::file(&programs.virt_tail, 0o755))?;
    Ok(tree.write_layer(&places.layers(), Compression::None)?)
}

/// The kept layer, made if it is not there.
pub(super) fn base(places: &Places) -> Result<Base> {
    let note = note(places);
    let script = places.workspace.join(SCRIPT);
    let from = format!(
        "{} {} {}",
        stamp::of_files(&[&script])?,
        stamp::of_text(include_str!("debian.rs")),
        stamp::of_writer()
    );
    if let Some(base) = read(&note).filter(|base| base.from == from && base.layer.blob.is_file()) {
        return Ok(base);
    }
    let base = step("QEMU and libvirt from Debian packages", || make_base(places, &script, from))?;
    // One that another recipe made.
    if let Some(old) = read(&note).map(|old| old.layer.blob).filter(|old| *old != base.layer.blob) {
        let _ = fs::remove_file(old);
    }
    fs::write(&note, serde_json::to_vec(&base)?).with_context(|| format!("cannot write {}", note.display()))?;
    Ok(base)
}

fn note(places: &Places) -> PathBuf {
    places.cache.join("launcher-base.json")
}

fn read(note: &Path) -> Option<Base> {
    serde_json::from_slice(&fs::read(note).ok()?).ok()
}

fn make_base(places: &Places, script: &Path, from: String) -> Result<Base> {
    let root = Scratch(places.out.join("launcher-root"));
    root.clear()?;
    let status = Command::new(script).arg(&root.0).status().with_context(|| format!("cannot run {SCRIPT}"))?;
    if !status.success() {
        bail!("{SCRIPT} failed ({status}); it needs root, mmdebstrap and a Debian mirror: see what it says above");
    }
    let packages = debian::packages(&root.0)?;
    let mut tree = Tree::from_dir(&root.0)?;
    // Directories that Pods mount their volumes on exist, so that the root can be read-only.
    for directory in ["proc", "sys", "dev", "run", "tmp"] {
        let mode = if directory == "tmp" { 0o1777 } else { 0o755 };
        tree.insert(directory, Entry::directory(mode))?;
    }
    let layer = tree.write_layer(&places.cache, Compression::None)?;
    Ok(Base { from, layer, packages })
}

/// Removes layers that are in an archive by now.
pub(super) fn discard_layers(places: &Places) -> Result<()> {
    Scratch(places.layers()).clear()
}

/// A directory that is gone afterwards, also when something fails.
struct Scratch(PathBuf);

impl Scratch {
    fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(err) if err.kind() != std::io::ErrorKind::NotFound => {
                Err(err).with_context(|| format!("cannot remove {}", self.0.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(err) = self.clear() {
            eprintln!("images: {err:#}; remove it by hand");
        }
    }
}
