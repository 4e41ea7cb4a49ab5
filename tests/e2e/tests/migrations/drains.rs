//! Nodes that are emptied, and the order in which guests leave.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::migrations::MigrationPolicy;
use api::v1::VirtualMachineInstanceMigration;
use drive::{Access, Guest, poll};
use e2e::manifest::Manifest;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use libtest_mimic::Trial;
use serde_json::json;

use super::stage::{count, crowd, scattered, went_on};
use super::{
    MOVE_LIMIT, begin, cluster, command, configure, migrations, movable, other, phase, set_cordon, wait_for,
    wait_for_condition,
};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial("drain_moves_eight_guests_a_few_at_a_time", moves_all),
        trial("drain_that_is_called_off_leaves_waiting_guests_where_they_are", called_off),
        trial("drain_goes_before_what_users_asked_for", goes_first),
        trial("drain_with_kubectl_moves_the_guests", with_kubectl),
        trial("drain_does_not_shut_guests_down_unasked", unasked),
    ]
}

async fn counts(cluster: &Access, guests: &mut [Guest]) -> Result<Vec<u64>> {
    try_join_all(guests.iter_mut().map(|guest| count(cluster, guest))).await
}

/// All of them are on this node, in one QEMU each, and have gone on counting.
async fn all_on(cluster: &Access, guests: &mut [Guest], node: &str, before: &[u64]) -> Result<()> {
    for guest in guests.iter() {
        ensure!(guest.node().await? == node, "{} is not on {node}", guest.name);
        super::alone(guest).await?;
    }
    let counted = guests.iter_mut().zip(before).map(|(guest, before)| went_on(cluster, guest, *before));
    try_join_all(counted).await.map(drop)
}

async fn is_cordoned(cluster: &Access, node: &str) -> Result<bool> {
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    Ok(nodes.get(node).await?.spec.and_then(|spec| spec.unschedulable) == Some(true))
}

/// How many migrations have got a target and are not over.
fn under_way(all: &[VirtualMachineInstanceMigration]) -> usize {
    let idle = ["", "Pending", "Succeeded", "Failed"];
    all.iter().filter(|one| !idle.contains(&phase(one).as_str())).count()
}

