//! `ferrovirt down`: shuts the guests down, then removes everything from the recorded state.
//!
//! It also works after a crash: a running supervisor is stopped (guests are not affected), a supervisor that starts no
//! VMs takes over the cluster, each launcher Pod is deleted as in a node drain, and once the guests have shut down the
//! rest is removed. Idempotent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use rustix::process::Signal;

use crate::cluster::layout::{DEFAULT_DATA_DIR, Layout};
use crate::cluster::lock::Lock;
use crate::cluster::record::Record;
use crate::cluster::{Cluster, Options, fabric, nodes, preflight, storage};
use terminal::Progress;
use terminal::signals;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Data directory of the cluster
    #[arg(long, env = "FERROVIRT_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    pub data_dir: PathBuf,
    /// Kill the guests instead of shutting them down
    #[arg(long)]
    pub force: bool,
    /// Also delete the data directory: objects, images, certificates, and all volumes with their data
    #[arg(long)]
    pub purge: bool,
}

/// A supervisor drains its connections and exits; guests do not depend on it.
const SUPERVISOR_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) async fn run(args: Args) -> Result<()> {
    preflight::root()?;
    let layout = Layout::new(std::path::absolute(&args.data_dir).context("cannot resolve --data-dir")?);
    let Some(record) = Record::load(&layout)? else {
        eprintln!("no cluster was started on {}; nothing to do", layout.root().display());
        return Ok(());
    };
    let mut progress = Progress::default();
    end_supervisor(&layout, &record, &mut progress)?;
    if !args.force && has_pods(&layout, &record) {
        tokio::select! {
            result = shut_guests_down(&layout, &mut progress) => result?,
            () = signals::terminated() => bail!("interrupted; some guests may keep running: run `ferrovirt down` again"),
        }
    }
    undo(&layout, &mut progress)?;
    if args.purge {
        std::fs::remove_dir_all(layout.root()).with_context(|| format!("cannot remove {}", layout.root().display()))?;
        progress.done(format!("{} removed", layout.root().display()));
    }
    Ok(())
}

fn end_supervisor(layout: &Layout, record: &Record, progress: &mut Progress) -> Result<()> {
    if !Lock::is_held(layout) {
        return Ok(());
    }
    let Some(process) = record.supervisor.as_ref().filter(|process| process.alive()) else {
        return wait_for_lock(layout);
    };
    progress.waiting(format!("supervisor (process {}) to end", process.pid));
    for signal in [Signal::TERM, Signal::KILL] {
        process.signal(signal).with_context(|| format!("cannot signal the supervisor, process {}", process.pid))?;
        if process.wait_gone(SUPERVISOR_TIMEOUT).context("cannot wait for the supervisor")? {
            progress.done("supervisor ended; guests keep running");
            return wait_for_lock(layout);
        }
    }
    bail!("the supervisor (process {}) does not exit", process.pid)
}

/// The recorded supervisor is dead but the lock is held: it is just exiting, or another process holds the lock.
fn wait_for_lock(layout: &Layout) -> Result<()> {
    let deadline = std::time::Instant::now() + SUPERVISOR_TIMEOUT;
    while Lock::is_held(layout) {
        if std::time::Instant::now() > deadline {
            bail!(
                "{} is locked by a process that is not the recorded supervisor; stop it first",
                layout.lock().display()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

fn has_pods(layout: &Layout, record: &Record) -> bool {
    record
        .nodes
        .iter()
        .any(|node| std::fs::read_dir(layout.pods(&node.name)).is_ok_and(|mut entries| entries.next().is_some()))
}

async fn shut_guests_down(layout: &Layout, progress: &mut Progress) -> Result<()> {
    let options = Options { layout: layout.clone(), nodes: None, port: None, hold_starts: true };
    let mut cluster = Cluster::start(options, progress).await?;
    let admin = cluster.admin.clone();
    let result = tokio::select! {
        result = drain(admin, progress) => result,
        err = cluster.failed() => Err(err),
    };
    cluster.stop().await;
    result
}

/// Deletes every launcher Pod, oldest first, and waits until all are gone.
async fn drain(client: kube::Client, progress: &mut Progress) -> Result<()> {
    let launchers = ListParams::default().labels("kubevirt.io=virt-launcher");
    let all: Api<Pod> = Api::all(client.clone());
    let mut pods = all.list(&launchers).await.context("cannot list the launcher Pods")?.items;
    pods.sort_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
    for pod in &pods {
        let (Some(namespace), Some(name)) = (&pod.metadata.namespace, &pod.metadata.name) else { continue };
        let namespaced: Api<Pod> = Api::namespaced(client.clone(), namespace);
        match namespaced.delete(name, &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(err) => return Err(err).with_context(|| format!("cannot delete Pod {namespace}/{name}")),
        }
        progress.done(format!("guest {} asked to shut down", guest(pod)));
    }
    let mut open: BTreeMap<String, String> =
        pods.iter().map(|pod| (pod.metadata.uid.clone().unwrap_or_default(), guest(pod))).collect();
    while !open.is_empty() {
        let left = all.list(&launchers).await.context("cannot list the launcher Pods")?.items;
        let still: Vec<&str> = left.iter().filter_map(|pod| pod.metadata.uid.as_deref()).collect();
        open.retain(|uid, guest| {
            let there = still.contains(&uid.as_str());
            if !there {
                progress.done(format!("guest {guest} has shut down"));
            }
            there
        });
        if let Some((_, first)) = open.first_key_value() {
            progress.waiting(format!(
                "{} guest(s) to shut down, among them {first} (its grace period limits the wait)",
                open.len()
            ));
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

fn guest(pod: &Pod) -> String {
    let domain = pod.metadata.annotations.as_ref().and_then(|all| all.get(api::annotations::DOMAIN)).cloned();
    let name = domain.or_else(|| pod.metadata.name.clone()).unwrap_or_default();
    format!("{}/{name}", pod.metadata.namespace.as_deref().unwrap_or_default())
}

/// Removes all recorded processes, mounts, cgroups and namespaces, whether or not they still exist.
pub(crate) fn undo(layout: &Layout, progress: &mut Progress) -> Result<()> {
    let _lock = Lock::take(layout)?;
    let mut record = Record::load(layout)?.unwrap_or_default();
    nodes::end_leftovers(&mut record)?;
    for node in &record.nodes {
        if let Err(errors) = pod_runner::destroy_all(&layout.pods(&node.name)) {
            let all: Vec<String> = errors.into_iter().map(|err| format!("{:#}", anyhow::Error::new(err))).collect();
            bail!("cannot remove the Pods of node {}: {}", node.name, all.join("; "));
        }
    }
    storage::withdraw_all(layout, &record.nodes)?;
    fabric::remove(layout, &record.nodes)?;
    record.supervisor = None;
    record.save(layout)?;
    progress.done("cluster removed; objects, images and volumes stay for the next `up`");
    Ok(())
}
