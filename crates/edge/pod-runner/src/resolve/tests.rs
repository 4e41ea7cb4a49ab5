//! Whole Pods through the resolution.

use super::*;
use crate::record::{MountSource, RootSource};
use podstate::{NEVER_PULL, PULL_ERROR, check};
use serde_json::{Value, json};
use std::path::Path;

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": UID, "labels": {"app": "web"}},
        "spec": spec,
    }))
    .unwrap()
}

/// A claim with its volume `pv-NAME`.
fn claim(name: &str, mode: &str) -> Claim {
    let volume = json!({"spec": {
        "volumeMode": mode, "accessModes": ["ReadWriteOnce"], "claimRef": {"uid": name},
        "csi": {"driver": "csi.ferrovirt.io", "volumeHandle": format!("vol-{name}")}}});
    let claim = json!({
        "metadata": {"name": name, "uid": name}, "spec": {"volumeName": format!("pv-{name}")},
        "status": {"phase": "Bound"}});
    Claim { claim: Some(serde_json::from_value(claim).unwrap()), volume: Some(serde_json::from_value(volume).unwrap()) }
}

fn inputs() -> Inputs {
    let map = json!({"metadata": {"name": "settings"}, "data": {"color": "blue", "size": "9"}});
    let secret = json!({"metadata": {"name": "keys"}, "data": {"token": "czNjcjN0"}});
    Inputs {
        config_maps: BTreeMap::from([
            ("settings".to_owned(), Some(serde_json::from_value(map).unwrap())),
            ("gone".to_owned(), None),
        ]),
        secrets: BTreeMap::from([("keys".to_owned(), Some(serde_json::from_value(secret).unwrap()))]),
        claims: BTreeMap::from([
            ("disk".to_owned(), claim("disk", "Block")),
            ("data".to_owned(), claim("data", "Filesystem")),
        ]),
    }
}

fn run(spec: Value) -> Result<Resolved, Blocked> {
    let pod = pod(spec);
    let spec = check(&pod).expect("supported");
    let node = NodeFacts {
        name: "n1".into(),
        address: Ipv4Addr::new(10, 201, 0, 11),
        images_dir: "/nowhere/images".into(),
        exe: "/opt/ferrovirt".into(),
        dns: Dns::default(),
        memory_bytes: 1 << 30,
    };
    let paths = PodPaths::new(Path::new("/p"), &UID.parse().unwrap());
    resolve(&pod, spec, &paths, &node, &inputs(), Ipv4Addr::new(10, 244, 1, 7), "ferrovirt/pod1")
}

fn container(extra: Value) -> Value {
    let mut container = json!({"name": "c", "image": "ferrovirt.io/host", "command": ["sh"]});
    for (key, value) in extra.as_object().unwrap() {
        container[key] = value.clone();
    }
    container
}

