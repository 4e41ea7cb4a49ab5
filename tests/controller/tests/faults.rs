//! Controllers that end, in good order or not, on a server of their own.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use api::v1::{VirtualMachine, VirtualMachineInstance};
use informer::Key;
use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use libtest_mimic::Trial;
use serde_json::json;
use virt_controller::Config;

use crate::agent::Census;
use crate::cluster::{Cluster, Controller};
use crate::env::{Env, vm};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("faults::a_settled_machine_is_left_in_peace".into(), a_settled_machine_is_left_in_peace),
        trial("faults::dying_again_and_again_makes_nothing_twice".into(), dying_again_and_again_makes_nothing_twice),
        trial("faults::the_second_controller_takes_over".into(), the_second_controller_takes_over),
    ]
}

async fn alone() -> Result<Env> {
    Env::new(Arc::new(Cluster::uncontrolled().await?), "test").await
}

async fn a_settled_machine_is_left_in_peace() -> Result<()> {
    let env = alone().await?;
    let controller = Controller::start(env.cluster.config().await);
    env.create_vm(vm("vm", "Always", json!({}))).await?;
    env.wait_ready("vm").await?;
    let key = Key::new(&env.namespace, "vm");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let writes = controller.writes.of(&key);
    ensure!(writes <= 15, "{writes} writes for one start");

    // Others write; what we would write is what is there.
    for round in 0..5 {
        let mark = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        env.patch::<VirtualMachine>("vm", mark.clone()).await?;
        env.patch::<VirtualMachineInstance>("vm", mark).await?;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let more = controller.writes.of(&key) - writes;
    ensure!(more == 0, "a settled machine is not written, and was {more} times");
    controller.stop().await;
    Ok(())
}

async fn dying_again_and_again_makes_nothing_twice() -> Result<()> {
    let env = alone().await?;
    let census = Census::start(&env.admin(), &env.namespace).await;
    env.create_vm(vm("vm", "Always", json!({}))).await?;
    for round in 0..12u64 {
        die_after(&env, Duration::from_millis(15 + 12 * round)).await;
    }
    let controller = Controller::start(env.cluster.config().await);
    env.wait_printable("vm", "Running").await?;
    ensure!(census.count() == (1, 1), "instances and Pods ever: {:?}", census.count());
    controller.crash().await;

    // The same on the way down.
    env.delete::<VirtualMachine>("vm", &DeleteParams::default()).await?;
    for round in 0..6u64 {
        die_after(&env, Duration::from_millis(15 + 12 * round)).await;
    }
    let controller = Controller::start(env.cluster.config().await);
    env.wait_gone::<VirtualMachine>("vm").await?;
    env.wait_none::<VirtualMachineInstance>().await?;
    env.wait_none::<Pod>().await?;
    ensure!(census.count() == (1, 1), "instances and Pods ever: {:?}", census.count());
    controller.stop().await;
    Ok(())
}

async fn die_after(env: &Env, time: Duration) {
    let controller = Controller::start(env.cluster.config().await);
    tokio::time::sleep(time).await;
    controller.crash().await;
}

async fn the_second_controller_takes_over() -> Result<()> {
    let env = alone().await?;
    let candidate = async |identity: &str| {
        let config = env.cluster.config().await;
        let identity = identity.to_owned();
        Controller::start(Config { identity, leader_election: Some(config.client.clone()), ..config })
    };
    let first = candidate("first").await;
    env.create_vm(vm("one", "Always", json!({}))).await?;
    env.wait_ready("one").await?;
    let second = candidate("second").await;
    first.stop().await;
    env.create_vm(vm("two", "Always", json!({}))).await?;
    env.wait_printable("two", "Running").await?;
    let writes = second.writes.of(&Key::new(&env.namespace, "one"));
    ensure!(writes == 0, "the new leader found nothing to do about the first, and wrote {writes} times");
    second.stop().await;
    Ok(())
}
