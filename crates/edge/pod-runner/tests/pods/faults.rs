//! Processes that are killed, and what is left for the next one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use hostfs::process::{ProcessId, Signal};
use hostfs::{atomic, ns};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use pod_runner::{Claim, Inputs, PodSandbox, process_of};
use podstate::{ExitReason, ShimState};
use serde_json::json;

use crate::harness::{TestNode, exe, exit_of, host, shell, uid, until, until_gone, until_logged, until_running};

/// The role of a process that starts one Pod and then waits to be killed.
pub(crate) const DRIVER: &str = "test-driver";

pub(crate) fn drive(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let [dir, pod_file] = &args[..] else { return ExitCode::from(2) };
    let (pod, claims): (Pod, Vec<Bound>) = atomic::read_json(pod_file).unwrap().unwrap();
    let claims =
        claims.into_iter().map(|(name, claim, volume)| (name, Claim { claim: Some(claim), volume: Some(volume) }));
    let inputs = Inputs { claims: claims.collect(), ..Inputs::default() };
    let host = host(dir, dir, "10.244.1.0/24".parse().unwrap());
    ns::enter_netns(ns::open_netns(dir.join("node-net")).unwrap()).unwrap();
    let sandbox = PodSandbox::new(&host.pods_dir, uid(&pod)).with_storage(host.storage.clone());
    sandbox.start(&host, &pod, &inputs).ok();
    std::thread::sleep(Duration::from_secs(60));
    ExitCode::SUCCESS
}

/// A claim's name, the claim and its volume.
type Bound = (String, PersistentVolumeClaim, PersistentVolume);

/// Starts the Pod from a process of its own.
fn driver(node: &TestNode, pod: &Pod) -> std::process::Child {
    driver_with(node, pod, &Inputs::default())
}

pub(crate) fn driver_with(node: &TestNode, pod: &Pod, inputs: &Inputs) -> std::process::Child {
    let file = node.path().join(format!("{}.json", uid(pod)));
    let bound = |(name, claim): (&String, &Claim)| -> Option<Bound> {
        Some((name.clone(), claim.claim.clone()?, claim.volume.clone()?))
    };
    let claims: Vec<Bound> = inputs.claims.iter().filter_map(bound).collect();
    atomic::write_json(&file, &(pod, claims)).unwrap();
    Command::new(exe()).arg(DRIVER).arg(node.path()).arg(file).spawn().unwrap()
}

fn shim_of(sandbox: &PodSandbox) -> ProcessId {
    atomic::read_json(sandbox.paths().dir().join("shim.json")).unwrap().unwrap()
}

pub(crate) fn a_pod_outlives_its_driver_and_is_adopted() {
    let node = TestNode::new();
    let script = "trap 'echo asked; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let pod = node.pod(json!({"restartPolicy": "Never", "containers": [shell(script)]}));
    let sandbox = node.sandbox(&pod);
    let mut process = driver(&node, &pod);
    until("a state of the Pod", || sandbox.observe().unwrap());
    until_logged_eventually(&node, &sandbox, "ready");
    process.kill().unwrap();
    process.wait().unwrap();

    let seen = until_running(&sandbox);
    assert_eq!(seen.shim, ShimState::Alive);
    let shim = shim_of(&sandbox);
    assert!(shim.alive());
    // The mount that keeps the namespace got lost: it is made again from the shim.
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let netns = sandbox.paths().netns();
    let before = inode(&netns);
    hostfs::mounts::umount_all_below(&netns).unwrap();
    sandbox.adopt().unwrap();
    assert_eq!(inode(&netns), before);

    sandbox.stop().unwrap();
    assert_eq!(exit_of(&until_gone(&sandbox), "c").code, 0);
    assert!(node.logs(&sandbox).ends_with("asked\n"));
}

/// Like `until_logged`, before there is a log.
fn until_logged_eventually(node: &TestNode, sandbox: &PodSandbox, line: &str) {
    until("a log", || sandbox.paths().dir().join("logs/c.log").exists().then_some(()));
    until_logged(node, sandbox, line);
}

