//! Commands that speak to a cluster like kubectl does, and those that look at manifests without one.

mod age;
mod apply;
mod delete;
mod describe;
mod errors;
mod get;
mod image;
mod manifest;
mod resources;
mod table;
mod targets;
mod three_way;

use std::process::ExitCode;

use clap::CommandFactory as _;

// Not a doc comment: it would become the program's own description.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Apply(apply::Args),
    Get(get::Args),
    Describe(describe::Args),
    Delete(delete::Args),
    Image(image::Args),
    /// Print a script that completes commands in a shell
    Completion {
        /// The shell to complete for
        shell: clap_complete::Shell,
    },
}

/// Runs one of the subcommands.
pub(crate) async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Apply(args) => apply::run(args).await,
        Command::Get(args) => get::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Delete(args) => delete::run(args).await,
        Command::Image(args) => image::run(args),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut crate::Ferrovirt::command(), "ferrovirt", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}
