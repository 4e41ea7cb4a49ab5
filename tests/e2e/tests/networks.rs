//! Guests on a second network of Multus: bridge br1 on every node, which all together are one layer-2 network.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use api::nad::NetworkAttachmentDefinition;
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceNetworkInterface};
use drive::{Access, Guest, LIMIT, poll};
use e2e::manifest::Manifest;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::guests::cluster;
use crate::kubernetes;
use crate::migrations::{migrate, other};

/// A change is left to others for a while, the controller looks again, a guest moves.
const CHANGE_LIMIT: Duration = Duration::from_secs(240);

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        kubernetes("networks_second_one_is_shared_by_guests_of_two_nodes_and_follows_a_move", shared_and_moved),
        kubernetes("networks_change_of_the_definition_moves_the_guest_to_it", changed),
    ]
}

/// The machine of the example, booted.
async fn example(cluster: &Access) -> Result<Guest> {
    let path = e2e::workspace().join("examples/vm-second-network.yaml");
    let output = cluster.command(&["apply", "-f"]).arg(&path).output().context("cannot run apply")?;
    ensure!(output.status.success(), "apply failed: {}", String::from_utf8_lossy(&output.stderr));
    let guest = Guest::attach(cluster, "two-networks").await?;
    guest.wait_to_boot().await?;
    Ok(guest)
}

async fn define(cluster: &Access, name: &str, config: Value) -> Result<()> {
    let definition = json!({"metadata": {"name": name}, "spec": {"config": config.to_string()}});
    let definition = serde_json::from_value(definition)?;
    let created = definitions(cluster).await?.create(&PostParams::default(), &definition).await;
    created.with_context(|| format!("cannot create the network {name}")).map(drop)
}

async fn definitions(cluster: &Access) -> Result<Api<NetworkAttachmentDefinition>> {
    Ok(Api::default_namespaced(cluster.client().await?))
}

async fn forget(cluster: &Access, names: &[&str]) -> Result<()> {
    for name in names {
        let gone = definitions(cluster).await?.delete(name, &DeleteParams::default()).await;
        gone.with_context(|| format!("cannot delete the network {name}"))?;
    }
    Ok(())
}

type Interface = VirtualMachineInstanceNetworkInterface;

fn interface<'a>(instance: Option<&'a VirtualMachineInstance>, name: &str) -> Option<&'a Interface> {
    let interfaces = instance.and_then(|instance| instance.status.as_ref()).map(|status| &status.interfaces);
    interfaces?.iter().find(|interface| interface.name.as_deref() == Some(name))
}

/// Everybody who knows of an interface has told of it, and it has this address.
async fn told(guest: &Guest, name: &str, address: &str) -> Result<Interface> {
    guest
        .wait_for_instance(&format!("{address} on {name}"), LIMIT, |instance| {
            let found = interface(instance, name).ok_or_else(|| "it is not in the status".to_owned())?;
            let known = found.info_source.as_deref() == Some("domain, guest-agent, multus-status");
            let has = found.ip_addresses.iter().any(|ip| ip == address) && found.pod_interface_name.is_some();
            if known && has { Ok(found.clone()) } else { Err(format!("the status shows {found:?}")) }
        })
        .await
}

/// The MAC address that the guest sees.
async fn mac(guest: &mut Guest, link: &str) -> Result<String> {
    Ok(guest.run_shell_command(&format!("cat /sys/class/net/{link}/address")).await?.trim().to_owned())
}

async fn ping(guest: &mut Guest, address: &str) -> Result<()> {
    let said = guest.run_shell_command(&format!("ping -c 3 -W 2 {address}")).await?;
    ensure!(said.contains("bytes from"), "{} gets no answer from {address}: {said}", guest.name);
    Ok(())
}

/// Lines that a guest has received on the connection that stays open.
async fn received(guest: &mut Guest) -> Result<u64> {
    let said = guest.run_shell_command("wc -l < /run/received").await?;
    said.trim().parse().with_context(|| format!("the count of lines is `{said}`"))
}

