//! Figures of the embedded cluster and of an installation on Kubernetes, each beside a reference measured in the same run. Machines are noisy: ratios matter,
//! seconds do not. Results worth keeping go to `docs/performance.md`.

mod kubernetes;
mod memory;
mod migrations;
mod pair;
mod proxies;
mod starts;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use drive::Embedded;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let what = std::env::args().nth(1);
    let result = tokio::runtime::Runtime::new().context("cannot start the runtime").and_then(|rt| {
        // Whoever is interrupted takes away what it has started, as on any other failure.
        rt.block_on(async {
            tokio::select! {
                done = run(what.as_deref()) => done,
                stopped = stopped() => stopped,
            }
        })
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("bench: {err:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(what: Option<&str>) -> Result<()> {
    println!("machine: {}", machine());
    match what {
        None => cluster().await,
        Some("migration") => migration().await,
        Some("proxies") => proxies().await,
        Some("kubernetes") => kubernetes::measure().await,
        Some(other) => bail!("{other} is nothing to measure: leave it out, or say migration, proxies or kubernetes"),
    }
}

async fn stopped() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    bail!("interrupted")
}

/// A cluster of two nodes with nothing in it.
async fn embedded() -> Result<Embedded> {
    let dir = PathBuf::from(format!("/tmp/fv-bench-{}", std::process::id()));
    let cluster = Embedded::start(&e2e::program()?, &dir, 2, Some(&e2e::guest_dir()?)).await?;
    // Informers have listed and the allocators have settled.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    Ok(cluster)
}

async fn cluster() -> Result<()> {
    let guest = e2e::guest_dir()?;
    let mut cluster = embedded().await?;
    let idle = memory::idle(&cluster)?;
    println!("idle cluster of two nodes        {:7.1} MB   aim ≤ 150", idle.megabytes());
    for (name, bytes) in idle.parts() {
        println!("  {name:30} {:7.1} MB", bytes as f64 / 1e6);
    }
    starts::measure(&cluster, &guest).await?;
    writes::measure(&cluster).await?;
    cluster.down().await
}

async fn migration() -> Result<()> {
    let guest = e2e::guest_dir()?;
    let mut cluster = embedded().await?;
    migrations::measure(&cluster, &guest).await?;
    cluster.down().await?;
    proxies().await
}

async fn proxies() -> Result<()> {
    tokio::task::spawn_blocking(proxies::measure).await.context("the thread that measures panicked")?
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    // Two in the middle of an even number.
    if values.len().is_multiple_of(2) { f64::midpoint(values[middle - 1], values[middle]) } else { values[middle] }
}

fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = meminfo.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let kvm = if hostfs::kvm::usable().is_ok() { "KVM" } else { "no KVM (TCG)" };
    format!("{cpus} CPUs, {} GiB, Linux {}, {kvm}, load {load} at start", kib >> 20, kernel.trim())
}
