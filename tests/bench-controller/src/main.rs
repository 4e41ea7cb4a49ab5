//! Our controller and KubeVirt's, one after the other, on clusters of the same make: a real kube-apiserver and
//! kube-scheduler with fake nodes that say that Pods run. Both get the same instances; what they ask of the API server is
//! read from its audit log, what they cost from `/proc`.
//!
//! Admission webhooks are not installed on these clusters, so instances are created as admission would leave them.

mod cluster;
mod cost;
mod instances;
mod report;
mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;

use run::{Figures, Load, Program, Until};

/// Measure what the controllers cost per instance
#[derive(Debug, clap::Parser)]
struct Args {
    /// Instances to create
    #[arg(long, default_value_t = 1000, value_name = "NUMBER")]
    instances: usize,
    /// Creates under way at a time
    #[arg(long, default_value_t = 8, value_name = "NUMBER")]
    creators: usize,
    /// Fake nodes
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    nodes: usize,
    /// How far instances get; the aims are for the first
    #[arg(long, value_enum, default_value = "scheduling")]
    until: Until,
    /// Measure ours alone
    #[arg(long)]
    ours: bool,
    /// Our program
    #[arg(long, env = "FERROVIRT_BIN", value_name = "FILE")]
    program: PathBuf,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime");
    match runtime.and_then(|runtime| runtime.block_on(measure(&args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("bench-controller: {err:#}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(args: &Args) -> Result<()> {
    let peers = |name, what| peers::build_or_skip(name, what).map_err(anyhow::Error::msg);
    let Some(kube) = peers("kube", "there is no kube-apiserver to measure on")? else {
        bail!("kube-apiserver cannot be built here")
    };
    let program = std::path::absolute(&args.program).context("cannot tell where our program is")?;
    let mut programs = vec![Program::Ours(program)];
    if !args.ours
        && let Some(folder) = peers("kubevirt/virt-controller", "KubeVirt's controller is not measured")?
    {
        programs.push(Program::KubeVirt(folder));
    }
    println!("{}", report::machine());
    let load = Load { instances: args.instances, creators: args.creators, nodes: args.nodes, until: args.until };
    println!("{} instances up to {}, {} creators", load.instances, load.until.phase(), load.creators);
    let mut figures: Vec<Figures> = Vec::new();
    for program in &programs {
        let done = run::run(program, &kube, load).await;
        figures.push(done.with_context(|| format!("cannot measure {}", program.name()))?);
    }
    report::print(&figures, load);
    Ok(())
}