async fn receives_more(guest: &mut Guest, than: u64) -> Result<u64> {
    let begun = std::time::Instant::now();
    loop {
        let now = received(guest).await?;
        if now > than {
            return Ok(now);
        }
        ensure!(begun.elapsed() < LIMIT, "nothing came on the open connection after line {than}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn shared_and_moved() -> Result<()> {
    let cluster = cluster().await?;
    let routes = json!([{"dst": "192.0.2.0/24", "gw": "10.80.0.1"}]);
    let ipam = json!({"type": "host-local", "subnet": "10.80.0.0/24", "routes": routes});
    let leased = json!({"cniVersion": "1.0.0", "name": "leased", "type": "bridge", "bridge": "br1", "ipam": ipam});
    define(&cluster, "leased", leased).await?;
    let mut left = example(&cluster).await?;
    let home = left.node().await?;
    let right = Manifest::vm("right-of-two", "Always").on_node(other(&home)).bridged("blue", "second");
    let mut right = Guest::spawn(&cluster, right.bridged("green", "leased").json()).await?;
    right.wait_to_boot().await?;
    right.run_shell_command("kill $(cat /run/udhcpc.eth1); ip addr add 10.79.0.2/24 dev eth1").await?;

    // What one of them has been given, and what both say.
    let of_right = told(&right, "green", &address_of(&cluster, &right).await?).await?;
    let leased = of_right.ip_address.clone().context("no address on green")?;
    let seen = right.run_shell_command("ip -4 addr show dev eth2; ip route").await?;
    ensure!(seen.contains(&format!("inet {leased}/24")), "the guest has another address than {leased}: {seen}");
    ensure!(seen.contains("192.0.2.0/24 via 10.80.0.1 dev eth2"), "the guest lacks a route: {seen}");
    let of_left = told(&left, "blue", "10.79.0.1").await?;
    let before = mac(&mut left, "eth1").await?;
    ensure!(of_left.mac.as_deref() == Some(&before), "the guest has {before} and the status shows {of_left:?}");
    ensure!(of_left.interface_name.as_deref() == Some("eth1"), "the status shows {of_left:?}");
    let (own, others) = (left.address().await?, right.address().await?);
    ensure!(own != others && !own.starts_with("10.79."), "the first addresses are {own} and {others}");

    // Both ways, and a connection that stays open.
    ping(&mut left, "10.79.0.2").await?;
    ping(&mut right, "10.79.0.1").await?;
    right.run_shell_command("{ sleep 100000 | nc -l -p 7000 > /run/received & }").await?;
    let count = "i=0; while :; do i=$((i+1)); echo $i; sleep 1; done";
    left.run_shell_command(&format!("{{ ({count}) | nc 10.79.0.2 7000 > /dev/null 2>&1 & }}")).await?;
    let heard = receives_more(&mut right, 2).await?;

    migrate(&cluster, &left).await?;
    let heard = receives_more(&mut right, heard + 2).await?;
    ping(&mut right, "10.79.0.1").await?;
    left.reattach(&cluster)?;
    ensure!(mac(&mut left, "eth1").await? == before, "the guest has another MAC address");
    let moved = told(&left, "blue", "10.79.0.1").await?;
    ensure!(moved.mac.as_deref() == Some(&before), "the status shows {moved:?}");
    let answer = left.run_shell_command("wget -q -O - http://10.79.0.2/cgi-bin/tick | head -n 1").await?;
    ensure!(answer.trim().parse::<u64>().is_ok(), "the other guest answered `{answer}`");

    // And back, to a node whose Pods have used the same names before.
    migrate(&cluster, &left).await?;
    ensure!(left.node().await? == home, "it is not back");
    receives_more(&mut right, heard + 2).await?;
    let gaps = right.run_shell_command("awk '$1 != NR { n++ } END { print n + 0 }' /run/received").await?;
    ensure!(gaps.trim() == "0", "{gaps} lines are not in their place: another connection, or a broken one");
    left.delete().await?;
    right.delete().await?;
    forget(&cluster, &["second", "leased"]).await
}

/// The address that Multus reports for the Pod on the network `leased`.
async fn address_of(cluster: &Access, guest: &Guest) -> Result<String> {
    let joined = joined(cluster, guest).await?;
    let leased = joined.iter().find(|network| network["name"] == "default/leased");
    let address = leased.and_then(|network| network["ips"][0].as_str());
    address.map(str::to_owned).with_context(|| format!("the Pod has joined {joined:?}"))
}

/// What Multus reports of the Pod that the guest runs in.
async fn joined(cluster: &Access, guest: &Guest) -> Result<Vec<Value>> {
    let node = guest.node().await?;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await?);
    let launchers = ListParams::default().labels(&format!("vm.kubevirt.io/name={}", guest.name));
    let found = pods.list(&launchers).await.context("cannot list Pods")?.items;
    let running = found.into_iter().find(|pod| {
        let on = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        on == Some(&node) && phase == Some("Running")
    });
    let annotations = running.context("the guest has no Pod")?.metadata.annotations.unwrap_or_default();
    let status = annotations.get(api::nad::NETWORK_STATUS).context("Multus has not reported")?;
    serde_json::from_str(status).with_context(|| format!("Multus has reported {status}"))
}

/// How guests with pending changes are updated.
async fn update_by(cluster: &Access, methods: Value) -> Result<()> {
    let kubevirts: Api<KubeVirt> = Api::namespaced(cluster.client().await?, "kubevirt");
    let patch = Patch::Merge(json!({"spec": {"workloadUpdateStrategy": {"workloadUpdateMethods": methods}}}));
    kubevirts.patch("kubevirt", &PatchParams::default(), &patch).await.context("cannot change the KubeVirt object")?;
    Ok(())
}

async fn changed() -> Result<()> {
    let cluster = cluster().await?;
    // A bridge that the network plugin makes on each node for itself.
    let elsewhere = json!({"cniVersion": "1.0.0", "name": "elsewhere", "type": "bridge", "bridge": "br9", "ipam": {}});
    define(&cluster, "elsewhere", elsewhere).await?;
    let mut guest = example(&cluster).await?;
    let home = guest.node().await?;
    told(&guest, "blue", "10.79.0.1").await?;
    let before = mac(&mut guest, "eth1").await?;
    update_by(&cluster, json!([])).await?;

    let vms: Api<VirtualMachine> = Api::default_namespaced(cluster.client().await?);
    let patch =
        json!([{"op": "replace", "path": "/spec/template/spec/networks/1/multus/networkName", "value": "elsewhere"}]);
    let patch = Patch::<()>::Json(serde_json::from_value(patch)?);
    vms.patch(&guest.name, &PatchParams::default(), &patch).await.context("cannot change the VM")?;
    guest
        .wait_for_instance("the wish to move", LIMIT, |instance| {
            let condition = instance.and_then(|instance| instance.condition("MigrationRequired"));
            let condition = condition.ok_or_else(|| "no condition says so".to_owned())?;
            if condition.is_true() { Ok(()) } else { Err(format!("{}: {}", condition.status, condition.message())) }
        })
        .await?;
    let vm = guest.vm().await?.context("the VM is gone")?;
    ensure!(vm.condition("RestartRequired").is_none(), "the machine is said to need a restart");
    ensure!(guest.node().await? == home, "it moved though nobody may move it");

    update_by(&cluster, json!(["LiveMigrate"])).await?;
    guest
        .wait_for_instance("the move", CHANGE_LIMIT, |instance| {
            let node = instance.and_then(|one| one.status.as_ref()).and_then(|status| status.node_name.clone());
            let required = instance.and_then(|instance| instance.condition("MigrationRequired"));
            match (node, required) {
                (Some(node), None) if node == other(&home) => Ok(()),
                (node, required) => Err(format!("it is on {node:?}, and the condition is {required:?}")),
            }
        })
        .await?;
    let networks = joined(&cluster, &guest).await?;
    let names: Vec<&str> = networks.iter().filter_map(|network| network["name"].as_str()).collect();
    ensure!(names.contains(&"default/elsewhere"), "the Pod has joined {names:?}");
    ensure!(!names.contains(&"default/second"), "the Pod is still on the network before: {names:?}");
    guest.reattach(&cluster)?;
    ensure!(mac(&mut guest, "eth1").await? == before, "the guest has another MAC address");
    told(&guest, "blue", "10.79.0.1").await?;
    stays(&guest).await?;
    guest.delete().await?;
    forget(&cluster, &["second", "elsewhere"]).await
}

/// Nobody moves it once more.
async fn stays(guest: &Guest) -> Result<()> {
    let node = guest.node().await?;
    let until = std::time::Instant::now() + Duration::from_secs(20);
    poll("the guest to stay", LIMIT, || async {
        let now = guest.node().await.map_err(|err| err.to_string())?;
        if std::time::Instant::now() > until { Ok(now) } else { Err(format!("it is on {now}")) }
    })
    .await
    .and_then(|now| {
        ensure!(now == node, "it moved on to {now}");
        Ok(())
    })
}
