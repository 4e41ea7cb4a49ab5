//! `make kube-demo`: a real cluster, our images, an installation, a VM that boots and moves, and nothing left.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use drive::Snapshot;
use e2e::kubernetes::{Kubernetes, quickstart};

fn main() -> ExitCode {
    match demonstrate() {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("error: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn demonstrate() -> Result<()> {
    let before = Snapshot::take_with_nodes()?;
    let cluster = Kubernetes::bare(&e2e::program()?)?.context("there is no cluster to show anything on")?;
    quickstart::run(&cluster, true)?.context("KubeVirt's virtctl is missing")?;
    drop(cluster);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot wait")?;
    runtime.block_on(before.nothing_left(Duration::from_secs(60)))?;
    println!("nothing is left: no process, mount, link, nft table, cgroup, directory");
    Ok(())
}
