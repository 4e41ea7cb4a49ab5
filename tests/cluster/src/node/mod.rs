//! A node: its disk, and the processes on it while it has power.

mod disk;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use control_plane::Process;
use hostfs::process::{ProcessId, Signal};

use crate::address;
use crate::home::Home;
use crate::network::{Hub, Netns};
use crate::options::Options;
use crate::run;

pub(crate) use disk::make as make_disk;

/// How long a busy machine may take to start or kill the processes of a node.
const PATIENCE: Duration = Duration::from_secs(60);

const PATH: &str = "PATH=/opt/kube:/opt/containerd:/usr/sbin:/usr/bin";

/// Where a node's own programs log, on its disk.
const LOGS: &str = "var/log/node";

/// Tells process 1 that the kubelet may start.
const API_IS_READY: &str = "node/api-is-ready";

/// A node that has power.
pub(crate) struct Node {
    /// Process 1 of its namespaces. All others end with it.
    init: ProcessId,
    process: Process,
    _netns: Netns,
}

impl Node {
    /// Boots a node from its disk.
    pub(crate) fn boot(node: u8, options: &Options, home: &Home, hub: &Hub) -> Result<Node> {
        let name = address::name(node);
        let root = home.node(name);
        let netns = hub.attach(node)?;
        let mut command = Command::new("bash");
        command.arg(root.join("node/enter.sh")).args([home.name(), name]).arg(&root);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let programs = &options.programs;
        command.env("KUBE", &programs.kube).env("CONTAINERD", &programs.containerd);
        command.env("CNI", &programs.cni).env("MULTUS", &programs.multus);
        netns.enter(&mut command)?;
        let process = Process::start(name, command, &home.log())?;
        let init = run::wait(PATIENCE, "process 1 of the node starts", || {
            let pid = child_of(process.pid())?;
            Ok(ProcessId::of(pid)?)
        });
        let init = init.with_context(|| format!("cannot boot node {name}{}", process.tail()))?;
        Ok(Node { init, process, _netns: netns })
    }

    /// An error with what it said last if its first process is no longer there.
    pub(crate) fn check(&self) -> Result<()> {
        self.process.check()
    }

    /// The power fails: all processes die at once.
    pub(crate) fn power_off(mut self) -> Result<()> {
        self.init.signal(Signal::KILL).context("cannot kill process 1 of a node")?;
        ensure!(self.init.wait_gone(PATIENCE)?, "the processes of a node do not end within {} s", PATIENCE.as_secs());
        self.process.end();
        Ok(())
    }

    pub(crate) fn pids(&self) -> [i32; 2] {
        [self.process.pid(), self.init.pid]
    }

    /// A program inside the node.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.init.pid.to_string(), "-a", "env", "-i", PATH, "HOME=/root", program]);
        command
    }
}

/// The one child of a process.
fn child_of(parent: i32) -> Result<i32> {
    for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(pid) = pid else { continue };
        // A process that has just ended is not the one.
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&parent.to_string()) {
            // Until it is process 1 of its own namespace, it is only on its way there.
            if is_first(pid) {
                return Ok(pid);
            }
        }
    }
    bail!("process {parent} has no child that is process 1 of a namespace")
}

fn is_first(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    ids.is_some_and(|ids| ids.split_whitespace().count() > 1 && ids.split_whitespace().last() == Some("1"))
}

/// Lets the kubelet start, now and after every boot.
pub(crate) fn api_is_ready(root: &Path) -> Result<()> {
    let file = root.join(API_IS_READY);
    fs::write(&file, "").with_context(|| format!("cannot write {}", file.display()))
}

/// The logs on the disk of a node.
pub(crate) fn logs(root: &Path) -> Vec<PathBuf> {
    let mut logs: Vec<PathBuf> =
        fs::read_dir(root.join(LOGS)).into_iter().flatten().flatten().map(|e| e.path()).collect();
    logs.sort();
    logs
}
