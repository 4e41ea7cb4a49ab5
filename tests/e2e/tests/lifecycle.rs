//! What the cluster as a whole does to guests when it is ended in the ways it is meant to be ended.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drive::{ClientPod, Embedded, Guest, LIMIT, Snapshot, poll};
use e2e::manifest::Manifest;
use e2e::processes;
use libtest_mimic::Trial;

use crate::guests::{counter, no_gap, the_only_qemu};
use crate::{embedded, nothing_left};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        embedded("lifecycle_guests_outlive_the_cluster_and_down_leaves_nothing", outlives_and_down),
        embedded("lifecycle_interrupted_demonstration_leaves_nothing", interrupted),
    ]
}

async fn outlives_and_down() -> Result<()> {
    let before = Snapshot::take()?;
    let dir = std::path::PathBuf::from(format!("/tmp/fv-life-{}", std::process::id()));
    let mut cluster = Embedded::start(&e2e::program()?, &dir, 2, Some(&e2e::guest_dir()?)).await?;
    let mut guest = Guest::spawn(&cluster, Manifest::vm("outlives", "Always").on_node("n1").json()).await?;
    guest.wait_to_boot().await?;
    let qemu = the_only_qemu("outlives")?;

    cluster.terminate()?;
    let log = std::fs::read_to_string(dir.join("up.log")).unwrap_or_default();
    ensure!(log.contains("1 guest keeps running"), "the farewell does not tell of the guest:\n{log}");
    ensure!(qemu.alive(), "the guest did not outlive its cluster");

    cluster.up().await?;
    guest.reattach(&cluster)?;
    let client = ClientPod::start(&cluster, "n2").await?;
    let address = guest.address().await?;
    let first = poll("the counter", LIMIT, || async {
        counter(&cluster, &client, &address).await.map_err(|err| err.to_string())
    })
    .await?;
    guest.console.wait_for(&format!("tick {}", first + 3), 0, LIMIT).await?;
    no_gap(&guest.console.text())?;
    ensure!(the_only_qemu("outlives")? == qemu, "the guest was started anew");
    ensure!(guest.run_shell_command("echo still").await? == "still", "the guest does not answer");

    let output = cluster.command(&["down", "--data-dir"]).arg(&dir).output().context("cannot run down")?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "down failed: {said}");
    ensure!(said.contains("default/outlives has shut down"), "down does not tell of the guest:\n{said}");
    ensure!(processes::qemus_of("outlives").is_empty(), "the guest still runs");
    let again = cluster.command(&["down", "--purge", "--data-dir"]).arg(&dir).output().context("cannot run down")?;
    ensure!(again.status.success(), "a second down failed: {}", String::from_utf8_lossy(&again.stderr));
    drop(guest);
    drop(cluster);
    nothing_left(&before).await
}

/// Points of a demonstration: before the cluster is there, while it starts, while its guest boots.
const MOMENTS: &[Duration] = &[Duration::from_millis(500), Duration::from_millis(1500), Duration::from_secs(8)];

async fn interrupted() -> Result<()> {
    let before = Snapshot::take()?;
    for moment in MOMENTS {
        let mut demo = std::process::Command::new(e2e::program()?)
            .arg("demo")
            .arg("--guest")
            .arg(e2e::guest_dir()?)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .context("cannot start the demonstration")?;
        tokio::time::sleep(*moment).await;
        let process = hostfs::process::ProcessId::of(demo.id().cast_signed())?;
        process.signal(hostfs::process::Signal::INT)?;
        let status = demo.wait().context("cannot wait for the demonstration")?;
        ensure!(!status.success(), "an interrupted demonstration reports success");
        nothing_left(&before).await.with_context(|| format!("interrupted after {moment:?}"))?;
    }
    Ok(())
}
