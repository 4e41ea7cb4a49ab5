//! Claims: directories and block devices of the volume engine in Pods, with real mounts and loop devices.

use std::fs;
use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostfs::{mounts, ns};
use k8s_openapi::api::core::v1::Pod;
use pod_runner::{Claim, Inputs, PodSandbox, StartFailure};
use podstate::{Blocked, FAILED_ATTACH, FAILED_MOUNT, ShimState};
use serde_json::{Value, json};
use volumeplan::create::Request;
use volumeplan::{
    Access, AccessMode, Capability, Kind, NodeName, Parameters, PoolId as _, Range, Requirement, Users, Volume,
};
use volumes::Engine;

use crate::faults::driver_with;
use crate::harness::{
    TestNode, attached, exit_of, shell, until, until_gone, until_logged, until_running, volumes, with,
};

pub(crate) const MIB: i64 = 1 << 20;

/// What the volume controller does, and what it leaves in the API.
pub(crate) struct Provisioner {
    pub(crate) engine: Engine,
}

pub(crate) struct Provisioned {
    pub(crate) volume: Volume,
    pub(crate) claim: Claim,
}

impl Provisioner {
    pub(crate) fn of(node: &TestNode) -> Provisioner {
        let config = volumes(node.path(), node.path(), "supervisor");
        let node = NodeName::parse("supervisor").unwrap();
        Provisioner { engine: Engine::open(volumes::Config { node, ..config }).unwrap() }
    }

    /// A claim of 8 MiB with its volume.
    pub(crate) fn provision(&self, name: &str, kind: Kind, mode: &str) -> Provisioned {
        let access = match kind {
            Kind::Block => Access::Block,
            Kind::Filesystem => Access::Mount { fs_type: String::new(), flags: vec![] },
        };
        let volume = self
            .engine
            .create_volume(&Request {
                name: format!("pvc-{name}"),
                range: Range { required: 8 * MIB, limit: 0 },
                capabilities: vec![Capability { access: Some(access), mode: Some(AccessMode::SingleNodeMultiWriter) }],
                parameters: Parameters::default(),
                from: None,
                topology: Requirement::default(),
            })
            .unwrap();
        let size = json!({"storage": "8Mi"});
        let claim = json!({
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "accessModes": [mode], "volumeMode": format!("{kind:?}"), "volumeName": format!("pvc-{name}"),
                "resources": {"requests": size}},
            "status": {"phase": "Bound", "capacity": size},
        });
        let bound = json!({
            "metadata": {"name": format!("pvc-{name}")},
            "spec": {
                "accessModes": [mode], "volumeMode": format!("{kind:?}"), "capacity": size,
                "claimRef": {"namespace": "default", "name": name, "uid": name},
                "csi": {"driver": "csi.ferrovirt.io", "volumeHandle": volume.id.as_str()}},
        });
        let claim = Claim {
            claim: Some(serde_json::from_value(claim).unwrap()),
            volume: Some(serde_json::from_value(bound).unwrap()),
        };
        Provisioned { volume, claim }
    }

    pub(crate) fn users(&self, of: &Provisioned) -> Users {
        self.engine.volume(of.volume.id.as_str()).unwrap().1
    }
}

fn inputs(all: &[&Provisioned]) -> Inputs {
    let named = |one: &&Provisioned| (one.claim.claim.clone().unwrap().metadata.name.unwrap(), one.claim.clone());
    Inputs { claims: all.iter().map(named).collect(), ..Inputs::default() }
}

fn claim(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name}})
}

fn blocked(result: Result<PodSandbox, StartFailure>) -> Blocked {
    match result {
        Err(StartFailure::Blocked(blocked)) => blocked,
        other => panic!("the Pod does not wait: {other:?}"),
    }
}

/// Ends a Pod and removes what it has.
fn end(node: &TestNode, sandbox: &PodSandbox) {
    sandbox.stop().unwrap();
    sandbox.kill().unwrap();
    until_gone(sandbox);
    node.release(sandbox);
}