#[test]
fn environment_and_command_see_all_sources() {
    let resolved = run(json!({"containers": [container(json!({
        "args": ["-c", "echo $(COLOR) $(MISSING)"],
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "S_"}, {"secretRef": {"name": "none", "optional": true}}],
        "env": [
            {"name": "COLOR", "value": "$(S_color)!"},
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "APP", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "x", "optional": true}}},
        ],
    }))]}))
    .unwrap();
    let c = &resolved.spec.containers[0];
    assert_eq!(c.argv, ["sh", "-c", "echo blue! $(MISSING)"]);
    for (name, value) in [("S_size", "9"), ("TOKEN", "s3cr3t"), ("IP", "10.244.1.7"), ("APP", "web"), ("HOME", "/root")]
    {
        assert_eq!(c.env.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert!(c.env["PATH"].starts_with("/ferrovirt/bin:/usr/local/sbin:"));
    assert!(!c.env.contains_key("NONE"));
    assert_eq!(c.root, RootSource::Host);
}

#[test]
fn volumes_are_planned_and_mounted_parents_first() {
    let resolved = run(json!({
        "securityContext": {"fsGroup": 107},
        "volumes": [
            {"name": "sockets", "emptyDir": {}},
            {"name": "public", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "cfg", "configMap": {"name": "settings", "items": [{"key": "color", "path": "c.txt", "mode": 384}]}},
            {"name": "info", "downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ],
        "containers": [container(json!({"volumeMounts": [
            {"name": "sockets", "mountPath": "/var/run/kubevirt/sockets"},
            {"name": "public", "mountPath": "/var/run/kubevirt"},
            {"name": "cfg", "mountPath": "/etc/cfg.txt", "subPath": "c.txt"},
        ]}))],
    }))
    .unwrap();
    let base = "/p/11111111-2222-3333-4444-555555555555/volumes/";
    assert_eq!(
        resolved.volumes["sockets"],
        VolumePlan::EmptyDir { dir: format!("{base}kubernetes.io~empty-dir/sockets").into() }
    );
    assert!(matches!(resolved.volumes["public"], VolumePlan::MemoryDir { size: Some(1048576), .. }));
    let VolumePlan::Files { files, .. } = &resolved.volumes["cfg"] else { panic!("files") };
    assert_eq!(files["c.txt"], FileContent { bytes: b"blue".to_vec(), mode: 0o600 });
    let VolumePlan::Files { files, .. } = &resolved.volumes["info"] else { panic!("files") };
    assert_eq!(files["labels"].bytes, b"app=\"web\"");

    let mounts = &resolved.spec.containers[0].mounts;
    let targets: Vec<_> = mounts.iter().map(|m| (m.target.as_str(), m.read_only)).collect();
    assert_eq!(targets, [("/etc/cfg.txt", true), ("/var/run/kubevirt", false), ("/var/run/kubevirt/sockets", false)]);
    assert!(matches!(&mounts[0].source, MountSource::Path(p) if p.ends_with("kubernetes.io~configmap/cfg")));
    assert_eq!(resolved.fs_group, Some(ownership::Group { gid: 107, on_root_mismatch: false }));
}

#[test]
fn hosts_and_resolver_are_the_pods_own() {
    let resolved = run(json!({
        "hostname": "vm", "subdomain": "pool", "dnsConfig": {"nameservers": ["10.9.9.9"], "options": [{"name": "edns0"}]},
        "hostAliases": [{"ip": "10.1.1.1", "hostnames": ["a", "b"]}],
        "containers": [container(json!({}))],
    }))
    .unwrap();
    let etc = &resolved.spec.etc;
    assert_eq!(etc["hostname"], "vm\n");
    assert!(
        etc["hosts"].contains("10.244.1.7\tvm.pool.shop.svc.cluster.local\tvm\n10.1.1.1\ta\tb\n"),
        "{}",
        etc["hosts"]
    );
    assert_eq!(
        etc["resolv.conf"],
        "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.9.9.9\noptions ndots:5 edns0\n"
    );
}

#[test]
fn what_is_missing_blocks_with_a_reason_and_a_remedy() {
    let cases = [
        (json!({"image": "example.com/x"}), PULL_ERROR, "ferrovirt image import example.com/x DIR|TAR"),
        (
            json!({"image": "example.com/x", "imagePullPolicy": "Never"}),
            NEVER_PULL,
            "is not in this machine's image store",
        ),
        (json!({"command": []}), CONFIG_ERROR, "set command"),
        (
            json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}]}),
            CONFIG_ERROR,
            "ConfigMap gone does not exist",
        ),
        (
            json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}]}),
            CONFIG_ERROR,
            "ConfigMap settings has no key k",
        ),
        (json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}), CONFIG_ERROR, "a volume v that is not there"),
        (json!({"resources": {"limits": {"memory": "lots"}}}), CONFIG_ERROR, "\"lots\" is not a quantity"),
    ];
    for (extra, reason, message) in cases {
        let blocked = run(json!({"containers": [container(extra.clone())]})).unwrap_err();
        assert_eq!(blocked.reason, reason, "{extra}");
        assert!(blocked.message.contains(message), "{}", blocked.message);
    }
}

