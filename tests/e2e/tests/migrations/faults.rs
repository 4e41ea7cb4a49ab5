//! Whoever takes part in a migration is killed, at ten points of it, and while it is in post-copy.
//!
//! Afterwards exactly one guest runs, or none if it was its QEMU that died; the objects say what happened; the next
//! migration works; nothing is left behind. `make faults` plays all of them, `make test` a dozen.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use api::v1::VirtualMachineInstanceMigration;
use drive::{Access, Guest, LIMIT, poll};
use e2e::cluster::Cluster;
use e2e::launchers::{self, Lookout};
use e2e::processes;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams};
use launcher_contract::migration::MigrationPhase;
use libtest_mimic::Trial;
use serde_json::json;

use super::postcopy::{self, UserFaults};
use super::{MOVE_LIMIT, begin, cluster, migrations, movable, other, phase, policy};
use crate::trial;

/// The guest of most cases, and that of the cases in post-copy, which run beside them.
const MOVER: &str = "mover";
const AHEAD: &str = "mover-ahead";
/// Enough for a transfer of some seconds, so that every point of it can be met.
const BANDWIDTH: &str = "10Mi";
/// Longer than the proxies wait for a peer that says nothing.
pub(super) const CUT_FOR: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    SourceLauncher,
    TargetLauncher,
    SourceHandler,
    TargetHandler,
    /// With the API server: they are one process in the embedded shape.
    Controller,
    SourceLibvirtd,
    TargetLibvirtd,
    SourceQemu,
    TargetQemu,
    /// Nobody dies, but the target's node hears nothing and is not heard for a while.
    Link,
}

const VICTIMS: [Victim; 10] = [
    Victim::SourceLauncher,
    Victim::TargetLauncher,
    Victim::SourceHandler,
    Victim::TargetHandler,
    Victim::Controller,
    Victim::SourceLibvirtd,
    Victim::TargetLibvirtd,
    Victim::SourceQemu,
    Victim::TargetQemu,
    Victim::Link,
];

/// In the order in which a migration passes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Asked,
    Scheduling,
    Scheduled,
    Preparing,
    Ready,
    Begun,
    Half,
    SwitchOver,
    /// Not on the way of the others: the guest runs at the target, and the rest of its memory is at the source.
    PostCopy,
    Arrived,
    Over,
}

const POINTS: [Point; 10] = [
    Point::Asked,
    Point::Scheduling,
    Point::Scheduled,
    Point::Preparing,
    Point::Ready,
    Point::Begun,
    Point::Half,
    Point::SwitchOver,
    Point::Arrived,
    Point::Over,
];

/// What `make test` plays: each victim once, the switch-over from both sides, and both node agents in post-copy.
const ALWAYS: [(Victim, Point); 14] = [
    (Victim::SourceLauncher, Point::SwitchOver),
    (Victim::SourceLauncher, Point::Arrived),
    (Victim::TargetLauncher, Point::Half),
    (Victim::SourceHandler, Point::Half),
    (Victim::TargetHandler, Point::SwitchOver),
    (Victim::Controller, Point::Scheduled),
    (Victim::Controller, Point::Arrived),
    (Victim::SourceLibvirtd, Point::Half),
    (Victim::TargetLibvirtd, Point::Begun),
    (Victim::SourceQemu, Point::Half),
    (Victim::TargetQemu, Point::SwitchOver),
    (Victim::Link, Point::Half),
    (Victim::SourceHandler, Point::PostCopy),
    (Victim::TargetHandler, Point::PostCopy),
];

/// The cases at the ten points that every migration passes.
pub(super) fn trials() -> Vec<Trial> {
    cases(&POINTS)
}

/// The cases in post-copy.
pub(super) fn post_copy_trials() -> Vec<Trial> {
    cases(&[Point::PostCopy])
}

fn cases(points: &[Point]) -> Vec<Trial> {
    let all = VICTIMS.into_iter().flat_map(|victim| points.iter().map(move |point| (victim, *point)));
    let case = |(victim, point)| {
        let name = format!("fault_{}_{}", snake(victim), snake(point));
        trial(name, move || struck(victim, point)).with_ignored_flag(!ALWAYS.contains(&(victim, point)))
    };
    all.map(case).collect()
}

fn snake(word: impl fmt::Debug) -> String {
    let mut text = String::new();
    for letter in format!("{word:?}").chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(letter.to_lowercase());
    }
    text
}

