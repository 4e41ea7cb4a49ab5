//! The programs, and the image of the main one: a static program with nothing below it, or, for tests, the one that is
//! built already on Debian's libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use oci_image::{Compression, Entry, Layer, Run, Tree};

use super::{MB, Options, Places, Recipe, crates, launcher, make, remap, stamp};

const STATIC_TARGET: &str = "x86_64-unknown-linux-musl";
const HOST_TARGET: &str = "x86_64-unknown-linux-gnu";
/// The packages of the programs, which have their names.
const NAMES: [&str; 3] = ["ferrovirt", "container-disk", "virt-tail"];
/// The user of Pods that choose none, as in KubeVirt's images.
const USER: u32 = 1001;
const LIMIT: u64 = 45 * MB;
/// Without optimisation.
const QUICK_LIMIT: u64 = 210 * MB;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Optimised over all crates at once: a quarter of an hour of two cores.
    Dist,
    /// Quick to build.
    Quick,
    /// The program in `target/debug`, which every test build leaves there. It needs the C library of Debian 12.
    Dev,
}

impl Profile {
    /// A limit of an image with the program in it: what else it has, and the program.
    pub(super) fn limit(self, dist: u64) -> u64 {
        match self {
            Profile::Dist => dist,
            Profile::Quick | Profile::Dev => dist - LIMIT + QUICK_LIMIT,
        }
    }

    fn target(self) -> &'static str {
        match self {
            Profile::Dist | Profile::Quick => STATIC_TARGET,
            Profile::Dev => HOST_TARGET,
        }
    }
}

/// The built programs.
pub(crate) struct Programs {
    pub(crate) ferrovirt: PathBuf,
    pub(crate) container_disk: PathBuf,
    pub(crate) virt_tail: PathBuf,
}

impl Programs {
    fn in_folder(folder: &Path) -> Self {
        let [ferrovirt, container_disk, virt_tail] = NAMES.map(|name| folder.join(name));
        Self { ferrovirt, container_disk, virt_tail }
    }

    pub(super) fn all(&self) -> [&Path; 3] {
        [&self.ferrovirt, &self.container_disk, &self.virt_tail]
    }
}

/// Builds the programs, or takes those that are there.
pub(crate) fn build(workspace: &Path, profile: Profile) -> Result<Programs> {
    match profile {
        Profile::Dist => build_static(workspace, "dist"),
        Profile::Quick => build_static(workspace, "quick"),
        Profile::Dev => take_built(workspace),
    }
}

fn build_static(workspace: &Path, profile: &str) -> Result<Programs> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(workspace).args(["build", "--profile", profile, "--target", STATIC_TARGET]);
    cargo.args(NAMES.iter().flat_map(|name| ["-p", name]));
    // The C code of the TLS library must not meet glibc's headers. It leaves its own paths out.
    cargo.env("CC_x86_64_unknown_linux_musl", "musl-gcc");
    remap::paths(&mut cargo, workspace, &target_folder(workspace))?;
    let status = cargo.status().context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo could not build the static program ({status}); `tools/setup.sh images` installs what it needs");
    }
    Ok(Programs::in_folder(&target_folder(workspace).join(STATIC_TARGET).join(profile)))
}

/// What a build of the tests has left, without its debug information. Only the small programs are compiled, which depend
/// on nothing: one of them runs in foreign images and has to be static.
fn take_built(workspace: &Path) -> Result<Programs> {
    let folder = workspace.join("build/images-dev/programs");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let programs = Programs::in_folder(&folder);
    let built = std::env::var_os("FERROVIRT_BIN").map(PathBuf::from);
    strip(&built.unwrap_or_else(|| target_folder(workspace).join("debug/ferrovirt")), &programs.ferrovirt)?;
    for (name, program) in [("container-disk", &programs.container_disk), ("virt-tail", &programs.virt_tail)] {
        compile(&workspace.join("crates/program").join(name).join("src"), name, program)?;
    }
    Ok(programs)
}

