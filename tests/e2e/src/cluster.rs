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
use crate::{processes, traces};

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

/// A program that looks after guests from outside of their Pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component<'a> {
    Api,
    /// With the API server and virt-api: they are one process in the embedded shape.
    Controller,
    Operator,
    /// The rest are those of a node.
    Handler(&'a str),
    Kubelet(&'a str),
    Containerd(&'a str),
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

    /// For scenarios that are about an installation on Kubernetes, or about its nodes.
    pub fn kubernetes(&self) -> Result<&Kubernetes> {
        match self {
            Self::Embedded(_) => bail!("this scenario is about a Kubernetes cluster"),
            Self::Kubernetes(cluster) => Ok(cluster),
        }
    }

    /// The same, to be changed.
    pub fn kubernetes_mut(&mut self) -> Result<&mut Kubernetes> {
        match self {
            Self::Embedded(_) => bail!("this scenario is about a Kubernetes cluster"),
            Self::Kubernetes(cluster) => Ok(cluster),
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
            Self::Kubernetes(cluster) => {
                let on = |node: &'static str| {
                    let found = cluster.processes_on(node, "ferrovirt", "\0handler\0");
                    found.into_iter().map(move |process| (node.to_owned(), process))
                };
                Ok(["n1", "n2"].into_iter().flat_map(on).collect())
            }
        }
    }

    /// Kills a component, on all nodes that have it unless it belongs to one. Somebody starts it again: the embedded cluster's
    /// supervisor has been by then, everything else is soon.
    pub async fn kill(&mut self, component: Component<'_>) -> Result<()> {
        if let Component::Handler(node) = component {
            let agent = self.agents()?.into_iter().find(|(name, _)| name == node);
            return processes::kill(&agent.with_context(|| format!("node {node} has no agent"))?.1);
        }
        match self {
            Self::Embedded(cluster) => {
                ensure!(component == Component::Controller, "an embedded cluster has no {component:?} of its own");
                cluster.kill()?;
                cluster.up().await
            }
            Self::Kubernetes(cluster) => {
                let found = match component {
                    Component::Api => cluster.processes("ferrovirt", "\0api\0"),
                    Component::Controller => cluster.processes("ferrovirt", "\0controller\0"),
                    Component::Operator => cluster.processes("ferrovirt", "\0operator\0"),
                    Component::Handler(node) => cluster.processes_on(node, "ferrovirt", "\0handler\0"),
                    Component::Kubelet(node) => cluster.processes_on(node, "kubelet", ""),
                    Component::Containerd(node) => cluster.processes_on(node, "containerd", ""),
                };
                ensure!(!found.is_empty(), "no {component:?} runs");
                found.iter().try_for_each(processes::kill)
            }
        }
    }

    /// UIDs of Pods that something on a node is about, with what that is.
    pub fn traces(&self, node: &str) -> Result<Vec<(&'static str, String)>> {
        match self {
            Self::Embedded(cluster) => {
                let private = cluster.layout().handler_private(node);
                let folders = [
                    (traces::POD, cluster.pods(node)),
                    (traces::RECORD, private.join("ghost-records")),
                    (traces::RECORD, private.join("network-info-cache")),
                ];
                Ok(folders.iter().flat_map(|(what, folder)| traces::below(what, folder)).collect())
            }
            Self::Kubernetes(cluster) => cluster.traces(node),
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
