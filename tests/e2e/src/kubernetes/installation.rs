//! What an administrator does to install the system, by the same commands.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use test_cluster::Cluster;

use super::{CONTROL_PLANE, Kubernetes, images};

const PATIENCE: Duration = Duration::from_secs(180);

/// Nodes have no `/dev/kvm`.
const EMULATION: &str = r#"{"spec":{"configuration":{"developerConfiguration":{"useEmulation":true}}}}"#;

/// One node takes only what belongs to the control plane.
pub(super) fn mark_control_plane(cluster: &Cluster) -> Result<()> {
    const ROLE: &str = "node-role.kubernetes.io/control-plane";
    cluster.kubectl(&["label", "node", CONTROL_PLANE, &format!("{ROLE}=")])?;
    cluster.kubectl(&["taint", "node", CONTROL_PLANE, &format!("{ROLE}=:NoSchedule")])?;
    Ok(())
}

/// Installs everything and waits until it is ready. virt-operator brings the CRDs, after the webhooks.
pub(super) fn install(kubernetes: &Kubernetes, replicas: u8) -> Result<()> {
    let cluster = &kubernetes.cluster;
    let replicas = replicas.to_string();
    let flags = ["--image-prefix", images::PREFIX, "--image-tag", images::TAG, "--replicas", &replicas];
    let part = |name: &str| printed(kubernetes.command(&["install", "--only", name]).args(flags));
    apply(cluster, &part("operator")?)?;
    cluster.kubectl(&["wait", "crd", "kubevirts.kubevirt.io", "--for=condition=Established"])?;
    let kubevirt = part("kubevirt")?;
    // The API server serves a kind a moment after its definition is stored.
    until("the KubeVirt object to be accepted", || apply(cluster, &kubevirt))?;
    let available = ["-n", "kubevirt", "wait", "kubevirt", "kubevirt", "--for=condition=Available", "--timeout=300s"];
    cluster.kubectl(&available)?;
    eprintln!("the installation is available");
    let emulate = ["-n", "kubevirt", "patch", "kubevirt", "kubevirt", "--type=merge", "-p", EMULATION];
    until("the configuration to be accepted", || cluster.kubectl(&emulate).map(drop))
}

fn apply(cluster: &Cluster, documents: &str) -> Result<()> {
    let mut kubectl = cluster.kubectl_command();
    kubectl.args(["apply", "--server-side", "-f", "-"]).stdin(Stdio::piped());
    let mut child = kubectl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().context("cannot run kubectl")?;
    let mut input = child.stdin.take().context("kubectl has no input")?;
    let documents = documents.to_owned();
    let writer = std::thread::spawn(move || input.write_all(documents.as_bytes()));
    let output = child.wait_with_output().context("cannot wait for kubectl")?;
    let _ = writer.join(); // what it refused to read, it complains about itself
    ensure!(output.status.success(), "kubectl apply: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.output().context("cannot run ferrovirt")?;
    ensure!(output.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("ferrovirt printed no text")
}

fn until(what: &str, mut attempt: impl FnMut() -> Result<()>) -> Result<()> {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(err) if started.elapsed() > PATIENCE => bail!("waited in vain for {what}: {err:#}"),
            Err(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}
