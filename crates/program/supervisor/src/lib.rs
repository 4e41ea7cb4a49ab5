//! The embedded cluster on this machine: starting it, its processes, and removing it.

pub mod cluster;
mod down;
pub mod guests;
mod image;
mod node;
mod pulls;
mod status;
pub mod up;

use std::process::ExitCode;

// Not a doc comment: it would become the program's own description.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Start a cluster on this machine, or resume the one in the data directory
    Up(up::Args),
    /// Shut down the guests and delete the cluster
    Down(down::Args),
    /// Show the cluster, its nodes and its guests
    Status(status::Args),
    Image(image::Args),
    /// One node of the embedded cluster (started by `up`)
    #[command(hide = true)]
    Node(node::Args),
}

/// Runs one of the subcommands.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Up(args) => up::run(args).await?,
        Command::Down(args) => down::run(args).await?,
        Command::Status(args) => return status::run(args).await,
        Command::Image(args) => return image::run(args).await,
        Command::Node(args) => node::run(args).await?,
    }
    Ok(ExitCode::SUCCESS)
}
