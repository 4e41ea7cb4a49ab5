//! Whoever takes part in a migration is killed, at ten points of it, and while it is in post-copy.
//!
//! Afterwards exactly one guest runs, or none if it was its QEMU that died; the objects say what happened; the next
//! migration works; nothing is left behind. `make faults` plays all of them, on
//! Kubernetes `make kube-test ARGS=--all-faults`; `make test` plays a dozen.

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
use crate::victims::{self, CENTRAL, ON_NODES, Victim, snake};

/// The guest of most cases, and that of the cases in post-copy, which run beside them.
const MOVER: &str = "mover";
const AHEAD: &str = "mover-ahead";
/// Enough for a transfer of some seconds, so that every point of it can be met.
const BANDWIDTH: &str = "10Mi";

/// Who is struck, and on which side of the migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Struck {
    Source(Victim),
    Target(Victim),
    /// It belongs to no side.
    Central(Victim),
}

impl Struck {
    fn all() -> impl Iterator<Item = Self> {
        let sides = ON_NODES.into_iter().flat_map(|victim| [Self::Source(victim), Self::Target(victim)]);
        sides.chain(CENTRAL.into_iter().map(Self::Central))
    }

    fn victim(self) -> Victim {
        match self {
            Self::Source(victim) | Self::Target(victim) | Self::Central(victim) => victim,
        }
    }

    /// As names of scenarios have it.
    fn name(self) -> String {
        match self {
            Self::Source(victim) => format!("source_{}", snake(victim)),
            Self::Target(victim) => format!("target_{}", snake(victim)),
            Self::Central(victim) => snake(victim),
        }
    }
}

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

/// What is always played: each victim once, the switch-over from both sides, and both node agents in post-copy.
const ALWAYS: [(Struck, Point); 21] = [
    (Struck::Source(Victim::Launcher), Point::SwitchOver),
    (Struck::Source(Victim::Launcher), Point::Arrived),
    (Struck::Target(Victim::Launcher), Point::Half),
    (Struck::Source(Victim::Handler), Point::Half),
    (Struck::Target(Victim::Handler), Point::SwitchOver),
    (Struck::Central(Victim::Controller), Point::Scheduled),
    (Struck::Central(Victim::Controller), Point::Arrived),
    (Struck::Source(Victim::Libvirtd), Point::Half),
    (Struck::Target(Victim::Libvirtd), Point::Begun),
    (Struck::Source(Victim::Qemu), Point::Half),
    (Struck::Target(Victim::Qemu), Point::SwitchOver),
    (Struck::Source(Victim::Link), Point::Half),
    (Struck::Target(Victim::Link), Point::Half),
    (Struck::Source(Victim::Handler), Point::PostCopy),
    (Struck::Target(Victim::Handler), Point::PostCopy),
    (Struck::Central(Victim::Api), Point::Scheduling),
    (Struck::Central(Victim::Operator), Point::Scheduling),
    (Struck::Source(Victim::Kubelet), Point::Half),
    (Struck::Target(Victim::Kubelet), Point::Scheduling),
    (Struck::Source(Victim::Containerd), Point::Arrived),
    (Struck::Target(Victim::Containerd), Point::Scheduling),
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
    let all = Struck::all().flat_map(|struck| points.iter().map(move |point| (struck, *point)));
    let case = |(who, point): (Struck, Point)| {
        let name = format!("fault_{}_{}", who.name(), snake(point));
        let trial = victims::case(name, who.victim(), move || struck(who, point));
        trial.with_ignored_flag(!ALWAYS.contains(&(who, point)))
    };
    all.map(case).collect()
}

/// Whether the guest may die of it. Around the switch-over it depends on who was faster.
fn may_be_lost(struck: Struck, point: Point) -> bool {
    match struck {
        // In post-copy, what is on the other side is of no use alone.
        Struck::Source(Victim::Launcher | Victim::Qemu) => point <= Point::PostCopy,
        Struck::Target(Victim::Launcher | Victim::Qemu) => point >= Point::SwitchOver,
        // QEMU may answer the new libvirtd what the dead one had asked. libvirt 9.0 does not understand that, and ends QEMU.
        Struck::Target(Victim::Libvirtd) => point == Point::PostCopy,
        _ => false,
    }
}

async fn struck(who: Struck, point: Point) -> Result<()> {
    let mut cluster = cluster().await?;
    let _allowed = (point == Point::PostCopy).then(UserFaults::allow).transpose()?;
    let settings = match point {
        Point::PostCopy => postcopy::settings(),
        _ => json!({"bandwidthPerMigration": BANDWIDTH}),
    };
    let name = if point == Point::PostCopy { AHEAD } else { MOVER };
    policy(&cluster, "measured", name, settings).await?;
    let guest = guest(&cluster, name).await?;
    let outcome = case(&mut cluster, &guest, who, point).await;
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
async fn case(cluster: &mut Cluster, guest: &Guest, struck: Struck, point: Point) -> Result<bool> {
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
    strike(cluster, guest, &migration, struck, &source).await.with_context(|| format!("striking {struck:?}"))?;
    drop(narrow);
    let policies: Api<api::migrations::MigrationPolicy> = Api::all(cluster.client().await?);
    policies.delete("measured", &DeleteParams::default()).await.context("cannot delete the policy")?;

    let ended = over(cluster, &migration).await?;
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    let lives = verdict(cluster, guest, struck, point, &source, &ended).await?;
    if lives {
        let now = poll("the guest's counter to go on", LIMIT, || async {
            // A new console each time: the last one may have broken with whoever it went through.
            let again = Guest::attach(cluster, &guest.name).await.map_err(|err| err.to_string())?;
            let now = last_tick(&again).await.map_err(|err| err.to_string())?;
            if now > last { Ok(now) } else { Err(format!("it is at {now} and was at {last}")) }
        })
        .await?;
        println!("{struck:?} at {point:?}: {}, the guest counted on from {last} to {now}", phase(&ended));
        forget(cluster, "next").await?;
        // Somebody who judges it may still be on the way back.
        let again = || async { begin(cluster, guest, "next", json!({})).await.map_err(|err| format!("{err:#}")) };
        poll("the next migration to be accepted", LIMIT, again).await?;
        super::wait_for(cluster, "next", &["Succeeded"]).await.context("the next migration")?;
        tidy(cluster, guest).await?;
    } else {
        println!("{struck:?} at {point:?}: {}, and the guest died", phase(&ended));
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

/// Strikes whoever it is. A migration that ends first has been quicker.
async fn strike(cluster: &mut Cluster, guest: &Guest, migration: &str, struck: Struck, source: &str) -> Result<()> {
    let node = if matches!(struck, Struck::Target(_)) { other(source) } else { source };
    let api = migrations(cluster).await?;
    let over = async || Ok(api.get_opt(migration).await?.is_none_or(|one| is_over(&one)));
    victims::strike(cluster, struck.victim(), &guest.name, node, over).await
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
    struck: Struck,
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
    ensure!(lives || may_be_lost(struck, point), "the guest died, and nothing of it was struck");
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
