//! Nodes that are emptied.

use anyhow::{Context as _, Result, ensure};
use e2e::manifest::Manifest;
use ferrovirt::drive::{Embedded, Guest};
use k8s_openapi::api::core::v1::Node;
use kube::api::Api;
use libtest_mimic::Trial;

use super::{busy, cluster, command, movable, set_cordon, slow_down, wait_for_condition};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("drain_moves_every_guest_there_and_kubectl_moves_them_back", there_and_back),
        trial("drain_that_is_called_off_leaves_waiting_guests_where_they_are", called_off),
        trial("drain_does_not_shut_guests_down_unasked", unasked),
    ]
}

/// Guests that are to be moved, all on n1.
async fn on_first_node(cluster: &Embedded, manifests: &[Manifest]) -> Result<Vec<Guest>> {
    set_cordon(cluster, "n2", true).await?;
    let mut guests = vec![];
    for manifest in manifests {
        guests.push(movable(cluster, manifest).await?);
    }
    set_cordon(cluster, "n2", false).await?;
    Ok(guests)
}

fn to_be_moved(name: &str) -> Manifest {
    Manifest::vm(name, "Always").eviction_strategy("LiveMigrate")
}

async fn all_on(guests: &[Guest], node: &str) -> Result<()> {
    for guest in guests {
        ensure!(guest.node().await? == node, "{} is not on {node}", guest.name);
        super::alone(guest).await?;
    }
    Ok(())
}

async fn there_and_back() -> Result<()> {
    let cluster = cluster().await?;
    let guests = on_first_node(&cluster, &["one", "two", "three"].map(to_be_moved)).await?;
    let told = command(&cluster, &["drain", "n1"]).await?;
    println!("{told}");
    ensure!(told.contains("node n1 is empty: 3 have left"), "it printed: {told}");
    ensure!(told.contains("ETA "), "no ETA was shown: {told}");
    all_on(&guests, "n2").await?;
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    ensure!(nodes.get("n1").await?.spec.and_then(|spec| spec.unschedulable) == Some(true), "n1 still takes Pods");
    command(&cluster, &["uncordon", "n1"]).await?;
    ensure!(nodes.get("n1").await?.spec.and_then(|spec| spec.unschedulable) != Some(true), "n1 still takes no Pods");

    match kubectl_drain(&cluster, "n2").await? {
        Some(told) => {
            println!("{told}");
            all_on(&guests, "n1").await?;
        }
        None => println!("skipped: there is no kubectl"),
    }
    for guest in &guests {
        guest.delete().await?;
    }
    Ok(())
}

/// What the real kubectl says; nothing, if there is none.
async fn kubectl_drain(cluster: &Embedded, node: &str) -> Result<Option<String>> {
    let mut command = tokio::process::Command::new("kubectl");
    command.args(["drain", node, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=300s"]);
    command.env("KUBECONFIG", cluster.layout().kubeconfig()).kill_on_drop(true);
    let output = match command.output().await {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output.context("cannot run kubectl")?,
    };
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "kubectl drain failed: {told}");
    ensure!(told.contains("Eviction triggered evacuation of VMI"), "no guest was moved: {told}");
    Ok(Some(told))
}

async fn called_off() -> Result<()> {
    let cluster = cluster().await?;
    let limits = serde_json::json!({"parallelOutboundMigrationsPerNode": 1});
    super::configure(&cluster, limits).await?;
    for name in ["goes", "waits"] {
        slow_down(&cluster, name).await?;
    }
    let guests = on_first_node(&cluster, &[busy("goes"), busy("waits")]).await?;
    let mut drain = cluster.command(&["drain", "n1"]).spawn().context("cannot start a drain")?;
    let migrations = super::migrations(&cluster).await?;
    let waiting = ferrovirt::drive::poll("one to move and one to wait", super::MOVE_LIMIT, || async {
        let all = migrations.list(&Default::default()).await.map_err(|err| err.to_string())?.items;
        let in_phase = |wanted: &str| all.iter().find(|one| super::phase(one) == wanted).cloned();
        match (in_phase("Running"), in_phase("Pending")) {
            (Some(_), Some(waiting)) => Ok(waiting),
            _ => Err(format!("{:?}", all.iter().map(super::phase).collect::<Vec<_>>())),
        }
    })
    .await;
    let ended = drain.kill().and_then(|()| drain.wait());
    ended.context("cannot end the drain")?;
    let waiting = waiting?;
    let name = waiting.metadata.name.clone().unwrap_or_default();
    wait_for_condition(&cluster, &name, &["migrationWaiting"], "NodeLimitReached").await?;
    let told = command(&cluster, &["uncordon", "n1"]).await?;
    ensure!(told.contains("1 evacuations were called off, 1 guests are on their way"), "it printed: {told}");
    let stays = waiting.spec.vmi_name.unwrap_or_default();
    let guest = guests.iter().find(|guest| guest.name == stays).context("it waits for none of ours")?;
    let marked = guest.instance().await?.and_then(|instance| instance.status).and_then(|s| s.evacuation_node_name);
    ensure!(marked.is_none(), "{stays} is still to leave {marked:?}");
    let moving = if stays == "goes" { "waits" } else { "goes" };
    command(&cluster, &["virtctl", "migrate-cancel", moving]).await?;
    for guest in &guests {
        super::alone(guest).await?;
        guest.delete().await?;
    }
    Ok(())
}

async fn unasked() -> Result<()> {
    let cluster = cluster().await?;
    let guests = on_first_node(&cluster, &[Manifest::vm("settled", "Always").eviction_strategy("None")]).await?;
    let refused = command(&cluster, &["drain", "n1"]).await.err().context("the guest was shut down")?.to_string();
    ensure!(refused.contains("would be shut down") && refused.contains("--shut-down"), "it said: {refused}");
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    ensure!(nodes.get("n1").await?.spec.and_then(|spec| spec.unschedulable) != Some(true), "n1 was cordoned");
    for guest in &guests {
        guest.delete().await?;
    }
    Ok(())
}
