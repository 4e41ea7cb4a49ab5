//! `ferrovirt`: each program of the system is a subcommand, and the binary answers to the programs' own names.

mod cli;
pub mod cluster;
pub mod demo;
mod down;
pub mod drive;
mod guests;
mod node;
mod progress;
mod signals;
mod status;
mod up;

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

use anyhow::Context as _;
use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Virtual machines as Kubernetes objects.
#[derive(Debug, Parser)]
#[command(name = "ferrovirt", version, propagate_version = true, arg_required_else_help = true)]
struct Ferrovirt {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Start a cluster on this machine, or take over the one that was running
    Up(up::Args),
    /// Shut the guests down in order and take the cluster away
    Down(down::Args),
    /// Show the cluster, its nodes and its guests
    Status(status::Args),
    /// Start two nodes, boot a VM, reach it from the other node, live-migrate it, stop and start it, and print timelines
    Demo(demo::Args),
    #[command(flatten)]
    Cli(cli::Command),
    /// Start, stop, pause VMs and attach to their consoles: KubeVirt's command line
    Virtctl(virtctl::Cli),
    Controller(Box<cli::controller::Args>),
    /// One node of the embedded cluster (started by `up`)
    #[command(hide = true)]
    Node(node::Args),
}

/// The program: `args` with the program's own name first.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let name = args.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    match name {
        Some("virt-launcher") => return virt_launcher::main(args),
        Some("virtctl" | "kubectl-virt" | "kubectl-virt.exe") => return virtctl::main(args),
        _ => {}
    }
    // Not clap commands: they fork before there is a second thread, and what they are told comes from a node alone.
    match args.get(1).and_then(|word| word.to_str()) {
        Some(pod_runner::shim::SUBCOMMAND) => return pod_runner::shim::main(args.into_iter().skip(2)),
        Some(pod_runner::exec::SUBCOMMAND) => return pod_runner::exec::main(args.into_iter().skip(2)),
        _ => {}
    }
    // A second provider cannot be installed, and then the first one serves.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    log_to_stderr();
    match dispatch(Ferrovirt::parse_from(args).command) {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => block_on(async { up::run(args).await.map(|()| ExitCode::SUCCESS) }),
        Command::Down(args) => block_on(async { down::run(args).await.map(|()| ExitCode::SUCCESS) }),
        Command::Status(args) => block_on(status::run(args)),
        Command::Demo(args) => block_on(async { demo::run(args).await.map(|()| ExitCode::SUCCESS) }),
        Command::Cli(command) => block_on(cli::run(command)),
        Command::Virtctl(cli) => block_on(virtctl::run(cli)),
        Command::Controller(args) => cli::controller::run(*args),
        Command::Node(args) => block_on(async { node::run(args).await.map(|()| ExitCode::SUCCESS) }),
    }
}

/// Two workers: the programs wait far more than they compute, and memory counts.
fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    // Not a drop: a thread blocked on a terminal that nobody types on would hold the program.
    runtime.shutdown_background();
    result
}

/// Changes how much is logged; there is none while `FERROVIRT_LOG` decides.
static LOG: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();

/// kube's client reports each failed connection by itself, also those that whoever asked expects and retries.
const NOT_KUBE: &str = "kube_client=off";

/// `FERROVIRT_LOG` takes tracing's filter language; by default people see what went wrong, logs what happened.
fn log_to_stderr() {
    use std::io::IsTerminal as _;
    let default = if std::io::stderr().is_terminal() { "warn" } else { "info" };
    let told = EnvFilter::try_from_env("FERROVIRT_LOG").ok();
    let free = told.is_none();
    let filter = told.unwrap_or_else(|| EnvFilter::new(format!("{default},{NOT_KUBE}")));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let log = log.with_filter_reloading();
    if free {
        let handle = log.reload_handle();
        // Nobody else sets it; a filter that cannot be changed any more is the end of the program.
        let _ = LOG.set(Box::new(move |filter| drop(handle.reload(filter))));
    }
    log.init();
}

/// Logs as much as klog's number says, unless `FERROVIRT_LOG` decides: up to 2 what operators want to know, up to 5 each
/// decision of ours, beyond that everything.
fn log_at(verbosity: u64) {
    let Some(change) = LOG.get() else { return };
    change(EnvFilter::new(match verbosity {
        0..=2 => format!("info,{NOT_KUBE}"),
        3..=5 => format!("info,virt_controller=debug,informer=debug,{NOT_KUBE}"),
        _ => "debug,hyper_util=info,h2=info,rustls=info,tower=info".to_owned(),
    }));
}
