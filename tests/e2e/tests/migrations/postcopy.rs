//! Post-copy that does not go as planned: the guest runs at the target while the rest of its memory is at the source.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::v1::{MigrationMode, VirtualMachineInstance};
use drive::{Access, BOOT_LIMIT, Guest, LIMIT, poll};
use e2e::launchers::{self, Lookout};
use e2e::processes;
use kube::api::{Api, DeleteParams};
use launcher_contract::types::DomainReason;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use super::faults::tidy;
use super::stage::{count, restless, went_on};
use super::{MOVE_LIMIT, alone, begin, cluster, migrate, migrations, other, policy, state, wait_for};
use crate::trial;
use crate::victims::CUT_FOR;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("post_copy_goes_on_after_the_link_was_cut", link_cut),
        trial("post_copy_whose_source_dies_ends_the_guest_and_its_machine_starts_anew", source_dies),
    ]
}

/// Soon, and at a rate that leaves the time to be disturbed.
pub(super) fn settings() -> Value {
    json!({"bandwidthPerMigration": "12Mi", "completionTimeoutPerGiB": 3, "allowPostCopy": true})
}

/// The policy of these scenarios.
const POLICY: &str = "ahead";

async fn link_cut() -> Result<()> {
    let _allowed = UserFaults::allow()?;
    let cluster = cluster().await?;
    let mut guest = restless(&cluster).await?;
    let before = count(&cluster, &mut guest).await?;
    let uid = guest.instance().await?.and_then(|one| one.metadata.uid).context("the instance has no UID")?;
    let lookout = Lookout::post(&cluster, &uid);
    policy(&cluster, POLICY, &guest.name, settings()).await?;
    let source = guest.node().await?;
    let target = other(&source);

    let narrow = cluster.narrow(target)?;
    begin(&cluster, &guest, "breaks", json!({})).await?;
    ahead(&cluster, &guest, "breaks").await?;
    cluster.cut(target)?;
    let broken = broken(&cluster, &guest, &source).await;
    tokio::time::sleep(CUT_FOR.saturating_sub(*broken.as_ref().unwrap_or(&CUT_FOR))).await;
    cluster.join(target)?;
    println!("the source noticed after {:?}", broken?);
    drop(narrow);
    wait_for(&cluster, "breaks", &["Succeeded"]).await?;

    let seen = state(&guest).await?;
    ensure!(seen.mode == Some(MigrationMode::PostCopy), "the mode is {:?}", seen.mode);
    ensure!(seen.failed != Some(true) && seen.completed == Some(true), "{seen:?}");
    ensure!(guest.node().await? == target, "the instance is on {}", guest.node().await?);
    alone(&guest).await?;
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    went_on(&cluster, &mut guest, before).await?;
    counts_without_a_gap(&guest).await?;

    let policies: Api<api::migrations::MigrationPolicy> = Api::all(cluster.client().await?);
    policies.delete(POLICY, &DeleteParams::default()).await.context("cannot delete the policy")?;
    migrate(&cluster, &guest).await.context("the next migration")?;
    tidy(&cluster, &guest).await?;
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    went_on(&cluster, &mut guest, before).await
}

/// Waits until the guest runs at the target and has begun to fetch.
pub(super) async fn ahead(cluster: &Access, guest: &Guest, migration: &str) -> Result<()> {
    let wanted = migrations(cluster).await?.get(migration).await?.metadata.uid;
    let runs = guest.wait_for_instance("to run at the target", MOVE_LIMIT, |instance| {
        let state = instance.and_then(|one| one.status.as_ref()?.migration_state.as_ref());
        let state = state.filter(|state| state.migration_uid == wanted).ok_or("it was not handed off")?;
        ensure_unfinished(state.completed)?;
        state.target_node_domain_ready_timestamp.as_ref().map(drop).ok_or_else(|| "it does not".to_owned())
    });
    runs.await?;
    // The state of its devices comes before its memory.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let seen = state(guest).await?;
    ensure!(seen.end_timestamp.is_none(), "all of it was there too soon: {seen:?}");
    Ok(())
}

fn ensure_unfinished(completed: Option<bool>) -> Result<(), String> {
    if completed == Some(true) { Err("it is over".to_owned()) } else { Ok(()) }
}