pub(crate) fn a_file_system_claim_is_a_directory_that_outlives_its_pods() {
    let node = TestNode::new();
    let provisioner = Provisioner::of(&node);
    let data = provisioner.provision("data", Kind::Filesystem, "ReadWriteOnce");
    let inputs = inputs(&[&data]);
    // A user of no name with the Pod's group, as a launcher's is.
    let user = json!({"runAsUser": 1234, "runAsGroup": 1234, "fsGroup": 107});
    let mounts = json!({"volumeMounts": [
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/part", "subPath": "made/for/me"},
        {"name": "data", "mountPath": "/fixed", "readOnly": true}]});
    let script = "set -e; echo kept > /data/f; echo inner > /part/g; cat /fixed/f; cat /data/made/for/me/g; \
                  if touch /fixed/x 2>/dev/null; then echo BAD; fi; stat -c '%g %a' /data /data/f; sync";
    let pod = node.pod(json!({
        "restartPolicy": "Never", "securityContext": user, "volumes": [claim("data")],
        "containers": [with(shell(script), mounts)],
    }));
    let sandbox = node.start_with(&pod, &inputs);
    let seen = until_gone(&sandbox);
    let log = node.logs(&sandbox);
    assert_eq!((exit_of(&seen, "c").code, log.as_str()), (0, "kept\ninner\n107 2775\n107 644\n"));
    let target = sandbox.paths().claim("pvc-data", false);
    assert!(target.ends_with("volumes/kubernetes.io~csi/pvc-data/mount"));
    assert!(mounts::is_mount_point(&target).unwrap());
    assert_eq!(provisioner.users(&data).publications.len(), 1, "an ended Pod has its volume until it is released");
    for _ in 0..2 {
        node.release(&sandbox);
        assert_eq!(provisioner.users(&data), Users::default());
    }
    assert!(!target.exists());

    // Root writes without a group, and a claim that is mounted to be read only is never written to.
    let fixed = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}});
    for (volume, script) in [
        (claim("data"), "cat /data/f && echo more >> /data/f"),
        (fixed, "cat /data/f; touch /data/x 2>/dev/null || echo refused"),
    ] {
        let mounts = json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]});
        let pod = node.pod(json!({
            "restartPolicy": "Never", "volumes": [volume], "containers": [with(shell(script), mounts)]}));
        let sandbox = node.start_with(&pod, &inputs);
        assert_eq!(exit_of(&until_gone(&sandbox), "c").code, 0, "{}", node.logs(&sandbox));
        if script.contains("touch") {
            assert_eq!(node.logs(&sandbox), "kept\nmore\nrefused\n");
        }
        node.release(&sandbox);
    }
    provisioner.engine.delete_volume(data.volume.id.as_str()).unwrap();
}

