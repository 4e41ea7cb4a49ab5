//! Whom the fault lists strike.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::cluster::{Cluster, Component};
use e2e::{launchers, processes};
use libtest_mimic::Trial;

/// Longer than the proxies of a migration wait for a peer that says nothing.
pub(crate) const CUT_FOR: Duration = Duration::from_secs(15);
/// How long a victim is waited for.
const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Api,
    /// With the API server: they are one process in the embedded shape.
    Controller,
    Operator,
    /// From here on, what a node has.
    Handler,
    Kubelet,
    Containerd,
    Launcher,
    Libvirtd,
    Qemu,
    /// Nobody dies, but the node hears nothing and is not heard for a while.
    Link,
}

/// Those of nodes.
pub(crate) const ON_NODES: [Victim; 7] = [
    Victim::Launcher,
    Victim::Handler,
    Victim::Libvirtd,
    Victim::Qemu,
    Victim::Link,
    Victim::Kubelet,
    Victim::Containerd,
];
/// Those that belong to no node.
pub(crate) const CENTRAL: [Victim; 3] = [Victim::Controller, Victim::Api, Victim::Operator];

impl Victim {
    /// Whether there is none in an embedded cluster, as a process that can die alone.
    pub(crate) fn is_of_kubernetes(self) -> bool {
        matches!(self, Self::Api | Self::Operator | Self::Kubelet | Self::Containerd)
    }
}

/// A scenario about a victim, for the shapes that have it.
pub(crate) fn case<F>(name: String, victim: Victim, body: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<()>>,
{
    if victim.is_of_kubernetes() { crate::kubernetes(name, body) } else { crate::trial(name, body) }
}

/// A name as names of scenarios have it.
pub(crate) fn snake(word: impl fmt::Debug) -> String {
    let mut text = String::new();
    for letter in format!("{word:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// Strikes a victim, on this node if it belongs to one. What a guest is made of is waited for until there is some, or until
/// there will be none any more.
pub(crate) async fn strike(
    cluster: &mut Cluster,
    victim: Victim,
    guest: &str,
    node: &str,
    too_late: impl AsyncFn() -> Result<bool>,
) -> Result<()> {
    let component = match victim {
        Victim::Api => Component::Api,
        Victim::Controller => Component::Controller,
        Victim::Operator => Component::Operator,
        Victim::Handler => Component::Handler(node),
        Victim::Kubelet => Component::Kubelet(node),
        Victim::Containerd => Component::Containerd(node),
        Victim::Link => {
            cluster.cut(node)?;
            tokio::time::sleep(CUT_FOR).await;
            return cluster.join(node);
        }
        Victim::Launcher | Victim::Libvirtd | Victim::Qemu => {
            return strike_guest(cluster, victim, guest, node, too_late).await;
        }
    };
    cluster.kill(component).await
}

async fn strike_guest(
    cluster: &Cluster,
    victim: Victim,
    guest: &str,
    node: &str,
    too_late: impl AsyncFn() -> Result<bool>,
) -> Result<()> {
    let started = Instant::now();
    loop {
        let launcher = launchers::process_on(cluster, guest, node);
        let found = launcher.and_then(|launcher| match victim {
            Victim::Libvirtd => launchers::libvirtd_of(&launcher),
            Victim::Qemu => launchers::qemu_of(&launcher),
            _ => Some(launcher),
        });
        if let Some(process) = found {
            println!("killing {victim:?} on {node}, process {}", process.pid);
            return processes::kill(&process);
        }
        if too_late().await? {
            println!("there is no {victim:?} on {node} any more");
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "there is no {victim:?} on {node} to be killed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
