//! The demo's live migration: the guest moves to the other node while a Pod continuously reads its counter.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;

use crate::timeline::{MoveStep, Timeline};
use crate::{ClientPod, Embedded, Guest, LIMIT, Testimony, Witness, poll, watch_move};
use terminal::Progress;

/// A migration as observed from outside.
pub(super) struct Moved {
    pub(super) timeline: Timeline<MoveStep>,
    pub(super) testimony: Testimony,
}

/// Migrates the guest; `client` is a Pod that reaches it.
pub(super) async fn live_migrate(
    cluster: &Embedded,
    guest: &mut Guest,
    client: ClientPod,
    progress: &mut Progress,
) -> Result<Moved> {
    let from = guest.node().await?;
    progress.waiting("the node's word that the guest can be moved");
    guest
        .wait_for_instance("to be movable", LIMIT, |instance| {
            let condition = instance.and_then(|instance| instance.condition("LiveMigratable"));
            match condition {
                Some(condition) if condition.is_true() => Ok(()),
                Some(condition) => Err(condition.message().to_owned()),
                None => Err("virt-handler has not reported LiveMigratable yet".to_owned()),
            }
        })
        .await?;
    let timeline = Arc::new(Mutex::new(Timeline::starting_now()));
    let watch = watch_move(cluster.client().await?, &guest.name, timeline.clone()).await?;
    let witness = Witness::start(cluster, client, &guest.name).await?;
    progress.waiting("the guest to migrate, while a Pod polls its counter");
    let started = Instant::now();
    *timeline.lock() = Timeline::starting_now();
    // Not on a runtime worker, which the witness needs. Its output is for the user.
    let mut migrate = cluster.command(&["virtctl", "migrate", &guest.name, "--wait"]);
    let status = tokio::task::spawn_blocking(move || migrate.stdout(Stdio::null()).status()).await;
    let status =
        status.context("the thread that runs virtctl migrate panicked")?.context("cannot run virtctl migrate")?;
    if !status.success() {
        bail!("virtctl migrate failed");
    }
    let seconds = started.elapsed().as_secs_f64();
    let to = guest.node().await?;
    progress.done(format!("the guest moved from {from} to {to} in {seconds:.1} s, and went on counting"));
    guest.reattach(cluster)?;
    guest.console.wait_for("tick ", 0, LIMIT).await?;
    progress.done("its console continues on the new node");
    poll("the migration to be closed", LIMIT, || async {
        if timeline.lock().has(MoveStep::Succeeded) { Ok(()) } else { Err("it is not".to_owned()) }
    })
    .await?;
    watch.abort();
    let (testimony, client) = witness.finish().await?;
    testimony.check()?;
    client.delete().await?;
    let timeline = timeline.lock().clone();
    Ok(Moved { timeline, testimony })
}
