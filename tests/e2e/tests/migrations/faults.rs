//! Whoever takes part in a migration is killed. Afterwards the guest runs exactly once, and the next migration works.

use anyhow::{Context as _, Result, ensure};
use e2e::processes;
use ferrovirt::cluster::record::Record;
use ferrovirt::drive::{Embedded, Guest, LIMIT, poll};
use hostfs::process::ProcessId;
use libtest_mimic::Trial;
use serde_json::json;

use super::{alone, begin, busy, cluster, migrate, migrations, movable, other, phase, slow_down, speed_up, wait_for};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("migration_survives_the_death_of_its_controller", || killed("controller", Victim::Supervisor)),
        trial("migration_survives_the_death_of_the_source_handler", || killed("source-handler", Victim::SourceNode)),
        trial("migration_survives_the_death_of_the_target_handler", || killed("target-handler", Victim::TargetNode)),
        trial("migration_whose_target_dies_leaves_the_guest_where_it_was", || killed("target", Victim::TargetLauncher)),
        trial("migration_whose_source_dies_ends_and_the_guest_is_started_again", || {
            killed("source", Victim::SourceLauncher)
        }),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Supervisor,
    SourceNode,
    TargetNode,
    SourceLauncher,
    TargetLauncher,
}

/// Where in a migration the victim dies.
const POINTS: [&str; 2] = ["Scheduling", "Running"];

async fn killed(name: &'static str, victim: Victim) -> Result<()> {
    let mut cluster = cluster().await?;
    slow_down(&cluster, name).await?;
    let mut guest = movable(&cluster, &busy(name)).await?;
    for point in POINTS {
        let round = round(&mut cluster, &mut guest, victim, point).await;
        round.with_context(|| format!("{victim:?} killed in phase {point}"))?;
    }
    speed_up(&cluster, name).await?;
    migrate(&cluster, &guest).await.context("the next migration")?;
    guest.delete().await
}

async fn round(cluster: &mut Embedded, guest: &mut Guest, victim: Victim, point: &str) -> Result<()> {
    let migration = format!("{}-{}", guest.name, point.to_lowercase());
    let source = guest.node().await?;
    let before = processes::qemus_of(&guest.name);
    begin(cluster, guest, &migration, json!({})).await?;
    // A point that is passed quickly is as good as the next one.
    wait_for(cluster, &migration, &[point, "Scheduled", "PreparingTarget", "TargetReady", "Running"]).await?;
    match victim {
        Victim::Supervisor => {
            cluster.kill()?;
            cluster.up().await?;
        }
        Victim::SourceNode => kill_node(cluster, &source)?,
        Victim::TargetNode => kill_node(cluster, other(&source))?,
        Victim::SourceLauncher => kill_launcher(cluster, &guest.name, &source)?,
        Victim::TargetLauncher => kill_launcher(cluster, &guest.name, other(&source))?,
    }
    settle(cluster, &guest.name, &migration).await?;
    guest.wait_for_phase("Running", LIMIT).await?;
    alone(guest).await?;
    let after = crate::guests::the_only_qemu(&guest.name)?;
    if victim != Victim::SourceLauncher {
        ensure!(before.contains(&after) || guest.node().await? != source, "the guest was started anew");
    }
    guest.reattach(cluster)?;
    guest.console.wait_for("tick ", 0, ferrovirt::drive::BOOT_LIMIT).await?;
    Ok(())
}

/// The migration ends, by itself or because it is given up now.
async fn settle(cluster: &Embedded, name: &str, migration: &str) -> Result<()> {
    let api = migrations(cluster).await?;
    let over = |migration: Option<api::v1::VirtualMachineInstanceMigration>| match migration {
        None => Ok(()),
        Some(migration) if ["Succeeded", "Failed"].contains(&phase(&migration).as_str()) => Ok(()),
        Some(migration) => Err(format!("it is {}", phase(&migration))),
    };
    let by_itself = poll("the end", std::time::Duration::from_secs(15), || async {
        over(api.get_opt(migration).await.map_err(|err| err.to_string())?)
    });
    if by_itself.await.is_err() {
        super::command(cluster, &["virtctl", "migrate-cancel", name]).await?;
    }
    poll(&format!("the end of migration {migration}"), LIMIT, || async {
        over(api.get_opt(migration).await.map_err(|err| err.to_string())?)
    })
    .await
}

fn kill_node(cluster: &Embedded, node: &str) -> Result<()> {
    let record = Record::load(cluster.layout())?.context("the cluster has no record")?;
    let process = record.nodes.into_iter().find(|one| one.name == node).and_then(|node| node.process);
    processes::kill(&process.with_context(|| format!("node {node} has no process"))?)
}

/// Kills the launcher of a guest on a node, if there is one yet.
fn kill_launcher(cluster: &Embedded, name: &str, node: &str) -> Result<()> {
    let pods = cluster.layout().pods(node);
    let here = |process: &ProcessId| {
        let root = std::fs::read_link(format!("/proc/{}/cwd", process.pid)).unwrap_or_default();
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", process.pid)).unwrap_or_default();
        root.starts_with(&pods) || mounts.contains(&pods.to_string_lossy().into_owned())
    };
    let launchers = processes::find("virt-launcher", name);
    match launchers.into_iter().find(here) {
        Some(launcher) => processes::kill(&launcher),
        None => Ok(()),
    }
}
