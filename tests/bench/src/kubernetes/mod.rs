//! Figures of an installation on a real Kubernetes cluster of three nodes, from images as they ship, with two replicas of
//! each Deployment.

mod crowd;
mod processes;
mod requests;
mod starts;
mod tiny;

use std::future::Future;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use e2e::kubernetes::images::Build;
use e2e::kubernetes::{Kubernetes, Wanted};
use install::names::app;
use tempfile::TempDir;

use processes::Program;
use requests::AuditLog;

/// How the program in the images is built: `dist`, unless this says `dev`, which tries the benchmark out.
const BUILD: &str = "FERROVIRT_BENCH_BUILD";
/// Of virt-operator, virt-api and virt-controller.
const REPLICAS: u8 = 2;
/// Nodes say they have more than the machine below them: what guests request is far above what tiny ones touch.
const NODE_MEMORY_MIB: u64 = 12 * 1024;
/// After the installation, until memory is measured.
const PAUSE: Duration = Duration::from_secs(45);

/// The programs that are Deployments.
const CENTRAL: [&str; 3] = [app::OPERATOR, app::API, app::CONTROLLER];
const MIB: f64 = 1_048_576.0;

pub(crate) async fn measure() -> Result<()> {
    let build = build()?;
    if build == Build::Dev {
        println!("{BUILD} is dev: sizes are those of a program that is not optimised");
    }
    let started = tokio::task::spawn_blocking(move || start(build)).await;
    // In this order they go: the audit log's folder after the API server that writes to it.
    let (scratch, kubernetes) = started.context("the start of the cluster panicked")??;
    let audit = AuditLog::in_folder(scratch.path());
    let measured = figures(&kubernetes, audit).await;
    if measured.is_err() {
        eprintln!("{}", kubernetes.report());
    }
    measured
}

fn build() -> Result<Build> {
    match std::env::var(BUILD).as_deref() {
        Err(_) | Ok("" | "dist") => Ok(Build::Dist),
        Ok("dev") => Ok(Build::Dev),
        Ok(other) => bail!("{BUILD} is {other:?}; the builds are dist and dev"),
    }
}

fn start(build: Build) -> Result<(TempDir, Kubernetes)> {
    let scratch = tempfile::tempdir().context("cannot make a directory")?;
    let wanted = Wanted {
        build,
        replicas: REPLICAS,
        node_memory_mib: Some(NODE_MEMORY_MIB),
        apiserver_flags: AuditLog::in_folder(scratch.path()).flags()?,
    };
    let kubernetes = Kubernetes::start_with(&e2e::program()?, &wanted)?;
    let kubernetes = kubernetes.context("no real cluster can run here (see above)")?;
    let cluster = kubernetes.cluster();
    cluster.import(&test_cluster::images::busybox(scratch.path())?)?;
    cluster.import(&tiny::image(scratch.path())?)?;
    for program in CENTRAL {
        rolled_out(&kubernetes, &format!("deployment/{program}"))?;
    }
    rolled_out(&kubernetes, &format!("daemonset/{}", app::HANDLER))?;
    Ok((scratch, kubernetes))
}

/// Waits until all Pods of a workload are ready.
fn rolled_out(kubernetes: &Kubernetes, workload: &str) -> Result<()> {
    let status = ["-n", install::names::NAMESPACE, "rollout", "status", workload, "--timeout=180s"];
    kubernetes.cluster().kubectl(&status).map(drop)
}

async fn figures(kubernetes: &Kubernetes, mut audit: AuditLog) -> Result<()> {
    let client = kubernetes.client().await?;
    tokio::time::sleep(PAUSE).await;
    let before = processes::of_installation(&client).await?;
    memory("memory before the first VM", &before);
    starts::measure(kubernetes, &e2e::guest_dir()?).await?;
    crowd::measure(kubernetes, &mut audit).await?;
    memory("memory while the crowd runs", &processes::of_installation(&client).await?);
    Ok(())
}

/// Prints what each Pod has, and what the aims are for.
fn memory(title: &str, programs: &[Program]) {
    println!("\n{title:<34}{:>9}{:>9}{:>9}{:>9}  MiB", "resident", "shared", "own", "charged");
    let row = |name: &str, programs: &[&Program], aim: &str| {
        let sum = |bytes: fn(&Program) -> u64| programs.iter().map(|one| bytes(one)).sum::<u64>() as f64 / MIB;
        let charged = programs.iter().map(|one| one.charged).sum::<Option<u64>>();
        let charged = charged.map_or_else(|| "?".to_owned(), |bytes| format!("{:.1}", bytes as f64 / MIB));
        let (resident, shared, own) = (sum(|p| p.resident), sum(|p| p.shared), sum(|p| p.own));
        println!("{name:<34}{resident:>9.1}{shared:>9.1}{own:>9.1}{charged:>9}  {aim}");
    };
    for program in programs {
        let aim = match program.app.as_str() {
            app::HANDLER => "aim ≤ 25",
            app::CONTROLLER => "aim ≤ 15",
            _ => "",
        };
        row(&format!("  {} on {}", program.app, program.node), &[program], aim);
    }
    let central: Vec<&Program> = programs.iter().filter(|one| CENTRAL.contains(&one.app.as_str())).collect();
    row("operator, api, controller", &central, "aim ≤ 120");
}

/// Waits for something, and says for what if it takes too long.
async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let late = || format!("{what}: not within {} s", limit.as_secs());
    tokio::time::timeout(limit, work).await.with_context(late)?
}
