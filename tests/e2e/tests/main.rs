//! The whole chain with real parts: QEMU, libvirt, netlink, nftables, and real processes killed for real.
//!
//! Scenarios share a cluster and run one after another. The cluster is removed even if a scenario failed; the
//! last check is that nothing is left: on Kubernetes after each lane. `cargo xtask test` runs three lanes at a time.
//!
//! The same scenarios run on an embedded cluster and, with `FERROVIRT_E2E_SHAPE=kubernetes`, on a real Kubernetes cluster.

mod disks;
mod faults;
mod guests;
mod installed;
mod lifecycle;
mod migrations;
mod networks;
mod quickstart;
mod refusals;
mod upgrade;
mod victims;
mod waiting;

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::Result;
use drive::Snapshot;
use e2e::cluster::{Cluster, Shape};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::Runtime;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

/// A lane's scenarios.
type Lane = (&'static str, fn() -> Vec<Trial>);

/// Lanes can run side by side, each in a process of its own with `FERROVIRT_E2E_LANE`: they share neither a cluster nor
/// the name of a guest nor a setting of the machine. Those that look at the whole machine, or
/// have nodes with kubelets, must run alone.
const LANES: [Lane; 9] = [
    ("moves", migrations::trials),
    ("drains", migrations::departures),
    ("guests", || {
        let anywhere = [refusals::trials(), guests::trials(), waiting::trials(), faults::trials()];
        let on_kubernetes = [installed::trials(), networks::trials()];
        anywhere.into_iter().chain(on_kubernetes).flatten().collect()
    }),
    ("disks", disks::trials),
    ("struck", migrations::struck),
    ("killed", faults::struck),
    ("alone", lifecycle::trials),
    ("quickstart", quickstart::trials),
    ("upgrade", upgrade::trials),
];

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut arguments = Arguments::from_args();
    // Scenarios of a group share its cluster, so a second thread would only wait for the first.
    arguments.test_threads = Some(1);
    if !rustix::process::geteuid().is_root() {
        test_support::skip("the end-to-end tests need root for namespaces, mounts and cgroups");
        return ExitCode::SUCCESS;
    }
    let lane = std::env::var("FERROVIRT_E2E_LANE").ok();
    let wanted = |name: &str| lane.as_deref().is_none_or(|lane| lane == name);
    let lanes = LANES.iter().filter(|(name, _)| wanted(name));
    let shape = match Shape::chosen() {
        Ok(shape) => shape,
        Err(err) => {
            eprintln!("{err:#}");
            return ExitCode::FAILURE;
        }
    };
    let elsewhere = match shape {
        Shape::Embedded => KUBERNETES,
        Shape::Kubernetes => EMBEDDED,
    };
    let here = |trial: &Trial| trial.kind() != elsewhere;
    let trials: Vec<Trial> = lanes.flat_map(|(_, trials)| trials()).filter(here).collect();
    if trials.is_empty() {
        let names = LANES.map(|(name, _)| name).join(", ");
        eprintln!("FERROVIRT_E2E_LANE is {lane:?}, and the lanes are {names}");
        return ExitCode::FAILURE;
    }
    // Embedded lanes run side by side, and some scenarios of theirs look themselves. A real cluster is alone on the machine.
    let before = (shape == Shape::Kubernetes && !arguments.list).then(Snapshot::take_with_nodes).transpose();
    let conclusion = libtest_mimic::run(&arguments, trials);
    migrations::take_away();
    take_away();
    let left = before.and_then(|before| match before {
        Some(before) => runtime().block_on(nothing_left(&before)),
        None => Ok(()),
    });
    match left {
        Ok(()) => conclusion.exit_code(),
        Err(err) => {
            eprintln!("the cluster is gone and the machine is not as it was: {err:#}");
            ExitCode::FAILURE
        }
    }
}

/// The machine is as it was before a cluster was there: control groups go a moment after the last process.
async fn nothing_left(before: &Snapshot) -> Result<()> {
    before.nothing_left(Duration::from_secs(60)).await
}

/// The kind of scenarios that are about an embedded cluster itself.
const EMBEDDED: &str = "embedded";

/// The kind of those that are about an installation on Kubernetes.
const KUBERNETES: &str = "kubernetes";

/// One that makes no sense on an embedded cluster.
fn kubernetes<F>(name: impl Into<String>, body: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<()>>,
{
    trial(name, body).with_kind(KUBERNETES)
}

/// One that makes no sense on Kubernetes.
fn embedded<F>(name: impl Into<String>, body: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<()>>,
{
    trial(name, body).with_kind(EMBEDDED)
}

/// A trial whose body is asynchronous.
fn trial<F>(name: impl Into<String>, body: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = Result<()>>,
{
    let name = name.into();
    Trial::test(name.clone(), move || {
        let begun = std::time::Instant::now();
        let result = runtime().block_on(body());
        println!("{name} took {:.1} s", begun.elapsed().as_secs_f64());
        result.map_err(|err| {
            // Where it happened, too: the list of failures at the end may be cut off from what led to them.
            println!("{err:#}");
            save_logs(&name);
            Failed::from(format!("{err:#}"))
        })
    })
}

/// Keeps the logs of the shared cluster's nodes, for whoever has named a folder for them.
fn save_logs(scenario: &str) {
    let (Some(folder), Some(slot)) = (std::env::var_os(LOGS), CLUSTER.get()) else { return };
    if let Some(Cluster::Kubernetes(kubernetes)) = &*runtime().block_on(slot.lock()) {
        let folder = std::path::Path::new(&folder).join(scenario);
        if let Err(err) = kubernetes.cluster().save_logs(&folder) {
            eprintln!("{err:#}");
        }
    }
}

/// The folder that logs of failed scenarios go to.
const LOGS: &str = "FERROVIRT_E2E_LOGS";

/// One runtime for all: clients and children outlive a scenario.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be made"))
}

static CLUSTER: OnceLock<Mutex<Option<Cluster>>> = OnceLock::new();

/// The cluster that scenarios share, started by the first one that needs it.
async fn cluster(name: &str) -> Result<MappedMutexGuard<'static, Cluster>> {
    cluster_by(|| Cluster::start(name)).await
}

/// The same, started in another way.
async fn cluster_by<F>(start: impl FnOnce() -> F) -> Result<MappedMutexGuard<'static, Cluster>>
where
    F: Future<Output = Result<Cluster>>,
{
    let mut slot = CLUSTER.get_or_init(Mutex::default).lock().await;
    if slot.is_none() {
        *slot = Some(start().await?);
    }
    Ok(MutexGuard::map(slot, |slot| slot.as_mut().expect("it was just made")))
}

/// Ends the shared cluster, if there is one.
fn take_away() {
    if let Some(slot) = CLUSTER.get() {
        drop(runtime().block_on(slot.lock()).take());
    }
}