/// Waits until the source's launcher says that it gets nothing through any more, and tells how long that took.
async fn broken(cluster: &Access, guest: &Guest, source: &str) -> Result<Duration> {
    let started = std::time::Instant::now();
    let pods = cluster.pods(source);
    poll("the source to notice", LIMIT, || async {
        let mut said = vec![];
        for pod in std::fs::read_dir(&pods).into_iter().flatten().flatten() {
            let Ok(pod) = pod.file_name().into_string() else { continue };
            let domain = launchers::state(cluster, source, &pod).await.and_then(|state| state.domain);
            let Some(domain) = domain.filter(|domain| domain.name == format!("default_{}", guest.name)) else {
                continue;
            };
            if domain.reason == DomainReason::PausedPostcopyFailed {
                return Ok(started.elapsed());
            }
            said.push(domain.reason);
        }
        Err(format!("it says {said:?}"))
    })
    .await
}

/// Some numbers in a row.
async fn counts_without_a_gap(guest: &Guest) -> Result<()> {
    const ENOUGH: usize = 3;
    let seen = poll("some numbers on the console", LIMIT, || async {
        let text = guest.console.text();
        let whole = text.rsplit_once('\n').map(|(whole, _)| whole).unwrap_or_default();
        let tick = |line: &str| line.trim().strip_prefix("tick ")?.split(' ').next()?.parse::<u64>().ok();
        let seen: Vec<u64> = whole.lines().filter_map(tick).collect();
        if seen.len() > ENOUGH { Ok(seen) } else { Err(format!("{seen:?}")) }
    })
    .await?;
    ensure!(seen.windows(2).all(|pair| pair[1] == pair[0] + 1), "it counted {seen:?}");
    Ok(())
}

async fn source_dies() -> Result<()> {
    let _allowed = UserFaults::allow()?;
    let cluster = cluster().await?;
    let guest = restless(&cluster).await?;
    let uid = guest.instance().await?.and_then(|one| one.metadata.uid).context("the instance has no UID")?;
    let lookout = Lookout::post(&cluster, &uid);
    policy(&cluster, POLICY, &guest.name, settings()).await?;
    let source = guest.node().await?;

    let narrow = cluster.narrow(other(&source))?;
    begin(&cluster, &guest, "orphaned", json!({})).await?;
    ahead(&cluster, &guest, "orphaned").await?;
    let launcher = launchers::process_on(&cluster, &guest.name, &source).context("the source has no launcher")?;
    processes::kill(&launcher)?;
    drop(narrow);
    let failed = wait_for(&cluster, "orphaned", &["Failed"]).await?;
    let why = failed.status.and_then(|status| status.migration_state).and_then(|state| state.failure_reason);
    ensure!(why.as_deref().is_some_and(|why| why.contains("source was lost before")), "it says {why:?}");

    let anew = |instance: Option<&VirtualMachineInstance>| {
        let instance = instance.ok_or("it is gone")?;
        let other = instance.metadata.uid.as_ref() != Some(&uid);
        if other && instance.is_running() { Ok(()) } else { Err(format!("it is {:?}", instance.phase())) }
    };
    guest.wait_for_instance("to be a new one that runs", BOOT_LIMIT, anew).await?;
    alone(&guest).await?;
    ensure!(lookout.seen_twice().is_none(), "the guest ran twice: {:?}", lookout.seen_twice());
    Ok(())
}

/// QEMU without privileges may fetch pages on demand, as long as this lives.
pub(super) struct UserFaults {
    before: String,
}

const USER_FAULTS: &str = "/proc/sys/vm/unprivileged_userfaultfd";

impl UserFaults {
    pub(super) fn allow() -> Result<Self> {
        let before = std::fs::read_to_string(USER_FAULTS).context("this kernel has no userfaultfd")?;
        std::fs::write(USER_FAULTS, "1").context("cannot allow userfaultfd")?;
        Ok(Self { before })
    }
}

impl Drop for UserFaults {
    fn drop(&mut self) {
        if let Err(err) = std::fs::write(USER_FAULTS, self.before.trim()) {
            eprintln!("cannot restore {USER_FAULTS}: {err}");
        }
    }
}
