//! Single containers: what they see, and how they end.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use pod_runner::{Inputs, StartFailure, images};
use podstate::{Blocked, ExitReason, ShimState};
use serde_json::json;

use crate::harness::{TestNode, exit_of, observe, shell, until, until_gone, until_logged, until_running, with};

pub(crate) fn a_command_runs_and_its_output_and_code_are_kept() {
    let node = TestNode::new();
    let script = "echo out; echo err >&2; echo to-the-end > /dev/stdout; echo note > /dev/termination-log; exit 7";
    let (sandbox, exit) = node.run_to_end(shell(script));
    assert_eq!((exit.code, exit.reason, exit.message.as_str()), (7, ExitReason::Error, "note\n"));
    assert!(exit.started_at.unwrap() <= exit.finished_at);
    let log = node.logs(&sandbox);
    for line in ["out", "err", "to-the-end"] {
        assert!(log.lines().any(|l| l == line), "{log}");
    }
    let policy = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let (_, exit) = node.run_to_end(with(shell("echo what went wrong; exit 1"), policy));
    assert_eq!(exit.message, "what went wrong");
    let (_, exit) = node.run_to_end(shell("kill -9 $$$$; true"));
    assert_eq!(
        (exit.code, exit.reason),
        (0, ExitReason::Completed),
        "the first process of a namespace is immune to its own"
    );
}

/// What virt-launcher relies on: first process, own user, one capability, private devices, writable places.
pub(crate) fn a_launcher_finds_the_world_it_expects() {
    let node = TestNode::new();
    let script = r#"
        echo "pid $$$$ uid $(id -u) gid $(id -g) groups $(id -G) name $(id -un) host $(cat /proc/sys/kernel/hostname)"
        grep -E '^(CapBnd|CapEff|CapAmb|NoNewPrivs)' /proc/self/status
        echo "dev $(ls /dev | tr '\n' ' ')"; echo "devnet $(ls /dev/net) $(stat -c %a,%t:%T /dev/net/tun)"
        echo "procs $(ls -d /proc/[0-9]* | wc -l)"
        command -v virt-launcher; cmp /ferrovirt/bin/virt-launcher /ferrovirt/bin/ferrovirt && echo same-program
        for d in /tmp /run/user/107 /home/qemu /run/lock /dev/shm /var/run/kubevirt /var/run/kubevirt/sockets; do
            touch $d/x && echo "writable $d"; done
        for d in /usr /usr/bin /sys /proc/sys/kernel; do touch $d/x 2>/dev/null && echo "BAD $d"; done
        cat /proc/self/oom_score_adj; cat /etc/resolv.conf /etc/hostname; cat /etc/shadow 2>&1; echo home $HOME pwd $(pwd)
        grep ' / ' /proc/mounts; ulimit -c; echo done"#;
    let container = with(
        shell(script),
        json!({
            "workingDir": "/var/run/kubevirt",
            "securityContext": {
                "runAsUser": 107, "runAsGroup": 107, "runAsNonRoot": true, "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
            "resources": {"limits": {"devices.kubevirt.io/tun": "1"}, "requests": {"memory": "64Mi"}},
            "volumeMounts": [
                {"name": "sockets", "mountPath": "/var/run/kubevirt/sockets"},
                {"name": "public", "mountPath": "/var/run/kubevirt"}],
        }),
    );
    let pod = node.pod(json!({
        "restartPolicy": "Never", "hostname": "vm-1", "securityContext": {"fsGroup": 107},
        "volumes": [{"name": "public", "emptyDir": {}}, {"name": "sockets", "emptyDir": {}}],
        "containers": [container],
    }));
    let sandbox = node.start(&pod);
    let seen = until_gone(&sandbox);
    let log = node.logs(&sandbox);
    assert_eq!(exit_of(&seen, "c").code, 0, "{log}");
    for line in [
        "pid 1 uid 107 gid 107 groups 107 name qemu host vm-1",
        "CapEff:\t0000000000000400",
        "CapBnd:\t0000000000000400",
        "CapAmb:\t0000000000000400",
        "NoNewPrivs:\t1",
        "dev fd full net null ptmx pts random shm stderr stdin stdout termination-log tty urandom zero ",
        "devnet tun 666,a:c8",
        "/ferrovirt/bin/virt-launcher",
        "same-program",
        "writable /tmp",
        "writable /run/user/107",
        "writable /home/qemu",
        "writable /run/lock",
        "writable /dev/shm",
        "writable /var/run/kubevirt",
        "writable /var/run/kubevirt/sockets",
        "vm-1",
        "search default.svc.cluster.local svc.cluster.local cluster.local",
        "home /home/qemu pwd /run/kubevirt",
        "993",
        "0",
        "done",
    ] {
        assert!(log.lines().any(|l| l == line), "no {line:?} in\n{log}");
    }
    assert!(!log.contains("BAD"), "{log}");
    assert!(log.contains("/etc/shadow: No such file"), "{log}");
    // The volume is where a kubelet would have it, owned by the Pod's group.
    let sockets = sandbox.paths().volume("empty-dir", "sockets");
    let meta = std::fs::metadata(&sockets).unwrap();
    use std::os::unix::fs::MetadataExt;
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (107, 0o2777));
    assert_eq!(std::fs::metadata(sockets.join("x")).unwrap().uid(), 107);
}