/// Whether the guest may die of it. Around the switch-over it depends on who was faster.
fn may_be_lost(victim: Victim, point: Point) -> bool {
    use Victim::{SourceLauncher, SourceQemu, TargetLauncher, TargetQemu};
    match victim {
        // What is on the other side is of no use alone.
        SourceLauncher | SourceQemu | TargetLauncher | TargetQemu if point == Point::PostCopy => true,
        Victim::SourceLauncher | Victim::SourceQemu => point <= Point::SwitchOver,
        Victim::TargetLauncher | Victim::TargetQemu => point >= Point::SwitchOver,
        _ => false,
    }
}

async fn struck(victim: Victim, point: Point) -> Result<()> {
    let mut cluster = cluster().await?;
    let _allowed = (point == Point::PostCopy).then(UserFaults::allow).transpose()?;
    let settings = match point {
        Point::PostCopy => postcopy::settings(),
        _ => json!({"bandwidthPerMigration": BANDWIDTH}),
    };
    let name = if point == Point::PostCopy { AHEAD } else { MOVER };
    policy(&cluster, "measured", name, settings).await?;
    let guest = guest(&cluster, name).await?;
    let outcome = case(&mut cluster, &guest, victim, point).await;
    // Whatever it did to the guest, the next case is to find a good one.
    if !matches!(outcome, Ok(true)) {
        guest.delete().await?;
    }
    outcome.map(drop)
}

/// The guest of the case before, if that left it well, or else a new one.
async fn guest(cluster: &Access, name: &str) -> Result<Guest> {
    let vmis: Api<api::v1::VirtualMachineInstance> = Api::default_namespaced(cluster.client().await?);
    match vmis.get_opt(name).await? {
        Some(_) => Guest::attach(cluster, name).await,
        None => {
            let manifest = e2e::manifest::Manifest::vm(name, "Always").empty_disk("16Mi").instance();
            movable(cluster, &manifest).await
        }
    }
}

/// Says whether the guest has lived through it.
async fn case(cluster: &mut Cluster, guest: &Guest, victim: Victim, point: Point) -> Result<bool> {
    let migration = "fault".to_owned();
    forget(cluster, &migration).await?;
    let vmi = guest.instance().await?.context("the guest is gone")?;
    let uid = vmi.metadata.uid.context("the instance has no UID")?;
    let source = guest.node().await?;
    let last = last_tick(guest).await?;
    let lookout = Lookout::post(cluster, &uid);

    let narrow = (point == Point::PostCopy).then(|| cluster.narrow(other(&source))).transpose()?;
    begin(cluster, guest, &migration, json!({})).await?;
    reach(cluster, guest, &migration, point, &source).await.with_context(|| format!("on the way to {point:?}"))?;
    strike(cluster, guest, &migration, victim, &source).await.with_context(|| format!("striking {victim:?}"))?;
    drop(narrow);
    let policies: Api<api::migrations::MigrationPolicy> = Api::all(cluster.client().await?);
    policies.delete("measured", &DeleteParams::default()).await.context("cannot delete the policy")?;

    let ended = over(cluster, &migration).await?;
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    let lives = verdict(cluster, guest, victim, point, &source, &ended).await?;
    if lives {
        let now = poll("the guest's counter to go on", LIMIT, || async {
            // A new console each time: the last one may have broken with whoever it went through.
            let again = Guest::attach(cluster, &guest.name).await.map_err(|err| err.to_string())?;
            let now = last_tick(&again).await.map_err(|err| err.to_string())?;
            if now > last { Ok(now) } else { Err(format!("it is at {now} and was at {last}")) }
        })
        .await?;
        println!("{victim:?} at {point:?}: {}, the guest counted on from {last} to {now}", phase(&ended));
        forget(cluster, "next").await?;
        begin(cluster, guest, "next", json!({})).await?;
        super::wait_for(cluster, "next", &["Succeeded"]).await.context("the next migration")?;
        tidy(cluster, guest).await?;
    } else {
        println!("{victim:?} at {point:?}: {}, and the guest died", phase(&ended));
    }
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    Ok(lives)
}

/// Takes a finished migration of this name away.
async fn forget(cluster: &Access, name: &str) -> Result<()> {
    let api = migrations(cluster).await?;
    if api.get_opt(name).await?.is_some() {
        api.delete(name, &DeleteParams::default()).await.context("cannot delete an old migration")?;
    }
    poll(&format!("the end of an old {name}"), LIMIT, || async {
        match api.get_opt(name).await.map_err(|err| err.to_string())? {
            None => Ok(()),
            Some(migration) => Err(format!("it is {}", phase(&migration))),
        }
    })
    .await
}

