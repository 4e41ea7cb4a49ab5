//! Device nodes: whether they are there, and whether they work.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use devices::{Check, Health, Identity, Plugin, Seen, Tried, judge};
use rustix::fs::{AtFlags, FileType};
use tokio::time::Instant;

use crate::{Config, KvmProbe};

/// What is known about the device nodes of a plugin.
pub(crate) struct Nodes {
    root: PathBuf,
    kvm: KvmProbe,
    tried: BTreeMap<String, Tried>,
}

impl Nodes {
    pub(crate) fn new(config: &Config) -> Nodes {
        Nodes { root: config.root.clone(), kvm: config.kvm.clone(), tried: BTreeMap::new() }
    }

    /// The health of a plugin's devices: that of the first node that does not work. Tries those that have to be.
    pub(crate) async fn health(&mut self, plugin: &Plugin, started: Instant) -> Health {
        for node in &plugin.nodes {
            let health = self.node(node, plugin.check, started).await;
            if health != Health::Healthy {
                return health;
            }
        }
        Health::Healthy
    }

    async fn node(&mut self, node: &str, check: Check, started: Instant) -> Health {
        let path = self.root.join(node.trim_start_matches('/'));
        let seen = look(&path);
        let judgement = judge(node, seen, self.tried.get(node), started.elapsed());
        let Some(identity) = judgement.try_it else { return judgement.health };
        let result = self.attempt(node.to_owned(), path, check).await;
        let now: Duration = started.elapsed();
        self.tried.insert(node.to_owned(), Tried { identity, result, at: now });
        judge(node, seen, self.tried.get(node), now).health
    }

    /// In a thread of its own: opening a device may load a module, and a virtual CPU gets seconds.
    async fn attempt(&self, node: String, path: PathBuf, check: Check) -> Result<(), String> {
        let kvm = self.kvm.clone();
        let attempt = move || match check {
            Check::Opens => open(&path).map_err(|error| format!("{node} cannot be opened: {error}")),
            Check::RunsVcpu => kvm(),
        };
        let result = tokio::task::spawn_blocking(attempt).await;
        result.unwrap_or_else(|error| Err(format!("the attempt to use the device failed: {error}")))
    }
}

fn look(path: &Path) -> Seen {
    match rustix::fs::statat(rustix::fs::CWD, path, AtFlags::empty()) {
        Err(_) => Seen::Absent,
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice => {
            Seen::Device(Identity { file_system: stat.st_dev, inode: stat.st_ino, device: stat.st_rdev })
        }
        Ok(_) => Seen::Other,
    }
}

fn open(path: &Path) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(path).map(drop)
}