/// Compiles a static program that consists of `main.rs` and, if it is there, the library beside it.
fn compile(sources: &Path, name: &str, program: &Path) -> Result<()> {
    let rustc = |arguments: &mut dyn FnMut(&mut Command)| -> Result<()> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--edition", "2024", "-C", "target-feature=+crt-static"]);
        arguments(&mut rustc);
        let status = rustc.status().context("cannot run rustc")?;
        if !status.success() {
            bail!("rustc could not build {name} ({status}); `tools/setup.sh test` installs what it needs");
        }
        Ok(())
    };
    let (library, krate) = (sources.join("lib.rs"), name.replace('-', "_"));
    let compiled = program.with_file_name(format!("lib{krate}.rlib"));
    if library.exists() {
        rustc(&mut |rustc| {
            rustc.args(["--crate-type", "rlib", "--crate-name", &krate, "-o"]).arg(&compiled).arg(&library);
        })?;
    }
    rustc(&mut |rustc| {
        rustc.args(["-C", "strip=symbols", "-o"]).arg(program).arg(sources.join("main.rs"));
        if library.exists() {
            rustc.arg("--extern").arg(format!("{krate}={}", compiled.display()));
        }
    })
}

/// Removes symbols and debug information from a copy, unless that has been done.
fn strip(program: &Path, to: &Path) -> Result<()> {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let Some(built) = modified(program) else {
        bail!("{} is not there; `cargo build` builds it", program.display());
    };
    if modified(to).is_some_and(|stripped| stripped > built) {
        return Ok(());
    }
    let status = Command::new("strip").arg("-o").arg(to).arg(program).status().context("cannot run strip")?;
    if !status.success() {
        bail!("strip failed on {} ({status})", program.display());
    }
    Ok(())
}

fn target_folder(workspace: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from)
}

pub(super) fn image(places: &Places, options: &Options, programs: &Programs) -> Result<()> {
    let below = match options.profile {
        Profile::Dist | Profile::Quick => None,
        Profile::Dev => Some(launcher::base(places)?),
    };
    let layers = || -> Result<Vec<Layer>> {
        let mut tree = Tree::default();
        tree.insert("usr/bin/ferrovirt", Entry::file(&programs.ferrovirt, 0o755))?;
        tree.insert("usr/bin/virtctl", Entry::symlink("ferrovirt"))?;
        let users = format!("root:x:0:0:root:/:/sbin/nologin\nferrovirt:x:{USER}:{USER}::/:/sbin/nologin\n");
        if below.is_none() {
            tree.insert("etc/passwd", Entry::text(users))?;
            tree.insert("etc/group", Entry::text(format!("root:x:0:\nferrovirt:x:{USER}:\n")))?;
            tree.insert("tmp", Entry::directory(0o1777))?;
        }
        let own = tree.write_layer(&places.layers(), Compression::None)?;
        Ok(below.iter().map(|below| below.layer.clone()).chain([own]).collect())
    };
    let contents = || {
        let mut all = below.as_ref().map(|below| below.packages.clone()).unwrap_or_default();
        all.extend(crates::linked(&places.workspace, "ferrovirt", options.profile.target())?);
        Ok(all)
    };
    let run = Run {
        entrypoint: vec!["/usr/bin/ferrovirt".to_owned()],
        user: format!("{USER}:{USER}"),
        env: vec!["PATH=/usr/bin".to_owned()],
        ..labelled("Ferrovirt: virtual machines as Kubernetes objects")
    };
    let recipe = Recipe {
        name: "ferrovirt",
        from: format!(
            "{} {}",
            below.as_ref().map_or("nothing", |below| &below.layer.digest),
            stamp::of_files(&[&programs.ferrovirt])?
        ),
        run,
        limit: options.profile.limit(LIMIT) + below.as_ref().map_or(0, |below| below.layer.size),
        layers: &layers,
        contents: &contents,
    };
    let made = make(places, options, &recipe);
    launcher::discard_layers(places)?;
    made
}

/// The crates in all programs.
pub(super) fn contents(workspace: &Path, profile: Profile) -> Result<Vec<super::sbom::Package>> {
    let of_each = NAMES.iter().map(|name| crates::linked(workspace, name, profile.target()));
    Ok(of_each.collect::<Result<Vec<_>>>()?.concat())
}

pub(super) fn labelled(title: &str) -> Run {
    let labels =
        [("org.opencontainers.image.title", title), ("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Run { labels: labels.into(), ..Run::default() }
}
