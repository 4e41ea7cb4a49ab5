//! Guests that move between two node agents, with everything real below the API: two agents, the proxy between them,
//! launchers in namespaces as a container has them, libvirt, QEMU. The test is the controller.
//!
//! Needs root and the test guest (`FERROVIRT_GUEST_DIR`, or `build/guest` of this workspace). This program is its own
//! launcher: called with `FERROVIRT_TEST_ROLE=launcher` it runs `virt_launcher::main`. So it has a `main`, and `node` is
//! another binary.

#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

#[path = "../node/cluster.rs"]
#[allow(dead_code, reason = "the other test uses more of it")]
mod cluster;
mod pod;
mod stage;

use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::json;

use crate::stage::{Stage, migration_state};

fn main() -> std::process::ExitCode {
    if std::env::var_os("FERROVIRT_TEST_ROLE").is_some() {
        return virt_launcher::main(std::env::args_os());
    }
    let arguments = Arguments::from_args();
    let missing = pod::missing();
    if let Some(missing) = &missing {
        test_support::skip(missing);
    }
    let mut trials = Vec::new();
    macro_rules! trial {
        ($($name:ident)*) => {$(
            let run = || {
                let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                runtime.block_on(async { $name(Stage::new().await).await });
                Ok::<(), Failed>(())
            };
            trials.push(Trial::test(stringify!($name), run).with_ignored_flag(missing.is_some()));
        )*};
    }
    trial! {
        a_guest_moves_there_and_back
        an_aborted_migration_leaves_its_guest_and_the_next_one_moves_it
        a_target_that_dies_leaves_the_guest_at_its_source
        a_source_agent_that_restarts_leaves_one_guest
        a_target_agent_that_restarts_leaves_one_guest
        a_source_that_dies_before_the_switch_over_is_the_end_of_its_guest
        a_source_that_dies_at_the_switch_over_has_its_target_asked_first
        a_link_that_is_cut_at_the_switch_over_leaves_one_guest
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

async fn a_guest_moves_there_and_back(mut stage: Stage) {
    let before = stage.boot("node01").await;
    stage.hand_off("node02", json!({})).await;
    stage.completed().await;
    let there = stage.counts_on(before).await;
    let vmi = stage.vmi().await;
    let labels = vmi.metadata.labels.clone().unwrap();
    assert_eq!(labels.get("kubevirt.io/nodeName").map(String::as_str), Some("node02"));
    assert!(!labels.contains_key("kubevirt.io/migrationTargetNodeName"), "{labels:?}");
    let status = vmi.status.clone().unwrap();
    assert_eq!((status.node_name.as_deref(), vmi.is_running()), (Some("node02"), true));
    let state = migration_state(&vmi);
    assert!(state.start_timestamp.is_some() && state.end_timestamp.is_some(), "{state:?}");
    assert_eq!((state.failed, state.completed), (None, Some(true)));
    assert!(state.target_node_domain_ready_timestamp.is_some());
    let addresses = status.interfaces.first().map(|interface| interface.ip_addresses.clone()).unwrap_or_default();
    stage
        .until("the guest's address is its new Pod's", async |stage| {
            let vmi = stage.vmi().await;
            let first = vmi.status.unwrap().interfaces.first().and_then(|interface| interface.ip_address.clone());
            first.as_deref() == Some("10.244.1.8")
        })
        .await;
    eprintln!("addresses after the move: {addresses:?}");
    stage.source_is_gone().await;

    stage.hand_off("node01", json!({})).await;
    stage.completed().await;
    stage.counts_on(there).await;
    stage.source_is_gone().await;
}

async fn an_aborted_migration_leaves_its_guest_and_the_next_one_moves_it(mut stage: Stage) {
    let before = stage.boot("node01").await;
    stage.hand_off("node02", json!({"bandwidthPerMigration": "5Mi"})).await;
    stage.transferring().await;
    stage.patch(json!({"status": {"migrationState": {"abortRequested": true}}})).await;
    let state = stage.failed().await;
    assert_eq!(state.failure_reason.as_deref(), Some("Live migration has been aborted"));
    assert_eq!(state.abort_status.as_ref().map(|status| status.as_str()), Some("Succeeded"));
    assert_eq!(state.completed, None, "it did not complete");
    stage.target_is_gone().await;
    assert_eq!(stage.running(), 1);

    stage.hand_off("node02", json!({})).await;
    stage.completed().await;
    stage.counts_on(before).await;
}

async fn a_target_that_dies_leaves_the_guest_at_its_source(mut stage: Stage) {
    stage.boot("node01").await;
    stage.hand_off("node02", json!({"bandwidthPerMigration": "5Mi"})).await;
    stage.transferring().await;
    stage.kill_target();
    stage.failed().await;
    stage.goes_on_at_its_source().await;
}

async fn a_source_agent_that_restarts_leaves_one_guest(stage: Stage) {
    agent_restarts(stage, "node01").await;
}

async fn a_target_agent_that_restarts_leaves_one_guest(stage: Stage) {
    agent_restarts(stage, "node02").await;
}

/// What passes through an agent lives as long as its process, and here that is the test's: the transfer may survive.
async fn agent_restarts(mut stage: Stage, node: &str) {
    let before = stage.boot("node01").await;
    stage.hand_off("node02", json!({"bandwidthPerMigration": "5Mi"})).await;
    stage.transferring().await;
    stage.restart(node).await;
    let state = stage.over().await;
    eprintln!("after a restart of {node}'s agent: failed {:?}", state.failed);
    if state.failed == Some(true) {
        stage.goes_on_at_its_source().await;
        stage.target_is_gone().await;
    } else {
        stage.counts_on(before).await;
        stage.source_is_gone().await;
    }
}

async fn a_source_that_dies_before_the_switch_over_is_the_end_of_its_guest(mut stage: Stage) {
    stage.boot("node01").await;
    stage.hand_off("node02", json!({"bandwidthPerMigration": "5Mi"})).await;
    stage.transferring().await;
    stage.kill_source();
    stage
        .until("the phase is Failed", async |stage| {
            let vmi = stage.vmi().await;
            vmi.phase().is_some_and(|phase| phase.as_str() == "Failed")
        })
        .await;
    assert_eq!(stage.running(), 0);
    stage.target_is_gone().await;
}

/// The source's launcher is killed when all is sent. If the target has got the word to run the guest, the guest survives.
async fn a_source_that_dies_at_the_switch_over_has_its_target_asked_first(mut stage: Stage) {
    let before = stage.boot("node01").await;
    stage.hand_off("node02", json!({})).await;
    stage.switching().await;
    stage.kill_source();
    let state = stage.over().await;
    eprintln!("after the source's death at the switch-over: failed {:?}", state.failed);
    if state.failed == Some(true) {
        stage.until("the phase is Failed", async |stage| stage.vmi().await.is_final()).await;
        assert_eq!(stage.running(), 0);
    } else {
        stage.counts_on(before).await;
        let vmi = stage.vmi().await;
        assert_eq!((vmi.is_running(), vmi.status.unwrap().node_name.as_deref()), (true, Some("node02")));
    }
}

/// Both agents stop when all is sent, and start again: exactly one of the two ends has the guest then.
async fn a_link_that_is_cut_at_the_switch_over_leaves_one_guest(mut stage: Stage) {
    let before = stage.boot("node01").await;
    stage.hand_off("node02", json!({})).await;
    stage.switching().await;
    stage.stop("node01").await;
    stage.stop("node02").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(stage.running() <= 1, "two guests run");
    stage.restart("node02").await;
    stage.restart("node01").await;
    let state = stage.over().await;
    eprintln!("after a cut at the switch-over: completed {:?}, failed {:?}", state.completed, state.failed);
    match state.failed {
        Some(true) => stage.goes_on_at_its_source().await,
        _ => {
            stage.counts_on(before).await;
            stage.source_is_gone().await;
        }
    }
    assert_eq!(stage.running(), 1);
}
