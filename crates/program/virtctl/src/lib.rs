//! `virtctl`: operations on VMs beyond writing objects, such as start, stop, pause, migrate and console.
//!
//! The command tree is also available as `kubectl virt` and `ferrovirt virtctl`; [`Cli`] can be a program of its own or
//! a subcommand. Messages and exit codes follow KubeVirt's virtctl, so that scripts written for it keep working.

mod args;
pub mod connect;
mod console;
mod error;
mod explain;
pub mod guest;
mod image_upload;
mod lifecycle;
pub mod migration;
mod subresource;
mod version;
mod vnc;
mod volumes;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

pub use args::Cli;
use args::Command;
pub use error::{api_error, report};

/// The program: parses `args` (starting with the program's name), runs the command and reports its error.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let program = program_name(args.first().map(AsRef::as_ref));
    let matches = Cli::command().bin_name(program).get_matches_from(args);
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    // Fails if a provider is already installed, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return report(&anyhow::Error::new(error).context("cannot start the runtime")),
    };
    let result = runtime.block_on(run(cli));
    // Not dropped: that would wait for a write to a standard output that nobody reads.
    runtime.shutdown_background();
    result.unwrap_or_else(|error| report(&error))
}

/// Runs one command.
pub async fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let connect = &cli.connect;
    match cli.command {
        Command::Start(args) => lifecycle::start(connect, args).await?,
        Command::Stop(args) => lifecycle::stop(connect, args).await?,
        Command::Restart(args) => lifecycle::restart(connect, args).await?,
        Command::Pause(args) => lifecycle::pause(connect, lifecycle::Pause::Pause, args).await?,
        Command::Unpause(args) => lifecycle::pause(connect, lifecycle::Pause::Unpause, args).await?,
        Command::SoftReboot(args) => lifecycle::soft_reboot(connect, args).await?,
        Command::Migrate(args) => migration::migrate(connect, args).await?,
        Command::MigrateCancel(args) => migration::cancel(connect, args).await?,
        Command::EvacuateCancel(args) => migration::cancel_evacuation(connect, args).await?,
        Command::AddVolume(args) => volumes::add(connect, args).await?,
        Command::RemoveVolume(args) => volumes::remove(connect, args).await?,
        Command::MemoryDump(args) => volumes::memory_dump(connect, args).await?,
        Command::ImageUpload(args) => image_upload::run(connect, args).await?,
        Command::Explain(args) => return explain::run(connect, args).await,
        Command::Console(args) => return console::run(connect, args).await,
        Command::Vnc(args) => vnc::run(connect, args).await?,
        Command::Version(args) => version::run(connect, args).await?,
        Command::Completion { shell } => {
            terminal::output::print_completion(shell, Cli::command(), "virtctl")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The program's name in help texts: a kubectl plugin is called through kubectl.
fn program_name(arg0: Option<&Path>) -> &'static str {
    let name = arg0.and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with("kubectl-") { "kubectl virt" } else { "virtctl" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_tree_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_kubectl_plugin_calls_itself_kubectl_virt() {
        assert_eq!(program_name(Some(Path::new("/usr/bin/kubectl-virt"))), "kubectl virt");
        assert_eq!(program_name(Some(Path::new("/usr/bin/virtctl"))), "virtctl");
        assert_eq!(program_name(None), "virtctl");
    }
}
