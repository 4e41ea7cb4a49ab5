//! What an embedded cluster has created on this machine, recorded before it is created.
//!
//! `down` relies on this file alone, so it can clean up after a supervisor that was killed at any point.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hostfs::process::ProcessId;
use serde::{Deserialize, Serialize};

use super::layout::Layout;

/// Limited by the address scheme below, and by any sensible single machine.
pub const MAX_NODES: u8 = 16;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The port on the host's loopback; kept so that a kubeconfig stays valid across restarts.
    pub api_port: u16,
    /// The port for uploads on the host's loopback.
    #[serde(default)]
    pub upload_port: u16,
    pub nodes: Vec<NodeRecord>,
    pub supervisor: Option<ProcessId>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    /// 1-based; all addresses of the node are derived from it.
    pub index: u8,
    pub process: Option<ProcessId>,
}

impl NodeRecord {
    pub fn new(index: u8) -> Self {
        Self { name: format!("n{index}"), index, process: None }
    }

    /// The node's address on the fabric.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 201, 0, 10 + self.index)
    }

    /// The node's address on the migration network.
    pub fn migration_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 202, 0, 10 + self.index)
    }

    /// The first address of the node's Pod network: its bridge, and the Pods' default gateway.
    pub fn pod_gateway(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.index, 1)
    }

    pub fn pod_network(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 244, self.index, 0)
    }
}

/// The supervisor's address on the fabric, where nodes find the API server.
pub const FABRIC_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);
/// The API server's port on the fabric.
pub const FABRIC_API_PORT: u16 = 6443;
/// Prefix length of the fabric's and of each node's Pod network.
pub const PREFIX: u8 = 24;

impl Record {
    /// The record in this data directory, or `None` if no cluster was ever started there.
    pub fn load(layout: &Layout) -> Result<Option<Self>> {
        let path = layout.record();
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(parse(&path, &bytes)?)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    pub fn save(&self, layout: &Layout) -> Result<()> {
        let path = layout.record();
        let bytes = serde_json::to_vec_pretty(self).context("cannot serialise the cluster record")?;
        hostfs::atomic::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds nodes up to `count`. A larger cluster keeps its nodes: their guests may still be running.
    pub fn grow_to(&mut self, count: u8) -> Result<()> {
        if count == 0 || count > MAX_NODES {
            bail!("--nodes {count} is out of range; choose 1 to {MAX_NODES}");
        }
        for index in self.nodes.len() as u8 + 1..=count {
            self.nodes.push(NodeRecord::new(index));
        }
        Ok(())
    }
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Record> {
    serde_json::from_slice(bytes).with_context(|| {
        format!("{} is damaged; stop the cluster's processes by hand and remove the data directory", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_keeps_the_nodes_that_are_there() {
        let mut record = Record::default();
        record.grow_to(2).unwrap();
        record.grow_to(1).unwrap();
        let names: Vec<_> = record.nodes.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["n1", "n2"]);
        assert_eq!(record.nodes[1].pod_gateway(), Ipv4Addr::new(10, 244, 2, 1));
    }

    #[test]
    fn a_count_out_of_range_names_the_flag() {
        let err = Record::default().grow_to(0).unwrap_err().to_string();
        assert!(err.contains("--nodes 0"), "{err}");
        assert!(Record::default().grow_to(MAX_NODES + 1).is_err());
    }
}
