//! One controller, from an empty cluster to a restart among all instances.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use control_plane::audit::{Audit, Calls, writes};
use control_plane::{CONTROLLER, Process};

use crate::cluster::Cluster;
use crate::cost::Cost;
use crate::instances::{self, Pods};

/// A controller that does nothing for so long is steady.
const QUIET: Duration = Duration::from_secs(3);
/// More of a core than this is doing something.
const BUSY: f64 = 0.05;
const PATIENCE: Duration = Duration::from_secs(300);

/// Whose controller.
pub(crate) enum Program {
    /// Ours, and where it is.
    Ours(PathBuf),
    /// KubeVirt's, and the folder it is in.
    KubeVirt(PathBuf),
}

/// What is done to a controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) instances: usize,
    /// Creates under way at a time.
    pub(crate) creators: usize,
    pub(crate) nodes: usize,
    pub(crate) until: Until,
}

/// How far instances get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Until {
    /// The Pod is made. There is no scheduler and no node: what the controller takes is hardly disturbed.
    Scheduling,
    /// The Pod runs on a fake node, and the instance is handed over.
    Scheduled,
}

impl Until {
    pub(crate) fn phase(self) -> &'static str {
        match self {
            Until::Scheduling => "Scheduling",
            Until::Scheduled => "Scheduled",
        }
    }
}

/// What was measured.
pub(crate) struct Figures {
    pub(crate) name: &'static str,
    pub(crate) calls: Calls,
    pub(crate) cpu: Duration,
    pub(crate) memory_before: u64,
    /// Of that, what is not the program's file.
    pub(crate) own_before: u64,
    pub(crate) memory_after: u64,
    pub(crate) creates_per_second: f64,
    /// From the last create to the last Pod.
    pub(crate) lag: Duration,
    /// From the last create until every instance has got as far as it should.
    pub(crate) arrived: Duration,
    pub(crate) restart: Duration,
    pub(crate) restart_writes: usize,
    pub(crate) restart_memory: u64,
}

impl Program {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Program::Ours(_) => "ferrovirt",
            Program::KubeVirt(_) => "KubeVirt",
        }
    }

    fn command(&self, cluster: &Cluster) -> Result<Command> {
        let kubeconfig = cluster.plane.controller_kubeconfig();
        // Between drawing a port and listening somebody else might take it; then the start fails and says so.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot find a free port")?;
        let port = listener.local_addr().context("cannot tell which port is free")?.port();
        match self {
            Program::Ours(program) => {
                let mut command = Command::new(program);
                command.arg("controller").arg("--kubeconfig").arg(kubeconfig);
                command.args(["--namespace", "kubevirt", "--listen", "127.0.0.1", "--port", &port.to_string()]);
                Ok(command)
            }
            Program::KubeVirt(folder) => {
                let folder = folder.as_path();
                peers::virt_controller::command(folder, kubeconfig, cluster.plane.folder(), port)
                    .map_err(anyhow::Error::msg)
            }
        }
    }

    fn start(&self, cluster: &Cluster) -> Result<Process> {
        Process::start(self.name(), self.command(cluster)?, cluster.plane.folder())
    }
}

/// Measures one controller on a cluster of its own.
pub(crate) async fn run(
    program: &Program,
    kube: &Path,
    Load { instances: count, creators, nodes, until }: Load,
) -> Result<Figures> {
    let nodes = if until == Until::Scheduled { nodes } else { 0 };
    let cluster = Cluster::start(kube, nodes).await?;
    let mut audit = Audit::new(cluster.plane.audit_log());
    let process = program.start(&cluster)?;
    // One instance to begin with: caches are filled, connections are open, code is paged in.
    instances::create(&cluster.client, "first", 1, 1).await?;
    instances::reached(&cluster.client, until.phase(), 1).await.with_context(|| process.tail())?;
    steady(&mut audit, &process).await?;

    let before = Cost::of(process.pid())?;
    let pods = Pods::follow(cluster.client.clone());
    let began = Instant::now();
    let created = instances::create(&cluster.client, "vmi", count, creators).await?;
    instances::reached(&cluster.client, until.phase(), count + 1).await.with_context(|| process.tail())?;
    let arrived = created.elapsed();
    let (calls, _) = steady(&mut audit, &process).await?;
    let after = Cost::of(process.pid())?;
    let (seen, last_pod) = pods.last();
    ensure!(seen == count + 1, "there are {seen} Pods for {} instances", count + 1);
    cluster.plane.check()?;

    let restarted = restart(program, &cluster, process, &mut audit).await?;
    Ok(Figures {
        name: program.name(),
        calls,
        cpu: after.cpu.saturating_sub(before.cpu),
        memory_before: before.memory,
        own_before: before.own,
        memory_after: after.memory,
        creates_per_second: count as f64 / created.duration_since(began).as_secs_f64(),
        lag: last_pod.saturating_duration_since(created),
        arrived,
        restart: restarted.0,
        restart_writes: restarted.1,
        restart_memory: restarted.2,
    })
}

/// Ends the controller in good order and starts it again: how long it works until it is steady, how much it writes and
/// what it holds then.
async fn restart(
    program: &Program,
    cluster: &Cluster,
    mut process: Process,
    audit: &mut Audit,
) -> Result<(Duration, usize, u64)> {
    process.terminate(Duration::from_secs(30))?;
    audit.read()?;
    let process = program.start(cluster)?;
    let began = Instant::now();
    let (calls, last) = steady(audit, &process).await?;
    let written = calls.iter().filter(|((verb, _), _)| writes(verb)).map(|(_, count)| count).sum();
    Ok((last.saturating_duration_since(began), written, Cost::of(process.pid())?.memory))
}

/// Waits until a controller asks nothing and computes nothing; tells what it asked meanwhile, and when it last did
/// anything.
async fn steady(audit: &mut Audit, process: &Process) -> Result<(Calls, Instant)> {
    let (mut calls, deadline) = (Calls::new(), Instant::now() + PATIENCE);
    let mut last = Instant::now();
    let mut listed = Cost::of(process.pid())?.cpu;
    let pause = Duration::from_millis(250);
    loop {
        tokio::time::sleep(pause).await;
        process.check()?;
        let asked = audit.read()?.remove(CONTROLLER).unwrap_or_default();
        let cpu = Cost::of(process.pid())?.cpu;
        let busy = cpu.saturating_sub(listed).as_secs_f64() / pause.as_secs_f64() > BUSY;
        listed = cpu;
        // A watch that ends by itself comes back at once; that is no work.
        let worked = asked.keys().any(|(verb, _)| verb != "watch");
        for (call, count) in asked {
            *calls.entry(call).or_default() += count;
        }
        if busy || worked {
            last = Instant::now();
        }
        if last.elapsed() > QUIET {
            return Ok((calls, last));
        }
        if Instant::now() > deadline {
            bail!("the controller does not come to rest{}", process.tail());
        }
    }
}
