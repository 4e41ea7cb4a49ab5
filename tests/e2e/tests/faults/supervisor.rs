//! `ferrovirt up` killed with -9 at points of a start and of a stop, and started again.
//!
//! Whatever the point: the guest runs exactly once, its counter goes on, and the object tells the truth.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use drive::{Embedded, Guest, LIMIT, poll};
use e2e::manifest::Manifest;
use e2e::processes;
use libtest_mimic::Trial;

use super::points::{Point, reach};
use crate::embedded;
use crate::guests::{no_gap, the_only_qemu, virtctl};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        embedded("faults_supervisor_killed_at_six_points_of_a_start", killed_while_starting),
        embedded("faults_supervisor_killed_at_six_points_of_a_stop", killed_while_stopping),
    ]
}

const START: [Point; 6] =
    [Point::Stored, Point::InstanceExists, Point::PodExists, Point::LauncherRuns, Point::HandedOver, Point::GuestRuns];

const STOP: [Point; 6] = [
    Point::StopAsked,
    Point::InstanceDeleted,
    Point::PodDeleted,
    Point::InstanceFinal,
    Point::PodGone,
    Point::InstanceGone,
];

async fn killed_while_starting() -> Result<()> {
    let mut cluster = one_node("start").await?;
    for (index, point) in START.into_iter().enumerate() {
        start_round(&mut cluster, index, point).await.with_context(|| format!("killed at {point:?}"))?;
    }
    cluster.down().await
}

async fn start_round(cluster: &mut Embedded, index: usize, point: Point) -> Result<()> {
    let name = format!("start-{index}");
    let manifest = Manifest::vm(&name, "Always");
    let guest = Guest::spawn(cluster, manifest.json()).await?;
    reach(cluster, &name, point).await?;
    drop(guest);
    cluster.kill()?;
    let before = processes::qemus_of(&name);
    cluster.up().await?;
    let mut guest = Guest::attach(cluster, &name).await?;
    guest.wait_for_phase("Running", LIMIT).await?;
    let qemu = the_only_qemu(&name)?;
    ensure!(before.iter().all(|old| *old == qemu), "the guest was started twice");
    guest.console.wait_for("tick 3 ", 0, drive::BOOT_LIMIT).await?;
    ensure!(guest.run_shell_command("echo there").await? == "there", "the guest does not answer");
    no_gap(&guest.console.text())?;
    ensure!(the_only_qemu(&name)? == qemu, "the guest was started anew");
    guest.delete().await
}

async fn killed_while_stopping() -> Result<()> {
    let mut cluster = one_node("stop").await?;
    let guest = Guest::spawn(&cluster, Manifest::vm("stops", "Always").json()).await?;
    guest.wait_to_boot().await?;
    drop(guest);
    for point in STOP {
        stop_round(&mut cluster, point).await.with_context(|| format!("killed at {point:?}"))?;
    }
    cluster.down().await
}

async fn stop_round(cluster: &mut Embedded, point: Point) -> Result<()> {
    virtctl(cluster, &["stop", "stops"])?;
    reach(cluster, "stops", point).await?;
    cluster.kill()?;
    cluster.up().await?;
    let guest = Guest::attach(cluster, "stops").await?;
    guest.wait_for_status("Stopped", LIMIT).await?;
    poll("the end of QEMU", Duration::from_secs(5), || async {
        match processes::qemus_of("stops").len() {
            0 => Ok(()),
            left => Err(format!("{left} still run")),
        }
    })
    .await?;
    guest
        .wait_for_instance("no instance", LIMIT, |instance| match instance {
            None => Ok(()),
            Some(_) => Err("a stopped VM still has one".to_owned()),
        })
        .await?;
    virtctl(cluster, &["start", "stops"])?;
    guest.wait_for_phase("Running", LIMIT).await?;
    the_only_qemu("stops")?;
    // The last console wins: the one that waited for this start must not take it from the one that reads it.
    drop(guest);
    let again = Guest::attach(cluster, "stops").await?;
    again.console.wait_for("tick 2 ", 0, drive::BOOT_LIMIT).await.map(|_| ())
}

async fn one_node(tag: &str) -> Result<Embedded> {
    let dir = std::path::PathBuf::from(format!("/tmp/fv-{tag}-{}", std::process::id()));
    Embedded::start(&e2e::program()?, &dir, 1, Some(&e2e::guest_dir()?)).await
}
