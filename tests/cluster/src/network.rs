//! The networks of a cluster: namespaces that nobody but us holds, bridges in that of the control plane, links to the nodes.

use std::fmt::Write as _;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use hostfs::ns::{Kinds, unshare};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::address::{HUB, hardware, of_node, pods_of};
use crate::run;

/// A network namespace that lives as long as this value or a process in it.
pub(crate) struct Netns {
    file: OwnedFd,
}

impl Netns {
    fn new() -> Result<Netns> {
        let make = || -> Result<File> {
            unshare(Kinds::NEWNET)?;
            File::open("/proc/thread-self/ns/net").context("cannot open the namespace of this thread")
        };
        let made = std::thread::spawn(make).join().map_err(|_| anyhow!("the thread for it panicked"));
        let file = made.and_then(|made| made).context("cannot make a network namespace")?;
        Ok(Netns { file: file.into() })
    }

    pub(crate) fn share(&self) -> Result<OwnedFd> {
        self.file.try_clone().context("cannot share a network namespace")
    }

    /// Makes a program start inside.
    pub(crate) fn enter(&self, command: &mut Command) -> Result<()> {
        use std::os::fd::AsFd;
        let file = self.share()?;
        let enter = move || Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?);
        // SAFETY: between fork and exec this makes one system call, and neither allocates nor takes a lock.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }

    /// Where `ip` and `nsenter` find it.
    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Runs lines of `ip` inside.
    fn ip(&self, lines: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["-batch", "-"]);
        self.enter(&mut command)?;
        run::output_with_input(&mut command, lines).map(drop)
    }
}

/// The network of the control plane, to which nodes are attached.
pub(crate) struct Hub {
    pub(crate) netns: Netns,
    nodes: u8,
}

impl Hub {
    /// `second` joins the nodes' second interfaces, without addresses: one layer-2 network for what Multus attaches.
    pub(crate) fn new(nodes: u8) -> Result<Hub> {
        let netns = Netns::new()?;
        let lines = format!(
            "link set lo up
             link add nodes type bridge
             addr add {HUB}/24 dev nodes
             link set nodes up
             link add second type bridge
             link set second up\n"
        );
        netns.ip(&lines).context("cannot set up the network of the control plane")?;
        Ok(Hub { netns, nodes })
    }

    /// A network namespace for a node, attached and with its addresses and routes.
    pub(crate) fn attach(&self, node: u8) -> Result<Netns> {
        let inside = Netns::new()?;
        let (path, address) = (inside.path(), of_node(node));
        let path = path.display();
        let lines = format!(
            "link add v{node} type veth peer name eth0 address {} netns {path}
             link add w{node} type veth peer name eth1 address {} netns {path}
             link set v{node} master nodes up
             link set w{node} master second up
             route replace {} via {address} dev nodes\n",
            hardware(node, 0),
            hardware(node, 1),
            pods_of(node),
        );
        let doing = || format!("cannot attach node {node} to the network");
        self.netns.ip(&lines).with_context(doing)?;
        inside.ip(&self.inside(node)).with_context(doing)?;
        Ok(inside)
    }

    fn inside(&self, node: u8) -> String {
        let mut lines = format!(
            "link set lo up
             addr add {}/24 dev eth0
             link set eth0 up
             route add default via {HUB}
             link add br1 type bridge
             link set eth1 master br1 up
             link set br1 up\n",
            of_node(node)
        );
        for other in (1..=self.nodes).filter(|other| *other != node) {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "route add {} via {}", pods_of(other), of_node(other));
        }
        lines
    }

    /// Takes the links of a node away that is gone.
    pub(crate) fn detach(&self, node: u8) -> Result<()> {
        let lines = format!("link del v{node}\nlink del w{node}\nroute del {}\n", pods_of(node));
        self.netns.ip(&lines).with_context(|| format!("cannot take node {node} off the network"))
    }

    /// Plugs the cables of a node in, or pulls them.
    pub(crate) fn plug(&self, node: u8, state: Cables) -> Result<()> {
        let state = match state {
            Cables::In => "up",
            Cables::Out => "down",
        };
        let lines = format!("link set v{node} {state}\nlink set w{node} {state}\n");
        self.netns.ip(&lines).with_context(|| format!("cannot set the links of node {node} {state}"))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Cables {
    In,
    Out,
}
