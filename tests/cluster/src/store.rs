//! Images unpacked once for all nodes. Each node gets hard links to them as the start of its containerd's directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use control_plane::Process;

use crate::images;
use crate::run;

const PATIENCE: Duration = Duration::from_secs(60);

/// Unpacks images into a directory, by a containerd that runs nothing.
pub(crate) fn make(store: &Path, programs: &Path, archives: &[PathBuf], log: &Path) -> Result<()> {
    let state = store.with_extension("state");
    fs::create_dir_all(&state).with_context(|| format!("cannot make {}", state.display()))?;
    let (config, socket) = (state.join("config.toml"), state.join("socket"));
    fs::write(&config, config_of(store, &state)).with_context(|| format!("cannot write {}", config.display()))?;
    // It mounts what it unpacks; nobody else sees that.
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private"]).arg(programs.join("containerd")).arg("-c").arg(&config);
    let containerd = Process::start("store", command, log)?;
    let ctr = || {
        let mut command = Command::new(programs.join("ctr"));
        command.arg("-a").arg(&socket);
        command
    };
    run::wait(PATIENCE, "containerd answers", || {
        // One that has ended does not answer later.
        containerd.check()?;
        run::output(ctr().arg("version"))
    })?;
    archives.iter().try_for_each(|archive| import(archive, ctr))?;
    drop(containerd);
    // Each node draws an identity of its own.
    let identity = store.join("io.containerd.grpc.v1.introspection");
    if identity.exists() {
        fs::remove_dir_all(&identity).with_context(|| format!("cannot remove {}", identity.display()))?;
    }
    fs::remove_dir_all(&state).with_context(|| format!("cannot remove {}", state.display()))
}

/// No plugin that would make directories or sockets elsewhere on the machine.
fn config_of(store: &Path, state: &Path) -> String {
    let (store, state) = (store.display(), state.display());
    format!(
        r#"version = 3
root = "{store}"
state = "{state}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.podsandbox.controller.v1.podsandbox", "io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{state}/socket"
[ttrpc]
  address = "{state}/socket.ttrpc"
"#
    )
}

/// Imports an archive by `ctr`, and gives each image a second name by its digest. Without that name a container's status has no
/// digest of an image that was not pulled, and a reference `NAME@sha256:…` does not find it.
pub(crate) fn import(archive: &Path, ctr: impl Fn() -> Command) -> Result<()> {
    let in_kubernetes = || {
        let mut command = ctr();
        command.env("CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS", "1").args(["-n", "k8s.io", "images"]);
        command
    };
    let listed = images::list(archive)?;
    let file = File::open(archive).with_context(|| format!("cannot open {}", archive.display()))?;
    run::output(in_kubernetes().args(["import", "-"]).stdin(Stdio::from(file)))
        .with_context(|| format!("cannot import {}", archive.display()))?;
    for image in listed {
        run::output(in_kubernetes().args(["tag", "--force", &image.name, &image.by_digest()]))?;
    }
    Ok(())
}

/// The start of a node's containerd directory. Blobs and unpacked files are never written to; databases are, so they are copies.
pub(crate) fn copy(store: &Path, to: &Path) -> Result<()> {
    ensure!(!to.exists(), "{} exists already", to.display());
    let copy =
        "cp -al -- \"$1\" \"$2\" && cd \"$1\" && find . -name '*.db' -exec cp --remove-destination -- {} \"$2\"/{} ';'";
    let mut command = Command::new("sh");
    command.args(["-c", copy, "copy"]).arg(store).arg(to);
    run::output(&mut command).map(drop).with_context(|| format!("cannot give images to {}", to.display()))
}