async fn last_tick(guest: &Guest) -> Result<u64> {
    let number = guest.console.wait_for("tick ", 0, drive::BOOT_LIMIT).await?;
    guest.console.wait_for("\n", number, LIMIT).await?;
    let text = guest.console.text();
    let tick = |line: &str| line.trim().strip_prefix("tick ")?.split(' ').next()?.parse().ok();
    text.lines().filter_map(tick).next_back().context("the guest does not count")
}

/// Waits for a point; one that is passed in a moment is as good as the next one.
async fn reach(cluster: &Access, guest: &Guest, migration: &str, point: Point, source: &str) -> Result<()> {
    let later = |phases: &'static [&'static str]| super::wait_for(cluster, migration, phases);
    const PHASES: &[&str] = &["Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"];
    match point {
        Point::Asked => Ok(()),
        Point::Scheduling => later(PHASES).await.map(drop),
        Point::Scheduled => later(&PHASES[1..]).await.map(drop),
        Point::Preparing => later(&PHASES[2..]).await.map(drop),
        Point::Ready => later(&PHASES[3..]).await.map(drop),
        Point::Begun => later(&PHASES[4..]).await.map(drop),
        Point::Half | Point::SwitchOver => under_way(cluster, guest, migration, point, source).await,
        Point::PostCopy => postcopy::ahead(cluster, guest, migration).await,
        Point::Arrived => {
            let wanted = migrations(cluster).await?.get(migration).await?.metadata.uid;
            let arrived = guest.wait_for_instance("to have arrived", MOVE_LIMIT, |instance| {
                let state = instance.and_then(|one| one.status.as_ref()?.migration_state.as_ref());
                let state = state.filter(|state| state.migration_uid == wanted);
                let ready = state.is_some_and(|state| state.target_node_domain_ready_timestamp.is_some());
                if ready { Ok(()) } else { Err("it has not".to_owned()) }
            });
            arrived.await
        }
        Point::Over => later(&PHASES[5..]).await.map(drop),
    }
}

