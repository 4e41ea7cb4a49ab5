//! Figures of the embedded cluster, each beside a reference measured in the same run. Machines are noisy: ratios matter,
//! seconds do not. Results worth keeping go to `docs/performance.md`.

mod memory;
mod starts;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use ferrovirt::drive::Embedded;

fn main() -> ExitCode {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let result = tokio::runtime::Runtime::new().context("cannot start the runtime").and_then(|rt| rt.block_on(run()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("bench: {err:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<()> {
    let guest = e2e::guest_dir()?;
    let dir = PathBuf::from(format!("/tmp/fv-bench-{}", std::process::id()));
    println!("machine: {}", machine());
    let mut cluster = Embedded::start(&e2e::program()?, &dir, 2, Some(&guest)).await?;
    // Informers have listed and the allocators have settled.
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    let idle = memory::idle(&cluster)?;
    println!("idle cluster of two nodes        {:7.1} MB   aim ≤ 150", idle.megabytes());
    for (name, bytes) in idle.parts() {
        println!("  {name:30} {:7.1} MB", bytes as f64 / 1e6);
    }
    starts::measure(&cluster, &guest).await?;
    writes::measure(&cluster).await?;
    cluster.down().await
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
