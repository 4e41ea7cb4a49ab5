//! What guests can have on this node, as labels: machine types and a CPU.

use std::io;
use std::process::{Command, Stdio};

/// The labels of this node, with KVM or with emulation.
pub(crate) fn labels(kvm: bool) -> Vec<String> {
    let mut all = machines();
    all.extend(cpu(kvm));
    all
}

/// If QEMU does not answer there are none, and VMIs that name a machine type go elsewhere.
fn machines() -> Vec<String> {
    match qemu(&["-machine", "help"]) {
        Ok(help) => nodelabels::machines(&help),
        Err(error) => {
            tracing::warn!(%error, "failed to query QEMU's machine types");
            vec![]
        }
    }
}

fn cpu(kvm: bool) -> Vec<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_else(|error| {
        tracing::warn!(%error, "failed to detect the node's CPU");
        String::new()
    });
    let version = if kvm { None } else { qemu(&["--version"]).ok().and_then(|text| nodelabels::qemu_version(&text)) };
    nodelabels::cpu(&cpuinfo, kvm, version.as_deref())
}

/// What QEMU prints.
fn qemu(arguments: &[&str]) -> io::Result<String> {
    let program = format!("qemu-system-{}", std::env::consts::ARCH);
    let output = Command::new(&program).args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = output.map_err(|error| io::Error::new(error.kind(), format!("cannot run {program}: {error}")))?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{program} failed: {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