/// Follows the source's launcher, which knows before the API does.
async fn under_way(cluster: &Access, guest: &Guest, migration: &str, point: Point, source: &str) -> Result<()> {
    let started = Instant::now();
    let wanted = migrations(cluster).await?.get(migration).await?.metadata.uid;
    let pod = loop {
        let instance = guest.instance().await?.context("the instance is gone")?;
        let state = instance.status.and_then(|status| status.migration_state);
        match state.filter(|state| state.migration_uid == wanted).and_then(|state| state.source_pod) {
            Some(name) => break name,
            None => ensure!(started.elapsed() < MOVE_LIMIT, "it was not handed off"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    let uid = pods.get(&pod).await?.metadata.uid.context("the source Pod has no UID")?;
    loop {
        let state = launchers::state(cluster, source, &uid).await.and_then(|state| state.migration);
        if let Some(state) = state.filter(|state| Some(&state.uid) == wanted.as_ref()) {
            let progress = &state.progress;
            let half = progress.data_total > 0 && progress.data_remaining * 2 <= progress.data_total;
            let moved_on = !matches!(state.phase, MigrationPhase::Transferring | MigrationPhase::Unknown);
            if moved_on || (half && point == Point::Half) {
                return Ok(());
            }
        }
        ensure!(started.elapsed() < MOVE_LIMIT, "it did not get to {point:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Kills the victim, as soon as there is one. A migration that ends first has been quicker.
async fn strike(cluster: &mut Cluster, guest: &Guest, migration: &str, victim: Victim, source: &str) -> Result<()> {
    let target = other(source);
    match victim {
        Victim::Controller => return cluster.kill_controller().await,
        Victim::SourceHandler => return cluster.kill_agent(source),
        Victim::TargetHandler => return cluster.kill_agent(target),
        Victim::Link => {
            cluster.cut(target)?;
            tokio::time::sleep(CUT_FOR).await;
            return cluster.join(target);
        }
        _ => {}
    }
    let api = migrations(cluster).await?;
    let started = Instant::now();
    loop {
        let node = match victim {
            Victim::SourceLauncher | Victim::SourceLibvirtd | Victim::SourceQemu => source,
            _ => target,
        };
        let launcher = launchers::process_on(cluster, &guest.name, node);
        let found = launcher.and_then(|launcher| match victim {
            Victim::SourceLibvirtd | Victim::TargetLibvirtd => launchers::libvirtd_of(&launcher),
            Victim::SourceQemu | Victim::TargetQemu => launchers::qemu_of(&launcher),
            _ => Some(launcher),
        });
        if let Some(process) = found {
            println!("killing {victim:?}, process {}", process.pid);
            return processes::kill(&process);
        }
        let ended = api.get_opt(migration).await?.is_none_or(|one| is_over(&one));
        if ended {
            return Ok(());
        }
        ensure!(started.elapsed() < MOVE_LIMIT, "there is none to be killed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn is_over(migration: &VirtualMachineInstanceMigration) -> bool {
    ["Succeeded", "Failed"].contains(&phase(migration).as_str())
}

/// Waits until the migration has ended, without anybody's help.
async fn over(cluster: &Access, migration: &str) -> Result<VirtualMachineInstanceMigration> {
    let api = migrations(cluster).await?;
    poll("the migration's end", MOVE_LIMIT, || async {
        let migration = api.get(migration).await.map_err(|err| err.to_string())?;
        if is_over(&migration) { Ok(migration) } else { Err(format!("it is {}", phase(&migration))) }
    })
    .await
}

/// What became of the guest, and whether the objects say so.
async fn verdict(
    cluster: &Access,
    guest: &Guest,
    victim: Victim,
    point: Point,
    source: &str,
    migration: &VirtualMachineInstanceMigration,
) -> Result<bool> {
    // Where a guest that lives belongs. All of it is asked in one go: the launcher of a QEMU that was just killed may
    // still say that it runs, and the instance that it is there.
    let home = if phase(migration) == "Succeeded" { other(source) } else { source };
    let lives = poll("the guest to be running where it belongs, or to have ended", LIMIT, || async {
        let instance = guest.instance().await.map_err(|err| format!("{err:#}"))?.ok_or("it is gone")?;
        let node = instance.status.as_ref().and_then(|status| status.node_name.clone()).unwrap_or_default();
        // A QEMU that stands still in post-copy is not a guest that lives.
        let running = launchers::running(cluster, instance.metadata.uid.as_deref().unwrap_or_default()).await;
        let launcher = launchers::process_on(cluster, &guest.name, &node);
        let qemu = launcher.and_then(|launcher| launchers::qemu_of(&launcher));
        let qemus = processes::qemus_of(&guest.name);
        match (instance.is_final(), qemus.as_slice(), running.as_slice()) {
            (true, [], []) => Ok(false),
            (false, [only], [_]) if instance.is_running() && qemu == Some(*only) && node == home => Ok(true),
            (over, ..) => Err(format!(
                "{} to {home}: the instance is on {node}, ended: {over}, QEMUs: {qemus:?}, there: {qemu:?}, \
                 running: {running:?}",
                phase(migration)
            )),
        }
    })
    .await?;
    ensure!(lives || may_be_lost(victim, point), "the guest died, and nothing of it was struck");
    if phase(migration) == "Failed" {
        let state = migration.status.clone().and_then(|status| status.migration_state).unwrap_or_default();
        let why = state.failure_reason.unwrap_or_default();
        ensure!(!why.is_empty(), "the migration failed and does not say why");
        println!("it failed: {why}");
    }
    Ok(lives)
}

/// One Pod, one launcher, one libvirtd: what was made for the migration is gone.
pub(super) async fn tidy(cluster: &Access, guest: &Guest) -> Result<()> {
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    poll("everything else to be gone", LIMIT, || async {
        let all = pods.list(&ListParams::default().labels("kubevirt.io=virt-launcher")).await;
        let all = all.map_err(|err| err.to_string())?.items;
        let alive = all.iter().filter(|pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            let named = pod.metadata.annotations.as_ref().and_then(|all| all.get("kubevirt.io/domain"));
            named == Some(&guest.name) && !["Succeeded", "Failed"].contains(&phase.unwrap_or_default())
        });
        let launchers = processes::find("virt-launcher", &format!("--name\0{}\0", guest.name)).len();
        match (alive.count(), launchers, processes::qemus_of(&guest.name).len()) {
            (1, 1, 1) => Ok(()),
            (pods, launchers, qemus) => Err(format!("{pods} Pods, {launchers} launchers, {qemus} QEMUs")),
        }
    })
    .await
}
