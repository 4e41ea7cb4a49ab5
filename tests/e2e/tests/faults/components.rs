//! Each component is killed, and the node cut off, at points of a start and of a stop of a VM.
//!
//! Whatever it was, and without anybody's help: no two QEMUs run at a time; the VM runs, or has stopped, in the end; the objects
//! say so; nothing is left on the nodes. `make faults` plays all of them, on Kubernetes `make kube-test ARGS=--all-faults`;
//! a dozen and a half are always played.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::v1::VirtualMachineInstance;
use drive::{Access, BOOT_LIMIT, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::launchers::{self, Lookout};
use e2e::manifest::Manifest;
use e2e::{processes, traces};
use libtest_mimic::Trial;
use tokio::sync::MappedMutexGuard;

use super::points::{Point, Seen, pod_phase, reach};
use crate::guests::virtctl;
use crate::victims::{self, CENTRAL, ON_NODES, Victim, snake};

const NAME: &str = "stricken";
const NODE: &str = "n1";
/// Longer than a VM waits before it starts a guest again that has failed twice.
const END: Duration = Duration::from_secs(180);

const START: [Point; 5] =
    [Point::Stored, Point::InstanceExists, Point::PodBound, Point::LauncherRuns, Point::HandedOver];
const STOP: [Point; 3] = [Point::StopAsked, Point::PodDeleted, Point::InstanceFinal];

/// Each victim once in a start and once in a stop, where its loss matters most.
const ALWAYS: [(Victim, Point); 21] = [
    (Victim::Launcher, Point::HandedOver),
    (Victim::Launcher, Point::PodDeleted),
    (Victim::Handler, Point::LauncherRuns),
    (Victim::Handler, Point::HandedOver),
    (Victim::Handler, Point::StopAsked),
    (Victim::Libvirtd, Point::HandedOver),
    (Victim::Libvirtd, Point::StopAsked),
    (Victim::Qemu, Point::HandedOver),
    (Victim::Qemu, Point::StopAsked),
    (Victim::Link, Point::LauncherRuns),
    (Victim::Link, Point::StopAsked),
    (Victim::Kubelet, Point::PodBound),
    (Victim::Kubelet, Point::PodDeleted),
    (Victim::Containerd, Point::PodBound),
    (Victim::Containerd, Point::PodDeleted),
    (Victim::Controller, Point::InstanceExists),
    (Victim::Controller, Point::InstanceFinal),
    (Victim::Api, Point::Stored),
    (Victim::Api, Point::StopAsked),
    (Victim::Operator, Point::PodBound),
    (Victim::Operator, Point::PodDeleted),
];

pub(crate) fn trials() -> Vec<Trial> {
    // A start leaves a guest for the stop that follows.
    let all = ON_NODES.into_iter().chain(CENTRAL);
    let mut trials = vec![];
    for victim in all {
        let starts = START.into_iter().map(|point| ("start", point));
        for (what, point) in starts.chain(STOP.into_iter().map(|point| ("stop", point))) {
            let name = format!("fault_{what}_{}_{}", snake(victim), snake(point));
            let body = move || async move {
                match what {
                    "start" => struck_at_start(victim, point).await,
                    _ => struck_at_stop(victim, point).await,
                }
            };
            // What the embedded cluster has in its place is killed at more points by scenarios of its own.
            let trial = match victim {
                Victim::Controller => crate::kubernetes(name, body),
                _ => victims::case(name, victim, body),
            };
            trials.push(trial.with_ignored_flag(!ALWAYS.contains(&(victim, point))));
        }
    }
    trials
}

async fn cluster() -> Result<MappedMutexGuard<'static, Cluster>> {
    crate::cluster("killed").await
}

async fn struck_at_start(victim: Victim, point: Point) -> Result<()> {
    let mut cluster = cluster().await?;
    remove(&cluster).await?;
    let lookout = Lookout::over(NAME);
    drop(spawn(&cluster).await?);
    reach(&cluster, NAME, point).await?;
    let client = cluster.client().await?;
    let over = async || Ok(Seen::look(&client, NAME).await?.phase() == "Running");
    victims::strike(&mut cluster, victim, NAME, NODE, over).await.with_context(|| format!("striking {victim:?}"))?;
    let begun = std::time::Instant::now();

    runs(&cluster).await?;
    counts(&cluster).await?;
    runs(&cluster).await.context("it was well, and has not stayed so")?;
    println!("{victim:?} at {point:?}: the guest counts {:.1} s later", begun.elapsed().as_secs_f64());
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    nothing_left(&cluster).await
}

async fn struck_at_stop(victim: Victim, point: Point) -> Result<()> {
    let mut cluster = cluster().await?;
    if runs_now(&cluster).await.is_err() {
        remove(&cluster).await?;
        spawn(&cluster).await?.wait_to_boot().await?;
        runs(&cluster).await?;
    }
    let lookout = Lookout::over(NAME);
    virtctl(&cluster, &["stop", NAME])?;
    reach(&cluster, NAME, point).await?;
    let client = cluster.client().await?;
    let over = async || Ok(Seen::look(&client, NAME).await?.instance.is_none_or(|instance| instance.is_final()));
    victims::strike(&mut cluster, victim, NAME, NODE, over).await.with_context(|| format!("striking {victim:?}"))?;
    let begun = std::time::Instant::now();

    poll("the VM's end", END, || async { stopped_now(&cluster).await }).await?;
    println!("{victim:?} at {point:?}: all has ended {:.1} s later", begun.elapsed().as_secs_f64());
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    nothing_left(&cluster).await
}