pub(crate) fn a_driver_killed_at_any_point_leaves_work_that_can_be_finished() {
    for delay in [0, 5, 10, 15, 20, 30, 40, 60, 80, 120, 200] {
        let node = TestNode::new();
        let pod = node.pod(json!({"restartPolicy": "Never", "containers": [shell("sleep 1000")]}));
        let sandbox = node.sandbox(&pod);
        let mut process = driver(&node, &pod);
        std::thread::sleep(Duration::from_millis(delay));
        process.kill().unwrap();
        process.wait().unwrap();
        // A shim that was just ordered may still appear.
        let started = sandbox.observe().unwrap().is_some_and(|seen| seen.shim != ShimState::NotStarted);
        if !started {
            node.start(&pod);
        }
        let seen = until_running(&sandbox);
        let address = seen.address.unwrap();
        let shim = shim_of(&sandbox);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(shim_of(&sandbox), shim, "one shim only, after {delay} ms");
        let addresses = std::fs::read_dir(node.path().join("addresses")).unwrap().flatten();
        let taken: Vec<_> = addresses.filter(|e| !e.file_name().to_string_lossy().starts_with('.')).collect();
        assert_eq!(taken.len(), 1, "one address only ({address}), after {delay} ms");
        let ping = node.exec(&pod, &["ping", "-c", "1", "-W", "5", "10.244.1.1"]);
        assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr));
    }
}

pub(crate) fn a_lost_shim_takes_its_containers_along() {
    let node = TestNode::new();
    let pod = node.pod(json!({"restartPolicy": "Always", "containers": [shell("echo run; sleep 1000")]}));
    let sandbox = node.start(&pod);
    let seen = until_running(&sandbox);
    let process = process_of(&seen.containers["c"].stage).expect("running");
    let shim = shim_of(&sandbox);
    until_logged(&node, &sandbox, "run");
    assert!(shim.signal(Signal::KILL).unwrap());
    assert!(process.wait_gone(Duration::from_secs(10)).unwrap());
    until_gone(&sandbox);

    // Started again, it remembers what it did not see ending.
    node.start(&pod);
    let seen = until_running(&sandbox);
    assert_ne!(shim_of(&sandbox), shim);
    let record = &seen.containers["c"];
    assert_eq!(record.restarts, 1);
    assert_eq!(record.previous.as_ref().unwrap().reason, ExitReason::ContainerStatusUnknown);
    until("the output of both runs", || (node.logs(&sandbox) == "run\nrun\n").then_some(()));
}

pub(crate) fn everything_can_be_destroyed_from_the_records() {
    let node = TestNode::new();
    let memory = json!({"name": "m", "emptyDir": {"medium": "Memory"}});
    let pod = node.pod(json!({"restartPolicy": "Never", "volumes": [memory], "containers": [shell("sleep 1000")]}));
    let ended = node.pod(json!({"restartPolicy": "Never", "containers": [shell("true")]}));
    let sandbox = node.start(&pod);
    let seen = until_running(&sandbox);
    until_gone(&node.start(&ended));
    let (shim, process) = (shim_of(&sandbox), process_of(&seen.containers["c"].stage).expect("running"));
    let destroy = || ns::run_in_netns(&node.netns, || pod_runner::destroy_all(&node.host.pods_dir)).unwrap();
    destroy().unwrap();
    assert!(!shim.alive() && !process.alive());
    destroy().unwrap();
    let groups: Vec<_> = ["cpu", "memory", "pids", "unified", "."]
        .iter()
        .map(|c| Path::new("/sys/fs/cgroup").join(c).join(format!("ferrovirt/pod{}", uid(&pod))))
        .filter(|p| p.exists())
        .collect();
    assert_eq!(groups, Vec::<PathBuf>::new());
    assert_eq!(std::fs::read_dir(&node.host.pods_dir).unwrap().count(), 0);
}
