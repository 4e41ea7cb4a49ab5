//! The cluster that scenarios run on, in the shape that was chosen, and what can be done to it.
//!
//! n1 and n2 run guests in both shapes.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use drive::{Access, Embedded};
use hostfs::process::ProcessId;
use supervisor::cluster::fabric::FABRIC;
use supervisor::cluster::record::Record;

use crate::kubernetes::Kubernetes;
use crate::processes;

/// What a cluster is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Embedded,
    Kubernetes,
}

impl Shape {
    /// As `FERROVIRT_E2E_SHAPE` says.
    pub fn chosen() -> Result<Self> {
        match std::env::var("FERROVIRT_E2E_SHAPE").as_deref() {
            Err(_) | Ok("" | "embedded") => Ok(Self::Embedded),
            Ok("kubernetes") => Ok(Self::Kubernetes),
            Ok(other) => bail!("FERROVIRT_E2E_SHAPE is {other:?}; the shapes are embedded and kubernetes"),
        }
    }
}

pub enum Cluster {
    Embedded(Embedded),
    Kubernetes(Box<Kubernetes>),
}

impl Cluster {
    /// Starts a cluster of the chosen shape. `name` is part of the data directory's name.
    pub async fn start(name: &str) -> Result<Self> {
        match Shape::chosen()? {
            Shape::Embedded => {
                let dir = PathBuf::from(format!("/tmp/fv-{name}-{}", std::process::id()));
                Embedded::start(&crate::program()?, &dir, 2, Some(&crate::guest_dir()?)).await.map(Self::Embedded)
            }
            Shape::Kubernetes => {
                let program = crate::program()?;
                let started = tokio::task::spawn_blocking(move || Kubernetes::start(&program)).await;
                let started = started.context("the start of the cluster panicked")??;
                started.map(|cluster| Self::Kubernetes(Box::new(cluster))).context("there is no cluster to run on")
            }
        }
    }

    /// For scenarios that are about the supervisor itself.
    pub fn embedded(&mut self) -> Result<&mut Embedded> {
        match self {
            Self::Embedded(cluster) => Ok(cluster),
            Self::Kubernetes(_) => bail!("this scenario is about an embedded cluster"),
        }
    }

    /// The node agents, in which virt-handler runs.
    pub fn agents(&self) -> Result<Vec<(String, ProcessId)>> {
        match self {
            Self::Embedded(cluster) => {
                let record = Record::load(cluster.layout())?.context("the cluster has no record")?;
                let nodes = record.nodes.into_iter();
                Ok(nodes.filter_map(|node| Some((node.name, node.process?))).collect())
            }
            Self::Kubernetes(_) => {
                let node = |process: &ProcessId| {
                    let words = std::fs::read_to_string(format!("/proc/{}/cmdline", process.pid)).ok()?;
                    let named = words.split('\0').find_map(|word| word.strip_prefix("--hostname-override="))?;
                    Some((named.to_owned(), *process))
                };
                Ok(processes::find("ferrovirt", "\0handler\0").iter().filter_map(node).collect())
            }
        }
    }

    /// Kills the node agent of a node. Somebody starts it again.
    pub fn kill_agent(&self, node: &str) -> Result<()> {
        let agent = self.agents()?.into_iter().find(|(name, _)| name == node);
        processes::kill(&agent.with_context(|| format!("node {node} has no agent"))?.1)
    }

    /// Kills whatever runs virt-controller, and waits until it is back.
    pub async fn kill_controller(&mut self) -> Result<()> {
        match self {
            Self::Embedded(cluster) => {
                cluster.kill()?;
                cluster.up().await
            }
            Self::Kubernetes(_) => {
                let controllers = processes::find("ferrovirt", "\0controller\0");
                ensure!(!controllers.is_empty(), "no virt-controller runs");
                controllers.iter().try_for_each(processes::kill)
            }
        }
    }

    /// Takes a node's link to all others down.
    pub fn cut(&self, node: &str) -> Result<()> {
        self.set_link(node, "down")
    }

    /// Ends what [`cut`](Self::cut) began.
    pub fn join(&self, node: &str) -> Result<()> {
        self.set_link(node, "up")
    }

    fn set_link(&self, node: &str, state: &str) -> Result<()> {
        run(&mut self.in_fabric(&["ip", "link", "set", &self.link(node)?, state])?)
    }

    /// The link of a node, where those of all nodes meet.
    fn link(&self, node: &str) -> Result<String> {
        match self {
            Self::Embedded(_) => Ok(node.to_owned()),
            Self::Kubernetes(_) => {
                let number = node.strip_prefix('n').with_context(|| format!("{node} is not the name of a node"))?;
                Ok(format!("v{number}"))
            }
        }
    }

    /// A command where the links of all nodes meet.
    fn in_fabric(&self, words: &[&str]) -> Result<Command> {
        let (program, args) = words.split_first().context("there is no command")?;
        match self {
            Self::Embedded(cluster) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", cluster.layout().netns(FABRIC).display())).args(words);
                Ok(command)
            }
            Self::Kubernetes(cluster) => {
                let mut command = Command::new(program);
                command.args(args);
                cluster.cluster().beside(&mut command)?;
                Ok(command)
            }
        }
    }

    /// The link to a node is slow as long as the answer lives: post-copy knows no limit of its own.
    pub fn narrow(&self, node: &str) -> Result<Narrow> {
        let link = self.link(node)?;
        let limit = ["rate", "40mbit", "burst", "64kb", "latency", "100ms"];
        run(&mut self.in_fabric(&[&["tc", "qdisc", "replace", "dev", &link, "root", "tbf"], &limit[..]].concat())?)?;
        Ok(Narrow { undo: self.in_fabric(&["tc", "qdisc", "del", "dev", &link, "root"])? })
    }

    /// Makes the guest's kernel available under another name.
    pub fn import_kernel(&self, reference: &str) -> Result<()> {
        match self {
            Self::Embedded(cluster) => {
                let mut import = cluster.command(&["image", "import", reference]);
                run(import.arg(crate::guest_dir()?.join("kernel")).env("FERROVIRT_DATA_DIR", cluster.layout().root()))
            }
            Self::Kubernetes(cluster) => cluster.import_kernel(reference),
        }
    }
}

impl Deref for Cluster {
    type Target = Access;

    fn deref(&self) -> &Access {
        match self {
            Self::Embedded(cluster) => cluster,
            Self::Kubernetes(cluster) => cluster,
        }
    }
}

/// A link that is slow while this lives.
pub struct Narrow {
    undo: Command,
}

impl Drop for Narrow {
    fn drop(&mut self) {
        if let Err(err) = run(&mut self.undo) {
            eprintln!("cannot widen the link again: {err:#}");
        }
    }
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