async fn moves_all() -> Result<()> {
    let cluster = cluster().await?;
    let (mut guests, node) = crowd(&cluster).await?;
    let before = counts(&cluster, &mut guests).await?;
    let mut drain = cluster.command(&["drain", &node]);
    let drain = tokio::task::spawn_blocking(move || drain.output());
    let (api, mut most) = (migrations(&cluster).await?, 0);
    while !drain.is_finished() {
        most = most.max(under_way(&api.list(&ListParams::default()).await?.items));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let output = drain.await?.context("cannot run ferrovirt")?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    ensure!(output.status.success(), "the drain failed: {told}");
    // On Kubernetes other Pods leave, too.
    let left = told.split(&format!("node {node} drained: ")).nth(1).and_then(|rest| rest.split(' ').next());
    let left: Option<usize> = left.and_then(|number| number.parse().ok());
    ensure!(left.is_some_and(|left| left >= guests.len()), "it printed: {told}");
    ensure!(told.contains("ETA "), "no ETA was shown: {told}");
    // What a guest leaves behind ends by itself, and holds nothing up.
    ensure!(!told.contains("is the target of a migration"), "it printed: {told}");
    ensure!((1..=2).contains(&most), "{most} moved at once, and 2 may leave a node");
    ensure!(is_cordoned(&cluster, &node).await?, "{node} still takes Pods");
    all_on(&cluster, &mut guests, other(&node), &before).await?;
    command(&cluster, &["uncordon", &node]).await?;
    ensure!(!is_cordoned(&cluster, &node).await?, "{node} still takes no Pods");
    Ok(())
}

/// Lets the migrations of the crowd last until somebody ends them.
async fn slow_all(cluster: &Access) -> Result<Api<MigrationPolicy>> {
    let policies: Api<MigrationPolicy> = Api::all(cluster.client().await?);
    let selectors = json!({"virtualMachineInstanceSelector": {"tier": "crowd"}});
    let slow = json!({"metadata": {"name": "slow"}, "spec": {"selectors": selectors, "bandwidthPerMigration": "1Mi"}});
    policies.create(&PostParams::default(), &serde_json::from_value(slow)?).await.context("cannot create a policy")?;
    Ok(policies)
}

async fn called_off() -> Result<()> {
    let cluster = cluster().await?;
    let (mut guests, node) = crowd(&cluster).await?;
    let before = counts(&cluster, &mut guests).await?;
    slow_all(&cluster).await?;
    let mut drain = cluster.command(&["drain", &node]).spawn().context("cannot start a drain")?;
    let api = migrations(&cluster).await?;
    let moving = poll("two to move and the others to wait", MOVE_LIMIT, || async {
        let all = api.list(&ListParams::default()).await.map_err(|err| err.to_string())?.items;
        let of = |wanted: &str| {
            let found = all.iter().filter(|one| phase(one) == wanted);
            found.filter_map(|one| one.spec.vmi_name.clone()).collect::<Vec<_>>()
        };
        match (of("Running"), of("Pending")) {
            (moving, waiting) if moving.len() == 2 && waiting.len() == guests.len() - 2 => Ok(moving),
            (moving, waiting) => Err(format!("{moving:?} move and {waiting:?} wait")),
        }
    })
    .await;
    let ended = drain.kill().and_then(|()| drain.wait());
    ended.context("cannot end the drain")?;
    let moving = moving?;
    let told = command(&cluster, &["uncordon", &node]).await?;
    let expected = format!("{} evacuations canceled, 2 guests still migrating", guests.len() - 2);
    ensure!(told.contains(&expected), "it printed: {told}");
    // Those on their way are still to leave; nobody else is.
    for guest in guests.iter() {
        let marked = guest.instance().await?.and_then(|one| one.status).and_then(|status| status.evacuation_node_name);
        ensure!(marked.is_some() == moving.contains(&guest.name), "{} is to leave {marked:?}", guest.name);
    }
    for name in &moving {
        command(&cluster, &["virtctl", "evacuate-cancel", "vmi", name]).await?;
        command(&cluster, &["virtctl", "migrate-cancel", name]).await?;
    }
    poll("all migrations to end", MOVE_LIMIT, || async {
        let all = api.list(&ListParams::default()).await.map_err(|err| err.to_string())?.items;
        let open = all.iter().find(|one| !["Succeeded", "Failed"].contains(&phase(one).as_str()));
        open.map_or(Ok(()), |one| Err(format!("{} is {}", one.name_any(), phase(one))))
    })
    .await?;
    all_on(&cluster, &mut guests, &node, &before).await
}

/// One guest leaves slowly while six wait for their turn: three whose users asked first, and three that are evacuated.
async fn goes_first() -> Result<()> {
    let cluster = cluster().await?;
    let (guests, node) = crowd(&cluster).await?;
    let policies = slow_all(&cluster).await?;
    configure(&cluster, json!({"parallelOutboundMigrationsPerNode": 1})).await?;
    let [first, asked @ .., given_up, evacuated1, evacuated2, evacuated3, _] = guests.as_slice() else {
        anyhow::bail!("the crowd is too small");
    };
    begin(&cluster, first, "first", json!({})).await?;
    wait_for(&cluster, "first", &["Running"]).await?;
    // It has its settings already; the others are to take the quick way.
    policies.delete("slow", &DeleteParams::default()).await.context("cannot delete a policy")?;
    for guest in asked.iter().chain([given_up]) {
        begin(&cluster, guest, &guest.name, json!({})).await?;
        let said = wait_for_condition(&cluster, &guest.name, &["migrationWaiting"], "NodeLimitReached").await?;
        ensure!(said.contains(&node), "the condition does not name the node: {said}");
    }
    for guest in [evacuated1, evacuated2, evacuated3] {
        super::waits::evict(&cluster, guest).await?;
    }
    let api = migrations(&cluster).await?;
    let waiting = poll("six to wait", MOVE_LIMIT, || async {
        let all = api.list(&ListParams::default()).await.map_err(|err| err.to_string())?.items;
        let waiting: Vec<String> = all.iter().filter(|one| phase(one) == "Pending").map(|one| one.name_any()).collect();
        if waiting.len() == 6 { Ok(waiting) } else { Err(format!("{waiting:?} wait")) }
    })
    .await?;
    wait_for(&cluster, "first", &["Running"]).await.context("what runs has gone back")?;
    let told = command(&cluster, &["virtctl", "explain", "vm", &given_up.name]).await?;
    for word in ["waiting:", "parallelOutboundMigrationsPerNode", "since:", "wait for other migrations from the node"] {
        ensure!(told.contains(word), "the explanation has no `{word}`: {told}");
    }
    configure(&cluster, json!({"parallelOutboundMigrationsPerNode": null, "parallelMigrationsPerCluster": 1})).await?;
    wait_for_condition(&cluster, &given_up.name, &["migrationWaiting"], "ClusterLimitReached").await?;
    let told = command(&cluster, &["virtctl", "explain", "migration", &given_up.name]).await?;
    for word in ["waiting:", "parallelMigrationsPerCluster", "wait for other migrations"] {
        ensure!(told.contains(word), "the explanation has no `{word}`: {told}");
    }
    command(&cluster, &["virtctl", "migrate-cancel", &given_up.name]).await?;
    super::waits::gone(&cluster, &given_up.name).await?;
    configure(&cluster, json!({"parallelOutboundMigrationsPerNode": 1, "parallelMigrationsPerCluster": null})).await?;
    wait_for_condition(&cluster, &asked[0].name, &["migrationWaiting"], "NodeLimitReached").await?;

    command(&cluster, &["virtctl", "migrate-cancel", &first.name]).await?;
    let order = starts(&cluster, &waiting).await?;
    let last: Vec<&str> = asked.iter().map(|guest| guest.name.as_str()).collect();
    let users = order.iter().skip(3).filter(|name| last.contains(&name.as_str())).count();
    ensure!(order.len() == 5 && users == 2, "they went in this order: {order:?}");
    for guest in asked.iter().chain([evacuated1, evacuated2, evacuated3]) {
        ensure!(guest.node().await? == other(&node), "{} has not moved", guest.name);
        super::alone(guest).await?;
    }
    for guest in [first, given_up] {
        ensure!(guest.node().await? == node, "{} has moved", guest.name);
        super::alone(guest).await?;
    }
    Ok(())
}

/// The guests of these migrations in the order in which their turn came, when all that were not given up have moved.
async fn starts(cluster: &Access, migrations: &[String]) -> Result<Vec<String>> {
    let api = super::migrations(cluster).await?;
    let mut order: Vec<String> = vec![];
    let started = std::time::Instant::now();
    loop {
        let mut all = api.list(&ListParams::default()).await?.items;
        all.retain(|one| migrations.contains(&one.name_any()));
        for one in &all {
            let name = one.spec.vmi_name.clone().unwrap_or_default();
            let seen = phase(one);
            ensure!(seen != "Failed", "{name} has not moved");
            if seen != "Pending" && !order.contains(&name) {
                order.push(name);
            }
        }
        if all.iter().all(|one| phase(one) == "Succeeded") {
            return Ok(order);
        }
        ensure!(started.elapsed() < MOVE_LIMIT, "only {order:?} began within {} s", MOVE_LIMIT.as_secs());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn with_kubectl() -> Result<()> {
    let cluster = cluster().await?;
    let Some(kubectl) = kubectl()? else { return Ok(()) };
    let mut guests = scattered(&cluster).await?;
    let before = counts(&cluster, &mut guests).await?;
    // Those that are on the other node stay there.
    let nodes = try_join_all(guests.iter().map(Guest::node)).await?;
    let (on_n1, on_n2) = nodes.iter().partition::<Vec<_>, _>(|node| *node == "n1");
    let node = if on_n2.is_empty() || (!on_n1.is_empty() && on_n1.len() < on_n2.len()) { "n1" } else { "n2" };
    let mut command = tokio::process::Command::new(kubectl);
    command.args(["drain", node, "--delete-emptydir-data", "--ignore-daemonsets", "--timeout=300s"]);
    command.env("KUBECONFIG", cluster.kubeconfig()).kill_on_drop(true);
    let output = command.output().await.context("cannot run kubectl")?;
    let told = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "kubectl drain failed: {told}");
    // Where the API server says when to try again, kubectl does so without a word.
    let moved = ["Eviction triggered evacuation of VMI", "evicting pod default/virt-launcher-"];
    ensure!(moved.iter().any(|words| told.contains(words)), "no guest was moved: {told}");
    all_on(&cluster, &mut guests, other(node), &before).await?;
    set_cordon(&cluster, node, false).await
}

/// The machine's kubectl, or else the one that is built for tests.
fn kubectl() -> Result<Option<std::path::PathBuf>> {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|dir| dir.join("kubectl"))
        .find(|path| path.is_file());
    if found.is_some() {
        return Ok(found);
    }
    let built = peers::build_or_skip("kube/kubectl", "kubectl drain").map_err(anyhow::Error::msg)?;
    Ok(built.map(|dir| dir.join("kubectl")))
}

async fn unasked() -> Result<()> {
    let cluster = cluster().await?;
    let guest = movable(&cluster, &Manifest::vm("settled", "Always").eviction_strategy("None")).await?;
    let node = guest.node().await?;
    let refused = command(&cluster, &["drain", &node]).await.err().context("the guest was shut down")?.to_string();
    ensure!(refused.contains("would be shut down") && refused.contains("--shut-down"), "it said: {refused}");
    ensure!(!is_cordoned(&cluster, &node).await?, "{node} was cordoned");
    guest.delete().await
}
