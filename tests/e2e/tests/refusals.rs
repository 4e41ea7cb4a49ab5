//! A user's mistakes and a machine's shortcomings: one clear sentence with the remedy, and a non-zero exit code.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use drive::Embedded;
use e2e::manifest::Manifest;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::embedded;

/// Not root, and nobody in particular.
const NOBODY: u32 = 65534;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        embedded("refusal_of_up_without_root", without_root),
        embedded("refusal_of_up_without_qemu", without_qemu),
        embedded("refusal_of_up_on_a_full_disk", full_disk),
        embedded("refusal_of_a_second_up_and_of_bad_manifests", on_a_cluster),
    ]
}

/// The program failed, and said all of `words` in one line.
fn refused(output: &Output, words: &[&str]) -> Result<()> {
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "it was not refused: {text}");
    let said = text.lines().any(|line| words.iter().all(|word| line.contains(word)));
    ensure!(said, "no line says {words:?}:\n{text}");
    Ok(())
}

async fn without_root() -> Result<()> {
    // The checkout may be closed to others; a copy of the program is not.
    let dir = tempfile::Builder::new().prefix("fv-").tempdir_in("/tmp")?;
    let copy = dir.path().join("ferrovirt");
    std::fs::copy(e2e::program()?, &copy).context("cannot copy the program")?;
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let output = Command::new(copy).args(["up", "--data-dir", "/tmp/fv-none"]).uid(NOBODY).gid(NOBODY).output()?;
    refused(&output, &["root", "sudo"])
}

async fn without_qemu() -> Result<()> {
    let output =
        Command::new(e2e::program()?).args(["up", "--data-dir", "/tmp/fv-none"]).env("PATH", "/nowhere").output()?;
    refused(&output, &["qemu-system-x86_64 is not installed", "apt-get install"])
}

async fn full_disk() -> Result<()> {
    let dir = tempfile::Builder::new().prefix("fv-").tempdir_in("/tmp")?;
    let _mounted = Tmpfs::mount(dir.path(), 1 << 20)?;
    let output = Command::new(e2e::program()?).arg("up").arg("--data-dir").arg(dir.path()).output()?;
    refused(&output, &["MiB free", "--data-dir"])
}

/// A small file system, unmounted when it goes out of scope.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(path: &'a Path, size: u64) -> Result<Self> {
        hostfs::mounts::tmpfs(path, 0o755, Some(size)).context("cannot mount a small file system")?;
        Ok(Self(path))
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        if let Err(err) = hostfs::mounts::umount_all_below(self.0) {
            eprintln!("cannot unmount {}: {err}", self.0.display());
        }
    }
}

async fn on_a_cluster() -> Result<()> {
    let dir = std::path::PathBuf::from(format!("/tmp/fv-ref-{}", std::process::id()));
    let mut cluster = Embedded::start(&e2e::program()?, &dir, 1, None).await?;
    let second = Command::new(cluster.exe()).args(["up", "--port", "0", "--data-dir"]).arg(&dir).output()?;
    refused(&second, &["already running", "ferrovirt down"])?;

    apply_refused(&cluster, "kind: [unclosed", &["document 1", "line"])?;
    let vm = || Manifest::vm("wrong", "Halted").json().clone();
    let domain = |vm: &mut Value, key: &str, value: Value| vm["spec"]["template"]["spec"]["domain"][key] = value;
    let mut unknown_field = vm();
    domain(&mut unknown_field, "memmory", json!({"guest": "64Mi"}));
    apply_refused(&cluster, &unknown_field.to_string(), &["spec.template.spec.domain.memmory", "unknown field"])?;
    let mut wrong_type = vm();
    domain(&mut wrong_type, "cpu", json!({"cores": "two"}));
    apply_refused(&cluster, &wrong_type.to_string(), &["spec.template.spec.domain.cpu.cores"])?;
    let mut unsupported = vm();
    unsupported["spec"]["template"]["spec"]["domain"]["devices"]["gpus"] =
        json!([{"name": "gpu", "deviceName": "vendor.example/gpu"}]);
    apply_refused(&cluster, &unsupported.to_string(), &["spec.template.spec.domain.devices.gpus", "not supported"])?;
    apply_refused(
        &cluster,
        r#"{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachin", "metadata": {"name": "x"}}"#,
        &["VirtualMachin"],
    )?;
    cluster.down().await
}

fn apply_refused(cluster: &Embedded, manifest: &str, words: &[&str]) -> Result<()> {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile()?;
    std::fs::write(file.path(), manifest)?;
    let output = cluster.command(&["apply", "-f"]).arg(file.path()).output().context("cannot run apply")?;
    refused(&output, words).with_context(|| format!("applying {manifest}"))
}
