//! Commands that talk to a cluster like kubectl does, and commands that inspect manifests without one.

pub mod api_server;
mod apply;
pub mod controller;
pub mod csi;
mod delete;
mod describe;
mod drain;
mod errors;
mod explain;
mod get;
pub mod handler;
pub mod installation;
mod judge;
mod manifest;
mod nearest;
pub mod operator;
mod pod;
mod render;
mod resources;
mod start;
mod table;
mod targets;
mod three_way;
mod uncordon;
pub mod uninstall;
mod validate;

use std::process::ExitCode;

use terminal::output::print;

// Not a doc comment: it would become the program's own description.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    Apply(apply::Args),
    Get(get::Args),
    Describe(describe::Args),
    Delete(delete::Args),
    Drain(drain::Args),
    Uncordon(uncordon::Args),
    Explain(explain::Args),
    Validate(validate::Args),
    Render(render::Args),
    Install(Box<installation::Args>),
    Uninstall(uninstall::Args),
    /// Print the CustomResourceDefinitions for a Kubernetes cluster
    Crds,
}

/// Runs one of the subcommands.
pub async fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Apply(args) => apply::run(args).await,
        Command::Get(args) => get::run(args).await,
        Command::Describe(args) => describe::run(args).await,
        Command::Delete(args) => delete::run(args).await,
        Command::Drain(args) => drain::run(args).await,
        Command::Uncordon(args) => uncordon::run(args).await,
        Command::Explain(args) => explain::run(&args),
        Command::Validate(args) => validate::run(args),
        Command::Render(args) => render::run(args),
        Command::Install(args) => installation::run(*args).await,
        Command::Uninstall(args) => uninstall::run(args).await,
        Command::Crds => crds(),
    }
}

fn crds() -> anyhow::Result<ExitCode> {
    for definition in api::crds() {
        print(&format!("---\n{}", manifest::to_yaml(&definition)?))?;
    }
    Ok(ExitCode::SUCCESS)
}
