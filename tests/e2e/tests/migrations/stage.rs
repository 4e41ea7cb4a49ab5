//! What several scenarios use one after the other: to boot a guest under emulation takes longer than to move it.

use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use api::v1::VirtualMachine;
use drive::{Access, Guest, LIMIT, poll};
use e2e::manifest::Manifest;
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

use super::{alone, command, migrations, movable, phase, set_cordon};

/// As many as the drain of a node is tried with.
const CROWD: usize = 8;
/// More would only boot each other out of time.
const AT_ONCE: usize = 4;
const RESTLESS: &str = "restless";

#[derive(Default)]
struct Stage {
    restless: Option<Guest>,
    crowd: Vec<Guest>,
}

static STAGE: OnceLock<Mutex<Stage>> = OnceLock::new();

async fn stage() -> MutexGuard<'static, Stage> {
    STAGE.get_or_init(Mutex::default).lock().await
}

/// A guest that changes its memory all the time: by default quickly enough that a slow link does not keep up with it,
/// and slowly enough that an unlimited one does.
pub(super) async fn restless(cluster: &Access) -> Result<MappedMutexGuard<'static, Guest>> {
    let mut stage = stage().await;
    send_home(&mut stage.crowd).await?;
    // One that an earlier scenario has broken is not to fail the next one, too.
    let usable = match &mut stage.restless {
        Some(guest) => runs(guest).await? && count(cluster, guest).await.is_ok(),
        None => false,
    };
    if !usable {
        if let Some(broken) = stage.restless.take() {
            broken.delete().await?;
        }
        let manifest = Manifest::vm(RESTLESS, "Always").kernel_args("dirty=48 rate=16 spin=2000");
        let manifest = manifest.eviction_strategy("LiveMigrate").template_label("tier", "test");
        stage.restless = Some(movable(cluster, &manifest).await?);
    }
    Ok(MutexGuard::map(stage, |stage| stage.restless.as_mut().expect("it was just made")))
}

type Crowd = MappedMutexGuard<'static, Vec<Guest>>;

/// Small guests that can be moved, all on one node, which is the second word.
pub(super) async fn crowd(cluster: &Access) -> Result<(Crowd, String)> {
    let guests = scattered(cluster).await?;
    let node = gather(cluster, &guests).await?;
    for guest in guests.iter() {
        alone(guest).await?;
    }
    Ok((guests, node))
}

/// The same, wherever they are.
pub(super) async fn scattered(cluster: &Access) -> Result<Crowd> {
    let mut stage = stage().await;
    if let Some(restless) = stage.restless.take() {
        restless.delete().await?;
    }
    let mut usable = stage.crowd.len() == CROWD;
    for guest in &stage.crowd {
        usable = usable && runs(guest).await?;
    }
    if !usable {
        send_home(&mut stage.crowd).await?;
        set_cordon(cluster, "n2", true).await?;
        let manifests: Vec<Manifest> = (1..=CROWD).map(|number| one_of_many(&format!("g{number}"))).collect();
        let boots = manifests.iter().map(|manifest| movable(cluster, manifest));
        let started: Result<Vec<Guest>> = futures::stream::iter(boots).buffered(AT_ONCE).try_collect().await;
        set_cordon(cluster, "n2", false).await?;
        stage.crowd = started?;
    }
    Ok(MutexGuard::map(stage, |stage| &mut stage.crowd))
}

fn one_of_many(name: &str) -> Manifest {
    Manifest::vm(name, "Always").memory("128Mi").eviction_strategy("LiveMigrate").template_label("tier", "crowd")
}

/// Brings all of them to one node.
async fn gather(cluster: &Access, guests: &[Guest]) -> Result<String> {
    let nodes = try_join_all(guests.iter().map(Guest::node)).await?;
    let first = nodes.first().context("the crowd is empty")?.clone();
    if nodes.iter().any(|node| *node != first) {
        let away = super::other(&first);
        command(cluster, &["drain", away]).await.context("bringing the guests together")?;
        command(cluster, &["uncordon", away]).await?;
    }
    Ok(first)
}

async fn runs(guest: &Guest) -> Result<bool> {
    let phase = guest.instance().await?.and_then(|instance| instance.phase().map(ToString::to_string));
    Ok(phase.as_deref() == Some("Running"))
}

async fn send_home(guests: &mut Vec<Guest>) -> Result<()> {
    try_join_all(guests.iter().map(Guest::delete)).await?;
    guests.clear();
    Ok(())
}

/// Takes away what a scenario that failed has left to the next one: migrations, guests of its own, client Pods.
pub(super) async fn clear(cluster: &Access) -> Result<()> {
    let mut stage = stage().await;
    let api = migrations(cluster).await?;
    let unfinished = |all: Vec<api::v1::VirtualMachineInstanceMigration>| {
        all.into_iter().filter(|one| !["Succeeded", "Failed"].contains(&phase(one).as_str())).collect::<Vec<_>>()
    };
    for one in unfinished(api.list(&ListParams::default()).await?.items) {
        api.delete(&one.name_any(), &DeleteParams::default()).await.context("cannot delete a migration")?;
    }
    poll("the end of earlier migrations", LIMIT, || async {
        let left = unfinished(api.list(&ListParams::default()).await.map_err(|err| err.to_string())?.items);
        if left.is_empty() { Ok(()) } else { Err(format!("{} is {}", left[0].name_any(), phase(&left[0]))) }
    })
    .await?;
    let vms: Api<VirtualMachine> = Api::default_namespaced(cluster.client().await?);
    let found = vms.list(&ListParams::default()).await.context("cannot list VMs")?.items;
    let names: Vec<String> = found.iter().map(|vm| vm.name_any()).collect();
    if stage.restless.is_some() && !names.iter().any(|name| name == RESTLESS) {
        stage.restless = None;
    }
    if stage.crowd.iter().any(|guest| !names.contains(&guest.name)) {
        send_home(&mut stage.crowd).await?;
    }
    let ours = |name: &String| stage.crowd.iter().chain(&stage.restless).any(|guest| guest.name == *name);
    for name in names.iter().filter(|name| !ours(name)) {
        Guest::attach(cluster, name).await?.delete().await?;
    }
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    for pod in pods.list(&ListParams::default()).await.context("cannot list Pods")?.items {
        if pod.name_any().starts_with("client-") && pod.metadata.deletion_timestamp.is_none() {
            pods.delete(&pod.name_any(), &DeleteParams::default()).await.context("cannot delete a client Pod")?;
        }
    }
    Ok(())
}

/// Lets go of the guests, whose consoles are processes of their own. Their cluster takes them away.
pub(super) async fn take_away() {
    *stage().await = Stage::default();
}

/// The newest number that a guest has shown on its console, after everything that it showed before.
pub(super) async fn count(cluster: &Access, guest: &mut Guest) -> Result<u64> {
    guest.reattach(cluster)?;
    let end = guest.console.wait_for("tick ", 0, LIMIT).await?;
    guest.console.wait_for("\n", end, LIMIT).await?;
    let text = guest.console.text();
    let number = text.get(end..).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()).unwrap_or_default();
    number.parse().with_context(|| format!("no number after `tick `: {text}"))
}

/// The guest has gone on counting: it is the one that it was before.
pub(super) async fn went_on(cluster: &Access, guest: &mut Guest, before: u64) -> Result<()> {
    let now = count(cluster, guest).await?;
    ensure!(now >= before, "{} counts {now} after {before}: it was started again", guest.name);
    Ok(())
}
