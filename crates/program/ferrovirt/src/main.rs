//! `ferrovirt`: each program of the system is a subcommand; the binary can also be called by the programs' own names.
//!
//! Only parsing and dispatch: the embedded cluster is in `supervisor`, the commands for any cluster in `ferrovirt-cli`.

use std::ffi::OsString;
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};

/// Virtual machines as Kubernetes objects.
#[derive(Debug, Parser)]
#[command(name = "ferrovirt", version, propagate_version = true, arg_required_else_help = true)]
struct Ferrovirt {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(flatten)]
    Supervisor(supervisor::Command),
    /// Start two nodes, boot a VM, reach it from the other node, live-migrate it, stop and start it, and print timelines
    Demo(drive::demo::Args),
    #[command(flatten)]
    Cli(ferrovirt_cli::Command),
    /// Print a script that completes commands in a shell
    Completion {
        /// The shell to complete for
        shell: terminal::output::Shell,
    },
    /// Start, stop, pause VMs and attach to their consoles: KubeVirt's command line
    Virtctl(virtctl::Cli),
    Controller(Box<ferrovirt_cli::controller::Args>),
    Api(Box<ferrovirt_cli::api_server::Args>),
    Handler(Box<ferrovirt_cli::handler::Args>),
    Operator(Box<ferrovirt_cli::operator::Args>),
    Csi(Box<ferrovirt_cli::csi::Args>),
}

fn main() -> ExitCode {
    run(std::env::args_os().collect())
}

/// Runs the program; `args` starts with the program's name.
fn run(args: Vec<OsString>) -> ExitCode {
    let name = args.first().map(Path::new).and_then(Path::file_name).and_then(|name| name.to_str());
    match name {
        Some("virt-launcher") => return virt_launcher::main(args),
        Some("container-disk") => return container_disk::main(args),
        Some("virtctl" | "kubectl-virt" | "kubectl-virt.exe") => return virtctl::main(args),
        _ => {}
    }
    // Not clap commands: they fork or give up rights before there is a second thread, and only our own programs call them.
    match args.get(1).and_then(|word| word.to_str()) {
        Some(pod_runner::shim::SUBCOMMAND) => return pod_runner::shim::main(args.into_iter().skip(2)),
        Some(disk_images::SUBCOMMAND) => {
            terminal::log::to_stderr();
            return disk_images::main(args.into_iter().skip(2));
        }
        Some(pod_runner::exec::SUBCOMMAND) => return pod_runner::exec::main(args.into_iter().skip(2)),
        _ => {}
    }
    // Fails if a provider is already installed, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    terminal::log::to_stderr();
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
        Command::Supervisor(command) => block_on(supervisor::run(command)),
        Command::Demo(args) => block_on(async { drive::demo::run(args).await.map(|()| ExitCode::SUCCESS) }),
        Command::Cli(command) => block_on(ferrovirt_cli::run(command)),
        Command::Completion { shell } => {
            terminal::output::print_completion(shell, Ferrovirt::command(), "ferrovirt")?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Virtctl(cli) => block_on(virtctl::run(cli)),
        Command::Controller(args) => ferrovirt_cli::controller::run(*args),
        Command::Api(args) => ferrovirt_cli::api_server::run(*args),
        Command::Handler(args) => block_on(ferrovirt_cli::handler::run(*args)),
        Command::Operator(args) => ferrovirt_cli::operator::run(*args),
        Command::Csi(args) => block_on(ferrovirt_cli::csi::run(*args)),
    }
}

/// Two workers: the programs mostly wait, and memory matters.
fn block_on(work: impl Future<Output = anyhow::Result<ExitCode>>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let result = runtime.block_on(work);
    // Not dropped: a thread blocked on reading a terminal would keep the program alive.
    runtime.shutdown_background();
    result
}