pub(crate) fn a_container_that_handles_the_signal_ends_by_itself() {
    let node = TestNode::new();
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    // It would be started again, were it not asked to end.
    let pod = node.pod(json!({"restartPolicy": "Always", "containers": [shell(script)]}));
    let sandbox = node.start(&pod);
    until_logged(&node, &sandbox, "ready");
    sandbox.stop().unwrap();
    sandbox.stop().unwrap();
    let seen = until_gone(&sandbox);
    assert!(seen.stopping_since.is_some());
    assert_eq!(exit_of(&seen, "c").code, 3);
    assert!(node.logs(&sandbox).contains("asked"));
}

pub(crate) fn a_container_that_never_stops_talking_is_heard_and_bounded() {
    let node = TestNode::new();
    let pod = node.pod(json!({"restartPolicy": "Never", "containers": [shell("trap 'exit 3' TERM; yes & wait")]}));
    let sandbox = node.start(&pod);
    let log = sandbox.paths().dir().join("logs/c.log");
    until("a second part of the log", || log.with_extension("log.1").exists().then_some(()));
    sandbox.stop().unwrap();
    assert_eq!(exit_of(&until_gone(&sandbox), "c").code, 3);
    assert!(node.logs(&sandbox).len() <= 16 << 20);
}

pub(crate) fn a_program_starts_with_no_signal_blocked() {
    let node = TestNode::new();
    // Not through a shell, which would clear the mask itself.
    let container =
        json!({"name": "c", "image": "ferrovirt.io/host", "command": ["grep", "SigBlk", "/proc/self/status"]});
    let sandbox = node.start(&node.pod(json!({"restartPolicy": "Never", "containers": [container]})));
    until_gone(&sandbox);
    assert_eq!(node.logs(&sandbox), "SigBlk:\t0000000000000000\n");
}

pub(crate) fn a_container_that_ignores_the_signal_is_killed() {
    let node = TestNode::new();
    let pod = node.pod(
        json!({"restartPolicy": "Never", "containers": [shell("trap '' TERM; echo ready; sleep 1000 & sleep 1000")]}),
    );
    let sandbox = node.start(&pod);
    until_logged(&node, &sandbox, "ready");
    sandbox.stop().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(observe(&sandbox).shim, ShimState::Alive);
    assert!(node.sandbox(&pod).release().is_err(), "what runs is not taken apart");
    sandbox.kill().unwrap();
    let seen = until_gone(&sandbox);
    let exit = exit_of(&seen, "c");
    assert_eq!((exit.code, exit.signal, exit.reason), (137, Some(9), ExitReason::Error));
    node.release(&sandbox);
    node.release(&sandbox);
    assert!(observe(&sandbox).released);
    assert_eq!(observe(&sandbox).address, None);
    assert!(node.logs(&sandbox).contains("ready"), "logs stay until the Pod is purged");
    sandbox.purge().unwrap();
    sandbox.purge().unwrap();
    assert!(sandbox.observe().unwrap().is_none());
}

