//! Memory of the cluster's processes: proportional set sizes, so that shared pages count once.

use std::fs;

use anyhow::{Context as _, Result};
use drive::Embedded;
use e2e::processes;
use hostfs::process::ProcessId;
use supervisor::cluster::record::Record;

/// Bytes by part.
#[derive(Debug, Default)]
pub(crate) struct Memory(Vec<(String, u64)>);

impl Memory {
    pub(crate) fn megabytes(&self) -> f64 {
        self.0.iter().map(|(_, bytes)| bytes).sum::<u64>() as f64 / 1e6
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, bytes)| (name.as_str(), *bytes))
    }
}

/// The supervisor and the node processes.
pub(crate) fn idle(cluster: &Embedded) -> Result<Memory> {
    let record = Record::load(cluster.layout())?.context("the cluster has no record")?;
    let mut memory = Memory::default();
    if let Some(supervisor) = &record.supervisor {
        memory.0.push(("supervisor".to_owned(), pss(supervisor)?));
    }
    for node in &record.nodes {
        if let Some(process) = &node.process {
            memory.0.push((format!("node {}", node.name), pss(process)?));
        }
    }
    Ok(memory)
}

/// What stands around one guest's QEMU: shim, launcher and libvirtd.
pub(crate) fn around(guest: &str) -> Result<Memory> {
    let qemu = processes::qemus_of(guest).pop().context("the guest has no QEMU")?;
    let libvirtd = processes::libvirtd_beside(&qemu)?;
    let launcher = ProcessId::of(processes::parent(&libvirtd)?).context("libvirtd has no parent")?;
    let shim = ProcessId::of(processes::parent(&launcher)?).context("the launcher has no parent")?;
    let parts = [("virt-launcher", launcher), ("libvirtd", libvirtd), ("shim", shim)];
    Ok(Memory(parts.iter().map(|(name, id)| Ok(((*name).to_owned(), pss(id)?))).collect::<Result<_>>()?))
}

fn pss(process: &ProcessId) -> Result<u64> {
    let path = format!("/proc/{}/smaps_rollup", process.pid);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.with_context(|| format!("{path} has no Pss"))? * 1024)
}