pub(crate) fn a_block_claim_is_a_device_of_the_containers_user() {
    let node = TestNode::new();
    let provisioner = Provisioner::of(&node);
    let disk = provisioner.provision("disk", Kind::Block, "ReadWriteOnce");
    let inputs = inputs(&[&disk]);
    let user = json!({"runAsUser": 107, "runAsGroup": 107, "fsGroup": 107, "runAsNonRoot": true});
    // In /dev as in a launcher, below the root, and in a directory of the node as in an attachment Pod.
    let uses = json!({
        "volumeDevices": [
            {"name": "disk", "devicePath": "/dev/disk"},
            {"name": "disk", "devicePath": "/xvda"},
            {"name": "disk", "devicePath": "/path/disk/uid"}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/path", "mountPropagation": "HostToContainer"}]});
    let script = "set -e; for d in /dev/disk /xvda /path/disk/uid; do stat -c '%F %u %g %a' $d; done; \
                  echo written | dd of=/dev/disk conv=fsync 2>/dev/null; head -c 7 /xvda; head -c 7 /path/disk/uid; \
                  blockdev --getsize64 /dev/disk; ls -A /dev | grep -c '^.block' || true; [ -e /again ] || exit 1";
    let pod = node.pod(json!({
        "restartPolicy": "OnFailure", "securityContext": user,
        "volumes": [claim("disk"), {"name": "scratch", "emptyDir": {}}],
        "containers": [with(shell(script), uses)],
    }));
    let sandbox = node.start_with(&pod, &inputs);
    // Twice, since a container that starts again finds what it left.
    let once = format!("{}written{}{}\n0\n", "block special file 107 107 660\n".repeat(3), "written", 8 << 20);
    until("two runs", || (node.logs(&sandbox) == once.repeat(2)).then_some(()));
    let on_node = sandbox.paths().volume("empty-dir", "scratch").join("disk/uid");
    let target = sandbox.paths().claim("pvc-disk", true);
    assert!(target.ends_with("volumeDevices/kubernetes.io~csi/pvc-disk"));
    let device = fs::metadata(&target).unwrap();
    assert!(device.file_type().is_block_device());
    assert_eq!(fs::metadata(&on_node).unwrap().rdev(), device.rdev(), "virt-handler finds the device there");
    assert_eq!(attached(node.path()), [provisioner.engine.content(&disk.volume)]);
    end(&node, &sandbox);
    assert_eq!(attached(node.path()), Vec::<PathBuf>::new());
    assert_eq!(provisioner.users(&disk), Users::default());
    assert!(fs::read(provisioner.engine.content(&disk.volume)).unwrap().starts_with(b"written\n"));
    provisioner.engine.delete_volume(disk.volume.id.as_str()).unwrap();
}

pub(crate) fn a_claim_in_use_on_another_node_is_waited_for() {
    let (first, provisioner);
    first = TestNode::new();
    provisioner = Provisioner::of(&first);
    let second = TestNode::beside(&first);
    let own = provisioner.provision("own", Kind::Block, "ReadWriteOnce");
    let shared = provisioner.provision("shared", Kind::Filesystem, "ReadWriteMany");
    let inputs = inputs(&[&own, &shared]);
    let pod = |node: &TestNode, name: &str| -> Pod {
        let uses = json!({
            "volumeDevices": [{"name": "own", "devicePath": "/dev/own"}],
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
        let script = format!("echo {name} > /shared/{name}; exec sleep 1000");
        let mut pod = node.pod(json!({
            "restartPolicy": "Never", "volumes": [claim("own"), claim("shared")],
            "containers": [with(shell(&script), uses)]}));
        pod.metadata.name = Some(name.to_owned());
        pod
    };
    let running = first.start_with(&pod(&first, "a"), &inputs);
    until_running(&running);
    let beside = first.start_with(&pod(&first, "b"), &inputs);
    until_running(&beside);
    assert_eq!(attached(first.path()).len(), 1, "Pods of one node share the device");

    let late = pod(&second, "c");
    let waits = blocked(second.try_start(&late, &inputs));
    assert_eq!(waits.reason, FAILED_ATTACH);
    for part in ["Multi-Attach error", "\"pvc-own\"", "PVC default/own", "Pod default/a on node n1", "Pod default/b"] {
        assert!(waits.message.contains(part), "no {part:?} in {}", waits.message);
    }
    end(&first, &running);
    assert!(!blocked(second.try_start(&late, &inputs)).message.contains("default/a"), "only who still uses it");
    end(&first, &beside);
    let sandbox = second.start_with(&late, &inputs);
    until_running(&sandbox);
    let refused = blocked(first.try_start(&pod(&first, "d"), &inputs));
    assert!(refused.message.contains("Pod default/c on node n2"), "{}", refused.message);

    // The other claim is for all of them.
    let only_shared = |node: &TestNode| {
        let mounts = json!({"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
        let script = "cat /shared/a /shared/c; exec sleep 1000";
        node.pod(json!({
            "restartPolicy": "Never", "volumes": [claim("shared")], "containers": [with(shell(script), mounts)]}))
    };
    let reader = first.start_with(&only_shared(&first), &inputs);
    until_logged(&first, &reader, "c");
    let nodes: Vec<String> =
        provisioner.users(&shared).publications.into_iter().map(|p| p.node.as_str().to_owned()).collect();
    assert!(nodes.contains(&"n1".to_owned()) && nodes.contains(&"n2".to_owned()), "{nodes:?}");
}

pub(crate) fn a_claim_that_is_being_filled_or_of_the_wrong_mode_is_waited_for() {
    let node = TestNode::new();
    let provisioner = Provisioner::of(&node);
    let disk = provisioner.provision("disk", Kind::Block, "ReadWriteOnce");
    let inputs = inputs(&[&disk]);
    let pod = |uses: Value| {
        node.pod(json!({
            "restartPolicy": "Never", "volumes": [claim("disk")], "containers": [with(shell("true"), uses)]}))
    };
    let device = json!({"volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}]});
    let mount = json!({"volumeMounts": [{"name": "disk", "mountPath": "/disk"}]});
    let waits = blocked(node.try_start(&pod(mount), &inputs));
    assert_eq!(waits.reason, FAILED_MOUNT);
    assert!(waits.message.contains("has volumeMode Block, but is specified in volumeMounts"), "{}", waits.message);
    let waits = blocked(node.try_start(&pod(device.clone()), &Inputs::default()));
    assert!(waits.message.contains("persistentvolumeclaim \"disk\" not found"), "{}", waits.message);

    let id = disk.volume.id.as_str();
    provisioner.engine.hold(id, "the import of the claim default/disk").unwrap();
    let pod = pod(device);
    let waits = blocked(node.try_start(&pod, &inputs));
    assert_eq!(waits.reason, FAILED_MOUNT);
    assert!(waits.message.contains("the import of the claim default/disk"), "{}", waits.message);
    provisioner.engine.release_hold(id, "the import of the claim default/disk").unwrap();
    until_gone(&node.start_with(&pod, &inputs));
}

/// A Pod that has both kinds of claims.
fn pod_with_both(node: &TestNode) -> Pod {
    let uses = json!({
        "volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    node.pod(json!({
        "restartPolicy": "Never", "volumes": [claim("disk"), claim("data")],
        "containers": [with(shell("echo x > /data/x; exec sleep 1000 < /dev/disk"), uses)]}))
}

pub(crate) fn claims_outlive_a_killed_node_process_and_are_given_back_without_it() {
    let node = TestNode::new();
    let provisioner = Provisioner::of(&node);
    let disk = provisioner.provision("disk", Kind::Block, "ReadWriteOnce");
    let data = provisioner.provision("data", Kind::Filesystem, "ReadWriteOnce");
    let inputs = inputs(&[&disk, &data]);
    let pod = pod_with_both(&node);
    let sandbox = node.sandbox(&pod);
    let mut process = driver_with(&node, &pod, &inputs);
    until("a state of the Pod", || sandbox.observe().unwrap());
    until_running(&sandbox);
    process.kill().unwrap();
    process.wait().unwrap();

    // The next process finds the device grown, and a mount of the node gone.
    let id = disk.volume.id.as_str();
    provisioner.engine.grow(id, Range { required: 16 * MIB, limit: 0 }).unwrap();
    let target = sandbox.paths().claim("pvc-data", false);
    mounts::umount_all_below(&target).unwrap();
    sandbox.adopt().unwrap();
    assert!(mounts::is_mount_point(&target).unwrap());
    assert_eq!(node.exec(&pod, &["blockdev", "--getsize64", "/dev/disk"]).stdout, b"16777216\n");
    assert_eq!(node.exec(&pod, &["cat", "/data/x"]).stdout, b"x\n");
    assert!(provisioner.engine.delete_volume(id).is_err(), "a volume of a running Pod is never deleted");

    // Nobody is left who knows the engine: the records say where it is.
    ns::run_in_netns(&node.netns, || pod_runner::destroy_all(&node.host.pods_dir)).unwrap().unwrap();
    assert_eq!(attached(node.path()), Vec::<PathBuf>::new());
    for one in [&disk, &data] {
        assert_eq!(provisioner.users(one), Users::default());
        provisioner.engine.delete_volume(one.volume.id.as_str()).unwrap();
    }
}

pub(crate) fn a_driver_killed_while_it_publishes_leaves_claims_that_can_be_used_and_given_back() {
    for delay in [0, 4, 8, 12, 16, 20, 24, 28, 32, 40, 50, 70, 100] {
        let node = TestNode::new();
        let provisioner = Provisioner::of(&node);
        let disk = provisioner.provision("disk", Kind::Block, "ReadWriteOnce");
        let data = provisioner.provision("data", Kind::Filesystem, "ReadWriteOnce");
        let inputs = inputs(&[&disk, &data]);
        let pod = pod_with_both(&node);
        let sandbox = node.sandbox(&pod);
        let mut process = driver_with(&node, &pod, &inputs);
        std::thread::sleep(Duration::from_millis(delay));
        process.kill().unwrap();
        process.wait().unwrap();
        let started = sandbox.observe().unwrap().is_some_and(|seen| seen.shim != ShimState::NotStarted);
        // Half of them are never started again, but removed as they are.
        if delay % 8 == 0 || started {
            if !started {
                node.start_with(&pod, &inputs);
            }
            until_running(&sandbox);
            assert_eq!(attached(node.path()).len(), 1, "after {delay} ms");
        }
        ns::run_in_netns(&node.netns, || pod_runner::destroy_all(&node.host.pods_dir)).unwrap().unwrap();
        for one in [&disk, &data] {
            assert_eq!(provisioner.users(one), Users::default(), "after {delay} ms");
        }
        assert_eq!(attached(node.path()), Vec::<PathBuf>::new(), "after {delay} ms");
    }
}

pub(crate) fn what_the_node_mounts_later_reaches_a_running_launcher() {
    let node = TestNode::new();
    let provisioner = Provisioner::of(&node);
    let disk = provisioner.provision("disk", Kind::Block, "ReadWriteOnce");
    let data = provisioner.provision("data", Kind::Filesystem, "ReadWriteOnce");
    let inputs = inputs(&[&disk, &data]);
    let launcher = node.pod(json!({
        "restartPolicy": "Never", "securityContext": {"runAsUser": 107, "runAsGroup": 107, "fsGroup": 107},
        "volumes": [{"name": "public", "emptyDir": {}}, {"name": "hotplug-disks", "emptyDir": {}}],
        "containers": [with(shell("exec sleep 1000"), json!({"volumeMounts": [
            {"name": "public", "mountPath": "/var/run/kubevirt"},
            {"name": "hotplug-disks", "mountPath": "/var/run/kubevirt/hotplug-disks",
             "mountPropagation": "HostToContainer"}]}))]}));
    let sandbox = node.start(&launcher);
    until_running(&sandbox);
    // The attachment Pod brings the volumes to the node; it uses only one of them.
    let attachment = node.pod(json!({
        "restartPolicy": "Never", "volumes": [claim("disk"), claim("data")],
        "containers": [with(shell("exec sleep 1000"), json!({
            "volumeDevices": [{"name": "disk", "devicePath": "/path/disk/uid"}]}))]}));
    let attached = node.start_with(&attachment, &inputs);
    until_running(&attached);
    let source = attached.paths().claim("pvc-data", false);
    assert!(mounts::is_mount_point(&source).unwrap(), "the node keeps what a Pod lists");

    let hotplug = sandbox.paths().volume("empty-dir", "hotplug-disks");
    fs::write(source.join("disk.img"), "image").unwrap();
    fs::write(hotplug.join("data.img"), "").unwrap();
    mounts::bind(source.join("disk.img"), hotplug.join("data.img")).unwrap();
    let device = fs::metadata(attached.paths().claim("pvc-disk", true)).unwrap().rdev();
    let place = hotplug.join("disk");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &place, rustix::fs::FileType::BlockDevice, mode, device).unwrap();
    std::os::unix::fs::chown(&place, Some(107), Some(107)).unwrap();

    let directory = "/var/run/kubevirt/hotplug-disks";
    assert_eq!(node.exec(&launcher, &["cat", &format!("{directory}/data.img")]).stdout, b"image");
    let written = node.exec(&launcher, &["dd", "if=/dev/zero", &format!("of={directory}/disk"), "bs=4096", "count=1"]);
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));

    // What the launcher has stays when the attachment Pod goes, and the launcher's end lets go of it.
    mounts::umount_all_below(hotplug.join("data.img")).unwrap();
    let gone = node.exec(&launcher, &["cat", &format!("{directory}/data.img")]);
    assert_eq!(gone.stdout, b"", "an unmount reaches the launcher, too");
    end(&node, &attached);
    end(&node, &sandbox);
    for one in [&disk, &data] {
        assert_eq!(provisioner.users(one), Users::default());
    }
}

pub(crate) fn a_directory_of_the_machine_is_a_volume_where_its_type_fits() {
    let node = TestNode::new();
    let home = node.path().join("host");
    fs::create_dir(&home).unwrap();
    fs::write(home.join("file"), "").unwrap();
    let pod = |path: &Path, kind: &str| {
        let mounts = json!({"volumeMounts": [{"name": "host", "mountPath": "/host"}]});
        node.pod(json!({
            "restartPolicy": "Never", "volumes": [{"name": "host", "hostPath": {"path": path, "type": kind}}],
            "containers": [with(shell("touch /host/made"), mounts)]}))
    };
    for (path, kind) in [("made/here", "DirectoryOrCreate"), ("", "Directory"), ("", "")] {
        let path = home.join(path);
        until_gone(&node.start(&pod(&path, kind)));
        assert!(path.join("made").exists());
    }
    for (path, kind, why) in [
        ("nowhere", "Directory", "is not a directory"),
        ("file", "DirectoryOrCreate", "is not a directory"),
        ("nowhere", "", "is not there"),
        ("made", "File", "is not a file"),
    ] {
        // What is in the way of a directory is an error of the making; the rest waits for somebody to mend it.
        match node.try_start(&pod(&home.join(path), kind), &Inputs::default()) {
            Err(StartFailure::Blocked(blocked)) => {
                assert_eq!(blocked.reason, FAILED_MOUNT);
                assert!(blocked.message.contains(why), "{}", blocked.message);
            }
            other => panic!("{path} {kind}: {other:?}"),
        }
    }

    // The same as a PersistentVolume that a user has made.
    let provisioner = Provisioner::of(&node);
    let mut own = provisioner.provision("own", Kind::Filesystem, "ReadWriteOnce");
    let spec = own.claim.volume.as_mut().unwrap().spec.as_mut().unwrap();
    spec.csi = None;
    spec.host_path = Some(serde_json::from_value(json!({"path": home.join("pv")})).unwrap());
    let inputs = inputs(&[&own]);
    let mounts = json!({"volumeMounts": [{"name": "own", "mountPath": "/own"}]});
    let pod = node.pod(json!({
        "restartPolicy": "Never", "volumes": [claim("own")],
        "containers": [with(shell("touch /own/made"), mounts)]}));
    assert_eq!(blocked(node.try_start(&pod, &inputs)).reason, FAILED_MOUNT);
    fs::create_dir(home.join("pv")).unwrap();
    until_gone(&node.start_with(&pod, &inputs));
    assert!(home.join("pv/made").exists());
}

/// The size of a device, as a process outside of any Pod sees it.
pub(crate) fn size_of(device: &Path) -> u64 {
    fs::File::open(device).unwrap().seek(SeekFrom::End(0)).unwrap()
}