pub(crate) fn a_container_over_its_memory_limit_is_killed_for_it() {
    let node = TestNode::new();
    let limits = json!({"resources": {"limits": {"memory": "16Mi", "cpu": "500m"}}});
    let (_, exit) = node.run_to_end(with(shell("exec tail /dev/zero"), limits));
    assert_eq!((exit.code, exit.reason), (137, ExitReason::OOMKilled), "{}", exit.message);
}

pub(crate) fn init_containers_run_in_order_and_failures_restart() {
    let node = TestNode::new();
    let step = |name: &str, script: &str| {
        let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        with(with(shell(script), mount), json!({ "name": name }))
    };
    // The main container fails once, then succeeds.
    let pod = node.pod(json!({
        "restartPolicy": "OnFailure",
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
        "initContainers": [step("i1", "echo one >> /v/steps"), step("i2", "echo two >> /v/steps")],
        "containers": [step("c", "echo main >> /v/steps; cat /v/steps; [ $(grep -c main /v/steps) = 2 ]")],
    }));
    let sandbox = node.start(&pod);
    let seen = until_gone(&sandbox);
    assert_eq!(node.logs(&sandbox), "one\ntwo\nmain\none\ntwo\nmain\nmain\n");
    let record = &seen.containers["c"];
    assert_eq!((record.restarts, record.stage.exit().unwrap().code), (1, 0));
    assert_eq!(record.previous.as_ref().unwrap().code, 1);

    let failing = node.pod(json!({
        "restartPolicy": "Never",
        "initContainers": [with(shell("exit 4"), json!({"name": "i"}))],
        "containers": [shell("echo never")],
    }));
    let seen = until_gone(&node.start(&failing));
    assert_eq!(exit_of(&seen, "i").code, 4);
    assert!(!seen.containers.contains_key("c"), "{seen:?}");
}

/// A root file system with nothing but a static busybox.
pub(crate) fn busybox(dir: &Path) -> std::path::PathBuf {
    let root = dir.join("busybox");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    std::fs::create_dir_all(root.join("disk")).unwrap();
    let program = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|p| Path::new(p).exists()).unwrap();
    std::fs::copy(program, root.join("bin/busybox")).unwrap();
    std::os::unix::fs::symlink("busybox", root.join("bin/sh")).unwrap();
    std::os::unix::fs::symlink("/run", root.join("outside")).unwrap();
    std::fs::write(root.join("disk/disk.img"), "image").unwrap();
    root
}

pub(crate) fn an_imported_image_is_a_root_and_a_volume() {
    let node = TestNode::new();
    let images_dir = &node.host.facts.images_dir;
    let spec = json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "disk", "image": {"reference": "example.com/box:1"}}, {"name": "e", "emptyDir": {}}],
        "containers": [{
            "name": "c", "image": "example.com/box:1", "command": ["sh", "-c"],
            "args": ["busybox cat /d/disk/disk.img; busybox touch /d/x; busybox touch /made && echo writable; \
                      busybox grep -c . /etc/passwd; busybox touch /outside/v/here && echo linked; busybox ls /dev/null; true"],
            "volumeMounts": [{"name": "disk", "mountPath": "/d"}, {"name": "e", "mountPath": "/outside/v"}],
        }],
    });
    let pod = node.pod(spec);
    let Err(StartFailure::Blocked(Blocked { reason, message })) = node.try_start(&pod, &Inputs::default()) else {
        panic!("the image is not there yet")
    };
    assert_eq!(reason, "ErrImagePull");
    assert!(message.contains("ferrovirt image import example.com/box:1"), "{message}");
    assert_eq!(observe(&node.sandbox(&pod)).shim, ShimState::NotStarted);

    images::import(images_dir, "example.com/box:1", &busybox(node.path())).unwrap();
    let sandbox = node.start(&pod);
    let seen = until_gone(&sandbox);
    let log = node.logs(&sandbox);
    assert_eq!(exit_of(&seen, "c").code, 0, "{log} {}", exit_of(&seen, "c").message);
    assert!(log.starts_with("image"), "{log}");
    assert!(log.contains("/d/x: Read-only file system"), "{log}");
    for line in ["writable", "linked", "2", "/dev/null"] {
        assert!(log.lines().any(|l| l == line), "no {line:?} in\n{log}");
    }
    let rootfs = images::resolve(images_dir, "example.com/box:1").unwrap().rootfs();
    assert!(!rootfs.join("made").exists() && !rootfs.join("etc").exists(), "the image stays as it was");
    assert!(sandbox.paths().volume("empty-dir", "e").join("here").exists(), "a link of the image leads inside it");
}

