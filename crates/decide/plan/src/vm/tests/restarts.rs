//! Which changes need a restart.

use api::conditions::RESTART_REQUIRED;

use super::*;

fn restart(w: &World) -> Option<String> {
    status_after(w).condition(RESTART_REQUIRED).map(|condition| condition.message().to_owned())
}

fn template(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn root() -> Value {
    json!({"name": "root", "containerDisk": {"image": "disk:1"}})
}

fn claim_volume(name: &str, claim: &str, hotpluggable: bool) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": claim, "hotpluggable": hotpluggable}})
}

/// A running machine started from one template and changed to another.
fn between(before: Value, after: Value) -> World {
    let started = with(vm("Manual"), template(before));
    let mut changed = with(started.clone(), template(after));
    changed.metadata.generation = Some(4);
    World { revisions: vec![Arc::new(revision(&started))], ..world(changed, Some(vmi("Running"))) }
}

#[test]
fn each_kind_of_change_needs_a_restart_or_does_not() {
    let disks = |list: Value| json!({"domain": {"devices": {"disks": list}}});
    let volumes = |list: Value| json!({"volumes": list});
    let both = |v: Value, d: Value| json!({"volumes": v, "domain": {"devices": {"disks": d}}});
    let hot = claim_volume("hot", "a", true);
    let hot_b = claim_volume("hot", "b", true);
    let rows = [
        ("nothing", json!({}), json!({}), false),
        ("cores", json!({}), json!({"domain": {"cpu": {"cores": 4}}}), true),
        ("hostname", json!({}), json!({"hostname": "h"}), true),
        ("node selector", json!({}), json!({"nodeSelector": {"a": "b"}}), false),
        ("tolerations", json!({}), json!({"tolerations": [{"key": "k"}]}), false),
        ("affinity", json!({}), json!({"affinity": {"nodeAffinity": {}}}), false),
        ("a plain volume", volumes(json!([root()])), volumes(json!([root(), claim_volume("new", "a", false)])), true),
        ("a pluggable volume", volumes(json!([root()])), volumes(json!([root(), hot])), false),
        ("another claim of a pluggable volume", volumes(json!([root(), hot])), volumes(json!([root(), hot_b])), false),
        ("a pluggable volume gone", volumes(json!([root(), hot])), volumes(json!([root()])), false),
        (
            "a plain volume gone",
            volumes(json!([root(), claim_volume("p", "a", false)])),
            volumes(json!([root()])),
            true,
        ),
        (
            "another image",
            volumes(json!([root()])),
            volumes(json!([{"name": "root", "containerDisk": {"image": "disk:2"}}])),
            true,
        ),
        (
            "a disk of a pluggable volume",
            volumes(json!([root()])),
            both(json!([root(), hot]), json!([{"name": "hot", "disk": {"bus": "scsi"}}])),
            false,
        ),
        ("a disk of nothing", disks(json!([])), disks(json!([{"name": "x", "disk": {}}])), true),
        (
            "a changed disk",
            disks(json!([{"name": "root", "disk": {"bus": "sata"}}])),
            disks(json!([{"name": "root", "disk": {"bus": "virtio"}}])),
            true,
        ),
        ("a plain disk gone", disks(json!([{"name": "root", "disk": {}}])), disks(json!([])), true),
        (
            "a pluggable disk gone",
            both(json!([root(), hot]), json!([{"name": "hot", "disk": {}}])),
            both(json!([root()]), json!([])),
            false,
        ),
        (
            "a CD-ROM gone",
            both(json!([root(), hot]), json!([{"name": "hot", "cdrom": {}}])),
            both(json!([root()]), json!([])),
            true,
        ),
        (
            "a disc ejected",
            both(json!([root(), hot]), json!([{"name": "hot", "cdrom": {}}])),
            both(json!([root()]), json!([{"name": "hot", "cdrom": {}}])),
            false,
        ),
    ];
    for (what, before, after, expected) in rows {
        let w = between(before, after);
        assert_eq!(restart(&w).is_some(), expected, "{what}");
    }
}

