//! How a cluster ends whose owner is killed.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use hostfs::process::ProcessId;
use serde::{Deserialize, Serialize};
use test_cluster::{Cluster, Options};

use crate::{eventually, programs};

/// Set for the process that is killed.
pub(crate) const ROLE: &str = "FERROVIRT_TEST_ROLE";

/// What of a cluster must be gone.
#[derive(Deserialize, Serialize)]
struct Traces {
    name: String,
    folder: PathBuf,
    processes: Vec<ProcessId>,
    /// Inodes of namespaces of every kind.
    namespaces: BTreeSet<u64>,
}

impl Traces {
    fn of(cluster: &Cluster) -> Result<Traces> {
        let mut traces = Traces {
            name: cluster.name().to_owned(),
            folder: cluster.folder().to_owned(),
            processes: Vec::new(),
            namespaces: BTreeSet::new(),
        };
        let members = members(cluster.name())?;
        ensure!(members.len() > 5, "the cluster's control groups have only {members:?}");
        for pid in members.into_iter().chain(cluster.pids()) {
            // One that has just ended is gone already.
            traces.processes.extend(ProcessId::of(pid));
            traces.namespaces.extend(namespaces(pid));
        }
        let ours: BTreeSet<u64> = namespaces(std::process::id().cast_signed()).collect();
        traces.namespaces.retain(|namespace| !ours.contains(namespace));
        ensure!(traces.namespaces.len() > 6, "the cluster has too few namespaces of its own");
        Ok(traces)
    }

    fn gone(&self) -> Result<()> {
        let alive: Vec<_> = self.processes.iter().filter(|process| process.alive()).collect();
        ensure!(alive.is_empty(), "processes are left: {alive:?}");
        let groups = groups(&self.name);
        ensure!(groups.is_empty(), "control groups are left: {groups:?}");
        ensure!(!self.folder.exists(), "{} is left", self.folder.display());
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        ensure!(!mounts.contains(&self.name), "mounts are left:\n{mounts}");
        for process in fs::read_dir("/proc")?.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let left = namespaces(pid).find(|namespace| self.namespaces.contains(namespace));
            ensure!(left.is_none(), "process {pid} is in a namespace of the cluster");
        }
        Ok(())
    }
}

fn namespaces(pid: i32) -> impl Iterator<Item = u64> {
    // A process that has just ended has none.
    let kinds = fs::read_dir(format!("/proc/{pid}/ns")).into_iter().flatten().flatten();
    kinds.filter_map(|kind| fs::metadata(kind.path()).ok()).map(|namespace| namespace.ino())
}

/// The control groups of a cluster, in every hierarchy.
fn groups(cluster: &str) -> Vec<PathBuf> {
    let mounts = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let all = mounts.chain([PathBuf::from("/sys/fs/cgroup")]).map(|mount| mount.join(cluster));
    all.filter(|group| group.is_dir()).collect()
}

/// The processes in them.
fn members(cluster: &str) -> Result<BTreeSet<i32>> {
    let output = Command::new("find")
        .args(groups(cluster))
        .args(["-name", "cgroup.procs", "-exec", "cat", "{}", "+"])
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(|line| line.parse().ok()).collect())
}

/// The links of the machine's own network.
fn links() -> Result<String> {
    let links = Command::new("ip").args(["-brief", "link"]).output().context("cannot run ip")?;
    Ok(String::from_utf8_lossy(&links.stdout).into_owned())
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn a_killed_owner_leaves_nothing() -> Result<()> {
    let before = links()?;
    let mut owner = Command::new(std::env::current_exe()?);
    let mut owner = Killed(owner.env(ROLE, "owner").stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?);
    let mut line = String::new();
    let output = owner.0.stdout.take().context("the owner has no output")?;
    BufReader::new(output).read_line(&mut line).context("cannot read what the owner says")?;
    let traces: Traces = serde_json::from_str(&line).with_context(|| format!("the owner says {line:?}"))?;
    ensure!(traces.gone().is_err(), "there is nothing that could be left");
    ensure!(links()? == before, "the machine's own links have changed");
    drop(owner);
    eventually("everything of the cluster is gone", || traces.gone())
}

/// Starts a cluster, tells what it is made of, and waits for its end.
pub(crate) fn own_a_cluster_until_killed() -> ExitCode {
    let own = || -> Result<()> {
        let programs = programs().map_err(anyhow::Error::msg)?.context("there are no programs")?;
        let cluster = Cluster::start(Options { nodes: 1, ..Options::new(programs) })?;
        println!("{}", serde_json::to_string(&Traces::of(&cluster)?)?);
        std::thread::sleep(std::time::Duration::from_secs(600));
        Ok(())
    };
    match own() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("{err:#}");
            ExitCode::FAILURE
        }
    }
}
