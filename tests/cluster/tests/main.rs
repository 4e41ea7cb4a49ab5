//! A cluster of three nodes, and what it has to be able to do for us. All tests share it, one after the other: some take a node
//! away from it.

mod end;
mod nodes;
mod storage;
mod workloads;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use libtest_mimic::{Arguments, Failed, Trial};
use parking_lot::Mutex;
use test_cluster::{Cluster, NodePrograms, Options, images};

/// Far more than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The cluster that all share.
#[derive(Default)]
enum Slot {
    #[default]
    Empty,
    Started(Cluster),
    Failed,
}

type Shared = Arc<Mutex<Slot>>;

fn main() -> ExitCode {
    if std::env::var_os(end::ROLE).is_some() {
        return end::own_a_cluster_until_killed();
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let programs = if arguments.list { Ok(None) } else { programs() };
    let programs = match programs {
        Ok(programs) => programs,
        Err(reason) => {
            eprintln!("there is no cluster to test: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let skipped = programs.is_none();
    let shared = Shared::default();
    let usual = [workloads::TRIALS, nodes::TRIALS].concat().into_iter().map(|(name, body)| (name, body, skipped));
    let on_request = nodes::LOST.iter().chain(storage::TRIALS).map(|&(name, body)| (name, body, true));
    let trials = usual.chain(on_request);
    let trials = trials.map(|(name, body, ignored)| {
        let (shared, programs) = (shared.clone(), programs.clone());
        trial(name, move || with_cluster(&shared, programs, body)).with_ignored_flag(ignored)
    });
    // Its owner has a cluster of its own: two at once do not meet.
    let end = trial("a_killed_owner_leaves_nothing", end::a_killed_owner_leaves_nothing).with_ignored_flag(skipped);
    let trials = trials.chain([end]).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    *shared.lock() = Slot::Empty;
    conclusion.exit_code()
}

fn programs() -> Result<Option<NodePrograms>, String> {
    test_cluster::programs_or_skip("nothing runs on a real cluster")
}

type Body = fn(&mut Cluster) -> Result<()>;

fn trial(name: &str, body: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    Trial::test(name, move || body().map_err(|err| Failed::from(format!("{err:#}"))))
}

/// Runs a test on the shared cluster. The first one starts it, and is told if that fails.
fn with_cluster(shared: &Shared, programs: Option<NodePrograms>, body: Body) -> Result<()> {
    let mut slot = shared.lock();
    if matches!(*slot, Slot::Empty) {
        *slot = Slot::Failed;
        *slot = Slot::Started(start(programs.context("there are no programs")?)?);
    }
    match &mut *slot {
        Slot::Started(cluster) => body(cluster).map_err(|err| err.context(cluster.logs())),
        _ => bail!("the cluster did not start; another test says why"),
    }
}

fn start(programs: NodePrograms) -> Result<Cluster> {
    let folder = tempfile::tempdir()?;
    let images = vec![images::busybox(folder.path())?, workloads::disk_image(folder.path())?];
    let progress = |what: &str| eprintln!("{what}");
    Cluster::start(Options { images, grace: Duration::from_secs(12), progress, ..Options::new(programs) })
}

/// Looks until it is so.
fn eventually(what: &str, mut look: impl FnMut() -> Result<()>) -> Result<()> {
    let started = std::time::Instant::now();
    loop {
        match look() {
            Ok(()) => return Ok(()),
            Err(err) if started.elapsed() > PATIENCE => return Err(err.context(what.to_owned())),
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}