#[test]
fn where_changes_wait_for_a_restart_all_of_them_do() {
    let stage = || config(json!({"vmRolloutStrategy": "Stage"}));
    for change in [
        json!({"nodeSelector": {"a": "b"}}),
        json!({"domain": {"cpu": {"sockets": 2}}}),
        json!({"tolerations": [{"key": "k"}]}),
        json!({"domain": {"memory": {"guest": "2Gi"}}}),
    ] {
        let w = World { config: stage(), ..between(json!({}), change.clone()) };
        assert!(restart(&w).is_some(), "{change}");
        assert!(instance_after(&w).is_none(), "{change}");
    }
}

#[test]
fn another_claim_is_no_restart_where_volumes_migrate() {
    let volumes = |claim: &str| json!({"volumes": [root(), claim_volume("data", claim, false)]});
    let mut w = between(volumes("a"), volumes("b"));
    assert!(restart(&w).is_some());
    w.vm = Arc::new(with((*w.vm).clone(), json!({"spec": {"updateVolumesStrategy": "Migration"}})));
    assert_eq!(restart(&w), None);
}

#[test]
fn networks_need_a_restart_unless_they_can_be_plugged() {
    let nets = |interfaces: Value, networks: Value| json!({"domain": {"devices": {"interfaces": interfaces}}, "networks": networks});
    let pod = (json!({"name": "default", "masquerade": {}}), json!({"name": "default", "pod": {}}));
    let blue = (json!({"name": "blue", "bridge": {}}), json!({"name": "blue", "multus": {"networkName": "blue"}}));
    let base = nets(json!([pod.0]), json!([pod.1]));
    let rows = [
        ("a bridge plugged", nets(json!([pod.0, blue.0]), json!([pod.1, blue.1])), false),
        ("the state", nets(json!([{"name": "default", "masquerade": {}, "state": "down"}]), json!([pod.1])), false),
        ("the model", nets(json!([{"name": "default", "masquerade": {}, "model": "e1000"}]), json!([pod.1])), true),
        ("one gone", nets(json!([]), json!([])), true),
    ];
    for (what, after, expected) in rows {
        let mut w = between(base.clone(), after);
        w.vmi = Some(Arc::new(with(vmi("Running"), json!({"spec": base}))));
        assert_eq!(restart(&w).is_some(), expected, "{what}");
    }
    let elsewhere = json!({"name": "blue", "multus": {"networkName": "green"}});
    let (before, after) = (nets(json!([blue.0]), json!([blue.1])), nets(json!([blue.0]), json!([elsewhere])));
    let mut w = between(before.clone(), after);
    let running = with(vmi("Running"), json!({"spec": before}));
    w.vmi = Some(Arc::new(running.clone()));
    assert!(restart(&w).is_some(), "it cannot follow");
    let movable = json!({"status": {"conditions": [{"type": "LiveMigratable", "status": "True"}]}});
    w.vmi = Some(Arc::new(with(running, movable)));
    assert_eq!(restart(&w), None, "it can");
    assert_eq!(instance_after(&w).unwrap().spec.networks[0].source().multus().unwrap().network_name, "green");
}

#[test]
fn taking_a_change_back_takes_the_condition_back() {
    let w = between(json!({}), json!({"hostname": "h"}));
    let told = status_after(&w);
    let mut back = with(told, json!({"spec": {"template": {"spec": {"hostname": null}}}}));
    back.metadata.generation = Some(5);
    let w = World { vm: Arc::new(back), ..w };
    assert_eq!(restart(&w), None);
}

#[test]
fn a_need_that_cannot_be_judged_stays_as_it_was() {
    let w = between(json!({}), json!({"hostname": "h"}));
    let told = World { vm: Arc::new(status_after(&w)), revisions: vec![], ..w };
    assert!(restart(&told).is_some());
    let live = json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}});
    let moved = World { vm: Arc::new(with((*told.vm).clone(), live)), ..told };
    assert!(instance_after(&moved).is_none(), "nothing is brought before the restart");
    let stopped = World { vmi: None, ..moved };
    assert_eq!(restart(&stopped), None);
}