#[test]
fn what_cannot_be_honoured_is_refused_by_its_field() {
    let cases = [
        (json!({"hostNetwork": true}), "spec.hostNetwork"),
        (json!({"activeDeadlineSeconds": 5}), "spec.activeDeadlineSeconds"),
        (json!({"initContainers": [{"name": "s", "restartPolicy": "Always"}]}), "spec.initContainers[0].restartPolicy"),
        (
            json!({"containers": [{"name": "a"}, {"name": "b", "livenessProbe": {}}]}),
            "spec.containers[1].livenessProbe",
        ),
        (
            json!({"containers": [{"name": "a", "securityContext": {"privileged": true}}]}),
            "spec.containers[0].securityContext.privileged",
        ),
        (json!({"volumes": [{"name": "d", "nfs": {"server": "x", "path": "/"}}]}), "spec.volumes[0]"),
        (json!({"volumes": [{"name": "d", "emptyDir": {"medium": "HugePages"}}]}), "spec.volumes[0].emptyDir.medium"),
    ];
    for (extra, field) in cases {
        let mut spec = json!({"containers": [{"name": "a"}]});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        assert_eq!(check(&pod(spec)).unwrap_err().field, field);
    }
}

#[test]
fn references_name_every_object_that_is_needed() {
    let pod = pod(json!({
        "volumes": [{"name": "a", "configMap": {"name": "m1"}}, {"name": "b", "secret": {"secretName": "s1"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        "initContainers": [container(json!({"envFrom": [{"secretRef": {"name": "s2"}}]}))],
        "containers": [container(json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m2", "key": "k"}}}]}))],
    }));
    let found = references(pod.spec.as_ref().unwrap());
    let set = |names: [&str; 2]| names.into_iter().map(str::to_owned).collect();
    assert_eq!(
        found,
        References { config_maps: set(["m1", "m2"]), secrets: set(["s1", "s2"]), claims: set(["disk", "data"]) }
    );
}

#[test]
fn claims_are_directories_or_devices_of_the_containers_user() {
    let volumes = json!([
        {"name": "root", "persistentVolumeClaim": {"claimName": "disk"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
    ]);
    let uses = json!({
        "volumeDevices": [{"name": "root", "devicePath": "/dev/root"}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
    let resolved = |context: Value, uses: &Value| {
        run(json!({"securityContext": context, "volumes": volumes, "containers": [container(uses.clone())]}))
    };
    for (context, owner) in [
        (json!({}), (0, 0)),
        (json!({"runAsUser": 107, "fsGroup": 5}), (107, 5)),
        (json!({"runAsUser": 107, "runAsGroup": 108, "fsGroup": 5}), (107, 108)),
    ] {
        let resolved = resolved(context, &uses).unwrap();
        let (device, mount) = (&resolved.spec.containers[0].block_devices[0], &resolved.spec.containers[0].mounts[0]);
        let in_pod = |path: &str| Path::new("/p").join(UID).join(path);
        assert_eq!(device.source, in_pod("volumeDevices/kubernetes.io~csi/pv-disk"));
        assert_eq!((device.target.as_str(), device.uid, device.gid), ("/dev/root", owner.0, owner.1));
        assert_eq!(mount.source, MountSource::Path(in_pod("volumes/kubernetes.io~csi/pv-data/mount")));
        assert!(mount.read_only);
        assert_eq!(resolved.volumes.len(), 2);
    }
    for (uses, why) in [
        (
            json!({"volumeMounts": [{"name": "root", "mountPath": "/x"}]}),
            "volumeMode Block, but is specified in volumeMounts",
        ),
        (
            json!({"volumeDevices": [{"name": "data", "devicePath": "/x"}]}),
            "volumeMode Filesystem, but is specified in volumeDevices",
        ),
        (json!({"volumeDevices": [{"name": "none", "devicePath": "/x"}]}), "uses the volume none as a device"),
        (json!({"volumeDevices": [{"name": "root", "devicePath": "/dev/../etc"}]}), "must be absolute"),
    ] {
        let blocked = resolved(json!({}), &uses).unwrap_err();
        assert!(blocked.message.contains(why), "{}", blocked.message);
    }
}
