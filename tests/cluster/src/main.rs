//! `make kube-up` and `make kube-down`: a cluster in the background, for people.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use hostfs::atomic;
use hostfs::process::{ProcessId, Signal};
use serde::{Deserialize, Serialize};
use test_cluster::{Cluster, NodePrograms, Options};

/// How long the end of a cluster may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A real Kubernetes cluster of several nodes on this machine.
#[derive(Parser)]
struct Cli {
    /// Where the kubeconfig and the logs are put.
    #[arg(long, global = true, default_value = "build/kube")]
    dir: PathBuf,
    #[command(subcommand)]
    command: Order,
}

#[derive(Subcommand)]
enum Order {
    /// Start a cluster in the background and wait until it is ready.
    Up(Up),
    /// End the cluster. Only its logs stay.
    Down {
        /// Remove the logs, too.
        #[arg(long)]
        wipe: bool,
    },
    /// Hold a cluster until SIGTERM; `up` starts this.
    #[command(hide = true)]
    Hold(Up),
}

#[derive(Args)]
struct Up {
    /// How many nodes, up to 9.
    #[arg(long, default_value_t = 3)]
    nodes: u8,
    /// An OCI archive that every node gets; may be repeated.
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
}

/// What the holder of a cluster tells of itself.
#[derive(Deserialize, Serialize)]
struct Holder {
    process: ProcessId,
    /// Whether the cluster can be used.
    ready: bool,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    fs::create_dir_all(&cli.dir).with_context(|| format!("cannot make {}", cli.dir.display()))?;
    let dir = cli.dir.canonicalize().with_context(|| format!("cannot use {}", cli.dir.display()))?;
    match cli.command {
        Order::Up(up) => start(&dir, &up),
        Order::Down { wipe } => end(&dir, wipe),
        Order::Hold(up) => hold(&dir, up),
    }
}

fn holder_file(dir: &Path) -> PathBuf {
    dir.join("holder.json")
}

fn log_file(dir: &Path) -> PathBuf {
    dir.join("kube-up.log")
}

fn kubeconfig(dir: &Path) -> PathBuf {
    dir.join("kubeconfig")
}

/// The process that holds the cluster of this directory, if it lives.
fn holder(dir: &Path) -> Result<Option<Holder>> {
    let found: Option<Holder> = atomic::read_json(holder_file(dir))?;
    Ok(found.filter(|holder| holder.process.alive()))
}

fn start(dir: &Path, up: &Up) -> Result<()> {
    if holder(dir)?.is_some() {
        println!("A cluster is running already; `make kube-down` ends it.\n{}", usage(dir));
        return Ok(());
    }
    let images =
        up.images.iter().map(|image| image.canonicalize().with_context(|| format!("cannot find {}", image.display())));
    let images: Vec<PathBuf> = images.collect::<Result<_>>()?;
    let log = File::create(log_file(dir)).with_context(|| format!("cannot write {}", log_file(dir).display()))?;
    let errors = log.try_clone().context("cannot share the log")?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.arg("--dir").arg(dir).args(["hold", "--nodes", &up.nodes.to_string()]);
    command.args(images.iter().flat_map(|image| [Path::new("--image"), image.as_path()]));
    command.stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    let mut child = command.spawn().context("cannot start the holder of the cluster")?;
    let mut shown = 0;
    loop {
        shown = show_progress(dir, shown)?;
        if holder(dir)?.is_some_and(|holder| holder.ready) {
            show_progress(dir, shown)?;
            println!("{}", usage(dir));
            return Ok(());
        }
        if let Some(status) = child.try_wait().context("cannot look after the holder of the cluster")? {
            show_progress(dir, shown)?;
            bail!("the cluster did not start ({status}); {} says why", log_file(dir).display());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Prints what the holder has said since; returns how much that is in all.
fn show_progress(dir: &Path, shown: usize) -> Result<usize> {
    let text = fs::read(log_file(dir)).context("cannot read the log")?;
    let mut out = std::io::stdout();
    out.write_all(text.get(shown..).unwrap_or_default()).and_then(|()| out.flush()).context("cannot print")?;
    Ok(text.len())
}

fn usage(dir: &Path) -> String {
    format!("\n  export KUBECONFIG={}\n  kubectl get nodes\n\nEnd it with `make kube-down`.", kubeconfig(dir).display())
}

fn end(dir: &Path, wipe: bool) -> Result<()> {
    match holder(dir)? {
        Some(Holder { process, .. }) => {
            process.signal(Signal::TERM)?;
            let gone = process.wait_gone(PATIENCE)?;
            ensure!(gone, "process {} does not end within {} s", process.pid, PATIENCE.as_secs());
            println!("The cluster has ended.");
        }
        None => println!("No cluster is running."),
    }
    atomic::remove(holder_file(dir))?;
    atomic::remove(kubeconfig(dir))?;
    if wipe {
        fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

fn hold(dir: &Path, up: Up) -> Result<()> {
    let process = ProcessId::current()?;
    atomic::write_json(holder_file(dir), &Holder { process, ready: false })?;
    let programs = NodePrograms::build_or_skip("there is no cluster").map_err(anyhow::Error::msg)?;
    let programs = programs.context("the cluster's programs cannot be built here")?;
    let begun = Instant::now();
    let options =
        Options { nodes: up.nodes, images: up.images, progress: |what| println!("{what}"), ..Options::new(programs) };
    let cluster = Cluster::start(options)?;
    fs::copy(cluster.kubeconfig(), kubeconfig(dir)).context("cannot hand out the kubeconfig")?;
    println!("ready after {:.1} s", begun.elapsed().as_secs_f32());
    atomic::write_json(holder_file(dir), &Holder { process, ready: true })?;
    // Until here a signal ends this process at once, and the cluster with it.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait for signals")?;
    runtime.block_on(terminal::signals::terminated());
    cluster.save_logs(&dir.join("logs"))
}