/// Makes the VM, as soon as somebody is there to judge it.
async fn spawn(cluster: &Access) -> Result<Guest> {
    let manifest = Manifest::vm(NAME, "Always").on_node(NODE);
    let spawn = || async { Guest::spawn(cluster, manifest.json()).await.map_err(|err| format!("{err:#}")) };
    poll("the VM to be accepted", LIMIT, spawn).await
}

/// Takes away what an earlier case has left.
async fn remove(cluster: &Access) -> Result<()> {
    Guest::attach(cluster, NAME).await?.delete().await?;
    poll("nothing of an earlier VM to be left", END, || async { stopped_now(cluster).await.or_else(is_no_vm) }).await
}

/// No VM is as good as one that has stopped.
fn is_no_vm(missing: String) -> Result<(), String> {
    if missing == NO_VM { Ok(()) } else { Err(missing) }
}

const NO_VM: &str = "there is no VM";

async fn look(cluster: &Access) -> Result<Seen, String> {
    let client = cluster.client().await.map_err(|err| format!("{err:#}"))?;
    Seen::look(&client, NAME).await.map_err(|err| format!("{err:#}"))
}

/// Processes of the guest: launchers and QEMUs.
fn running() -> (usize, usize) {
    (processes::find("virt-launcher", &format!("--name\0{NAME}\0")).len(), processes::qemus_of(NAME).len())
}

/// The VM runs, in one QEMU in one Pod on its node, and all objects say so.
async fn runs_now(cluster: &Access) -> Result<(), String> {
    let seen = look(cluster).await?;
    let node = |instance: &VirtualMachineInstance| instance.status.as_ref()?.node_name.clone();
    let at = seen.instance.as_ref().and_then(node).unwrap_or_default();
    let alive: Vec<_> = seen.pods.iter().filter(|pod| !traces::has_ended(pod)).collect();
    let pods: Vec<_> = alive.iter().map(|pod| pod_phase(pod)).collect();
    let qemu = launchers::process_on(cluster, NAME, NODE).and_then(|launcher| launchers::qemu_of(&launcher));
    let (status, phase, processes) = (seen.status(), seen.phase(), running());
    let truth = status == "Running" && phase == "Running" && at == NODE && pods == ["Running"];
    if truth && processes == (1, 1) && qemu.is_some() {
        return Ok(());
    }
    let (launchers, qemus) = processes;
    let what = format!("the VM is {status}, its instance {phase} on {at:?}, Pods that have not ended: {pods:?}");
    Err(format!("{what}, {launchers} launchers, {qemus} QEMUs, on {NODE}: {qemu:?}"))
}

async fn runs(cluster: &Access) -> Result<()> {
    poll("the VM to run", END, || async { runs_now(cluster).await }).await
}

/// The VM has stopped, and there is no instance, Pod or process of it.
async fn stopped_now(cluster: &Access) -> Result<(), String> {
    let seen = look(cluster).await?;
    let (status, phase, pods, processes) = (seen.status(), seen.phase(), seen.pods.len(), running());
    if seen.instance.is_some() || pods > 0 || processes != (0, 0) {
        let (launchers, qemus) = processes;
        let what = format!("the VM is {status}, its instance {phase:?}, {pods} Pods");
        return Err(format!("{what}, {launchers} launchers, {qemus} QEMUs"));
    }
    match status.as_str() {
        _ if seen.vm.is_none() => Err(NO_VM.to_owned()),
        "Stopped" => Ok(()),
        other => Err(format!("the VM is {other}, and nothing of it is there")),
    }
}

/// The guest shows numbers that go up.
async fn counts(cluster: &Access) -> Result<()> {
    let last = Cell::new(None::<u64>);
    poll("the guest to count", BOOT_LIMIT, || async {
        // A new console each time: the last one may have gone through somebody who has died.
        let guest = Guest::attach(cluster, NAME).await.map_err(|err| format!("{err:#}"))?;
        let end = guest.console.wait_for("tick ", 0, LIMIT).await.map_err(|err| format!("{err:#}"))?;
        guest.console.wait_for("\n", end, LIMIT).await.map_err(|err| format!("{err:#}"))?;
        let text = guest.console.text();
        let number = text.get(end..).and_then(|rest| rest.split(' ').next()?.parse().ok());
        match (last.replace(number), number) {
            (Some(before), Some(now)) if now > before => Ok(()),
            (before, now) => Err(format!("it showed {before:?} and then {now:?}")),
        }
    })
    .await
}

/// Nothing is left of Pods that are gone, on any node.
async fn nothing_left(cluster: &Cluster) -> Result<()> {
    poll("nothing to be left of Pods that are gone", END, || async {
        let mut left = vec![];
        for node in ["n1", "n2"] {
            left.extend(traces::of_gone_pods(cluster, node).await.map_err(|err| format!("{err:#}"))?);
        }
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })
    .await
}