pub(crate) fn volumes_are_shared_and_files_appear() {
    let node = TestNode::new();
    let map = json!({"metadata": {"name": "m"}, "data": {"a": "alpha", "b": "beta"}});
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "c2VjcmV0"}});
    let inputs = Inputs {
        config_maps: BTreeMap::from([("m".to_owned(), Some(serde_json::from_value(map).unwrap()))]),
        secrets: BTreeMap::from([("s".to_owned(), Some(serde_json::from_value(secret).unwrap()))]),
        ..Inputs::default()
    };
    let shared = node.path().join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::os::unix::fs::symlink("/etc", shared.join("link")).unwrap();
    let mounts = json!({"volumeMounts": [
        {"name": "m", "mountPath": "/m"}, {"name": "s", "mountPath": "/s/key", "subPath": "k"},
        {"name": "h", "mountPath": "/h", "subPath": "made/by/name"}, {"name": "info", "mountPath": "/info"}]});
    let pod = node.pod(json!({
        "restartPolicy": "Never",
        "volumes": [
            {"name": "m", "configMap": {"name": "m"}}, {"name": "s", "secret": {"secretName": "s", "defaultMode": 256}},
            {"name": "h", "hostPath": {"path": shared, "type": "Directory"}},
            {"name": "info", "downwardAPI": {"items": [{"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}}],
        "containers": [with(shell("cat /m/a /m/b /s/key; stat -c %a /s/key; cat /info/uid; touch /h/x; echo y > /m/a || echo kept"), mounts)],
    }));
    let sandbox = node.start_with(&pod, &inputs);
    until_gone(&sandbox);
    let log = node.logs(&sandbox);
    assert!(log.starts_with(&format!("alphabetasecret400\n{}", pod.metadata.uid.as_ref().unwrap())), "{log}");
    assert!(log.contains("kept"), "{log}");
    assert!(shared.join("made/by/name/x").exists());

    let through_link = json!({"volumeMounts": [{"name": "h", "mountPath": "/h", "subPath": "link"}]});
    let pod = node.pod(json!({
        "restartPolicy": "Never",
        "volumes": [{"name": "h", "hostPath": {"path": shared}}],
        "containers": [with(shell("ls /h"), through_link)],
    }));
    let exit = exit_of(&until_gone(&node.start(&pod)), "c");
    assert_eq!(exit.reason, ExitReason::StartError);
    assert!(exit.message.contains("/link: Too many levels of symbolic links"), "{}", exit.message);
}

pub(crate) fn a_program_that_is_not_there_is_a_start_error() {
    let node = TestNode::new();
    let container = json!({"name": "c", "image": "ferrovirt.io/host", "command": ["no-such-program"]});
    let (_, exit) = node.run_to_end(container);
    assert_eq!((exit.code, exit.reason, exit.started_at), (128, ExitReason::StartError, None));
    assert_eq!(exit.message, "executable \"no-such-program\" not found in $PATH");

    // A Pod that starts again pauses in between, and ends at once when asked.
    let pod = node.pod(json!({"restartPolicy": "Always", "containers": [shell("exit 1")]}));
    let sandbox = node.start(&pod);
    until("a pause", || {
        let record = observe(&sandbox).containers.get("c").cloned()?;
        (record.restarts == 1 && matches!(record.stage, podstate::Stage::BackingOff { .. })).then_some(())
    });
    let asked = Instant::now();
    sandbox.stop().unwrap();
    until_gone(&sandbox);
    assert!(asked.elapsed() < Duration::from_secs(5));
    let pod = node.pod(json!({"restartPolicy": "Never", "containers": [shell("sleep 1000")]}));
    until_running(&node.start(&pod));
}
