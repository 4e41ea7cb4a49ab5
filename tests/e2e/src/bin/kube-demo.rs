//! `make kube-demo`: a real cluster, our images, an installation, a VM that boots and moves, and nothing left.

use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use drive::{Snapshot, leftovers};
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
    let before = Snapshot::take()?;
    let cluster = Kubernetes::bare(&e2e::program()?)?.context("there is no cluster to show anything on")?;
    quickstart::run(&cluster, true)?.context("KubeVirt's virtctl is missing")?;
    drop(cluster);
    let left = leftovers(&before, &Snapshot::take()?);
    ensure!(left.is_empty(), "something is left: {}", left.join(", "));
    println!("nothing is left: no process, mount, link, nft table, cgroup");
    Ok(())
}
