//! From the request to the guest's first user-space line, beside a bare libvirt start of the same guest.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use drive::demo::bare_start;
use drive::{BOOT_LIMIT, Embedded, FIRST_LINE, Guest};
use e2e::manifest::Manifest;

use crate::{median, memory};

/// Alternating pairs, so that a noisy minute hits both sides.
const ROUNDS: usize = 5;

pub(crate) async fn measure(cluster: &Embedded, guest_dir: &Path) -> Result<()> {
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    let mut around = None;
    for round in 0..ROUNDS {
        bare.push(bare_start(guest_dir).await?.total().as_secs_f64());
        let name = format!("bench-{round}");
        let started = Instant::now();
        let guest = Guest::spawn(cluster, Manifest::vm(&name, "Always").json()).await?;
        guest.console.wait_for(FIRST_LINE, 0, BOOT_LIMIT).await?;
        let arrival = guest.console.arrival(FIRST_LINE).context("the first line has no arrival")?;
        ours.push((arrival - started).as_secs_f64());
        guest.wait_to_boot().await?;
        around = Some(memory::around(&name)?);
        guest.delete().await?;
    }
    let (ours, bare) = (median(ours), median(bare));
    println!(
        "create → first user-space line   {ours:7.2} s    bare libvirt {bare:.2} s   ratio {:.2}   aim ≤ 1.25",
        ours / bare
    );
    if let Some(around) = around {
        println!("memory of one VM beside QEMU     {:7.1} MiB  aim ≤ 50", around.megabytes() * 1e6 / 1_048_576.0);
        for (name, bytes) in around.parts() {
            println!("  {name:30} {:7.1} MiB", bytes as f64 / 1_048_576.0);
        }
    }
    Ok(())
}
