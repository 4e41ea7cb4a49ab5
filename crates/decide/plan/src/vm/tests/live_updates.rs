//! Changes that reach a running guest, and what holds them up.

use api::conditions::RESTART_REQUIRED;

use super::*;

const GIB: i64 = 1 << 30;

fn restart(w: &World) -> Option<String> {
    status_after(w).condition(RESTART_REQUIRED).map(|condition| condition.message().to_owned())
}

/// A guest of two sockets and 2 GiB that can grow to eight and 8 GiB, and a change of its template.
fn running(change: Value, vmi_change: Value) -> World {
    let size = json!({"architecture": "amd64", "domain": {
        "cpu": {"sockets": 2, "cores": 2, "threads": 1}, "memory": {"guest": "2Gi"}}});
    let started = with(vm("Manual"), json!({"spec": {"template": {"spec": size}}}));
    let mut after = with(started.clone(), json!({"spec": {"template": {"spec": change}}}));
    after.metadata.generation = Some(4);
    let grown = json!({"spec": {"architecture": "amd64", "domain": {
            "cpu": {"sockets": 2, "cores": 2, "threads": 1, "maxSockets": 8},
            "memory": {"guest": "2Gi", "maxGuest": "8Gi"}}},
        "status": {"memory": {"guestAtBoot": "2Gi", "guestCurrent": "2Gi", "guestRequested": "2Gi"},
                   "conditions": [{"type": "LiveMigratable", "status": "True"}]}});
    let vmi = with(with(vmi("Running"), grown), vmi_change);
    World { revisions: vec![Arc::new(revision(&started))], ..world(after, Some(vmi)) }
}

fn sockets(count: u32) -> Value {
    json!({"domain": {"cpu": {"sockets": count}}})
}

fn memory(guest: &str) -> Value {
    json!({"domain": {"memory": {"guest": guest}}})
}

fn condition(type_: &str, status: &str) -> Value {
    json!({"status": {"conditions": [{"type": "LiveMigratable", "status": "True"}, {"type": type_, "status": status}]}})
}

fn migrating() -> Value {
    json!({"status": {"migrationState": {"startTimestamp": time(50)}}})
}

#[test]
fn more_sockets_reach_the_instance_with_their_share_of_the_request() {
    let w = running(sockets(4), json!({}));
    let after = instance_after(&w).unwrap();
    assert_eq!(after.spec.domain.cpu.as_ref().unwrap().sockets, Some(4));
    assert_eq!(after.spec.domain.resources, None, "nothing was asked for");
    assert_eq!(restart(&w), None);

    let asked = |vm: Value| json!({"domain": {"cpu": {"sockets": 4}, "resources": vm}});
    let resources = json!({"requests": {"cpu": "400m"}, "limits": {"cpu": "1"}});
    let mut w = running(asked(resources.clone()), json!({"spec": {"domain": {"resources": resources}}}));
    let started = with((*w.vm).clone(), json!({"spec": {"template": {"spec": sockets(2)}}}));
    w.revisions = vec![Arc::new(revision(&started))];
    let after = instance_after(&w).unwrap().spec.domain.resources.unwrap();
    assert_eq!((after.requests["cpu"].0.as_str(), after.limits["cpu"].0.as_str()), ("800m", "1400m"), "4 more vCPUs");
}

#[test]
fn sockets_that_the_guest_cannot_take_need_a_restart() {
    for (change, arch, words) in
        [(sockets(16), "amd64", "maxSockets"), (sockets(1), "amd64", "removed"), (sockets(4), "arm64", "architecture")]
    {
        let mut w = running(change, json!({}));
        let arch = json!({"spec": {"template": {"spec": {"architecture": arch}}}});
        w.vm = Arc::new(with((*w.vm).clone(), arch.clone()));
        let started = with((*w.vm).clone(), json!({"spec": {"template": {"spec": sockets(2)}}}));
        w.revisions = vec![Arc::new(revision(&started))];
        assert!(instance_after(&w).is_none());
        let message = restart(&w).unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn memory_grows_with_its_request_and_limit() {
    let w = running(memory("4Gi"), json!({}));
    let after = instance_after(&w).unwrap();
    assert_eq!(after.spec.domain.memory.as_ref().unwrap().guest.as_ref().unwrap().0, "4Gi");
    let rows = [
        // Request and limit of the instance, what the guest has now, and the outcome.
        ("2Gi", "3Gi", "2Gi", 4 * GIB, 5 * GIB),
        ("1Gi", "3Gi", "2Gi", 4 * GIB, 3 * GIB),
        ("2Gi", "3Gi", "3Gi", 4 * GIB, 3 * GIB),
    ];
    for (request, limit, current, grown, limited) in rows {
        let resources = json!({"requests": {"memory": request}, "limits": {"memory": limit}});
        let change = json!({"domain": {"memory": {"guest": "4Gi"}, "resources": resources}});
        let size =
            json!({"spec": {"domain": {"resources": resources}}, "status": {"memory": {"guestCurrent": current}}});
        let mut w = running(change, size);
        let started = with((*w.vm).clone(), json!({"spec": {"template": {"spec": memory("2Gi")}}}));
        w.revisions = vec![Arc::new(revision(&started))];
        let after = instance_after(&w).unwrap().spec.domain.resources.unwrap();
        let bytes = |wire| machinery::quantity::Quantity::try_from(wire).unwrap().value();
        assert_eq!(
            (bytes(&after.requests["memory"]), bytes(&after.limits["memory"])),
            (grown, limited),
            "{request} {current}"
        );
    }
}

#[test]
fn memory_that_the_guest_cannot_take_needs_a_restart() {
    let rows = [
        (
            memory("4Gi"),
            json!({"status": {"conditions": [{"type": "LiveMigratable", "status": "False"}]}}),
            "not live-migratable",
        ),
        (memory("4Gi"), json!({"spec": {"domain": {"memory": {"maxGuest": null}}}}), "cannot grow"),
        (memory("16Gi"), json!({}), "maxGuest"),
        (memory("1Gi"), json!({}), "at boot"),
        (memory("2049Mi"), json!({}), "multiples"),
        (memory("4Gi"), condition("HotMemoryChange", "False"), "hotplug failed"),
    ];
    for (change, vmi_change, words) in rows {
        let w = running(change.clone(), vmi_change);
        assert!(instance_after(&w).is_none_or(|after| after.spec == w.vmi.as_ref().unwrap().spec), "{change}");
        let message = restart(&w).unwrap();
        assert!(message.contains(words), "{change}: {message}");
    }
}

#[test]
fn placement_reaches_the_instance_and_leaves_it_again() {
    let placed = json!({"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "k", "operator": "Exists"}],
                        "affinity": {"nodeAffinity": {}}});
    let w = running(placed.clone(), json!({}));
    let after = instance_after(&w).unwrap();
    assert_eq!(after.spec.node_selector["disk"], "fast");
    assert_eq!(after.spec.tolerations[0].key.as_deref(), Some("k"));
    assert!(after.spec.affinity.is_some());
    let back = running(json!({}), json!({"spec": placed}));
    let after = instance_after(&back).unwrap();
    assert!(after.spec.node_selector.is_empty() && after.spec.tolerations.is_empty() && after.spec.affinity.is_none());
}

#[test]
fn a_change_waits_for_the_last_one_and_for_migrations_and_says_so() {
    let rows = [
        (sockets(4), condition("HotVCPUChange", "True"), "HotPlugCPUError"),
        (sockets(4), migrating(), "HotPlugCPUError"),
        (memory("4Gi"), condition("HotMemoryChange", "True"), "HotPlugMemoryError"),
        (memory("4Gi"), migrating(), "HotPlugMemoryError"),
        (json!({"nodeSelector": {"a": "b"}}), migrating(), "AffinityChangeError"),
        (json!({"affinity": {"nodeAffinity": {}}}), migrating(), "AffinityChangeError"),
        (json!({"tolerations": [{"key": "k"}]}), migrating(), "TolerationsChangeError"),
    ];
    for (change, vmi_change, reason) in rows {
        let w = running(change.clone(), vmi_change);
        assert!(instance_after(&w).is_none(), "{change}");
        let (shown, message) = failure(&w).unwrap();
        assert_eq!(shown, reason, "{message}");
        let again = World { vm: Arc::new(status_after(&w)), ..w };
        assert!(decide(&again).iter().all(|action| matches!(action, Action::RequeueAfter(_))), "told once");
    }
}

#[test]
fn several_changes_are_one_patch() {
    let change = json!({"domain": {"cpu": {"sockets": 4}, "memory": {"guest": "4Gi"}}, "nodeSelector": {"a": "b"}});
    let w = running(change, json!({}));
    let patches =
        decide(&w).into_iter().filter(|action| matches!(action, Action::Patch { kind: Kind::Vmi, .. })).count();
    assert_eq!(patches, 1);
    let after = instance_after(&w).unwrap();
    let settled = World { vmi: Some(Arc::new(after)), vm: Arc::new(status_after(&w)), ..w };
    assert!(instance_after(&settled).is_none(), "and then there is peace");
}

#[test]
fn a_template_without_sockets_leaves_them_to_the_instance() {
    let w = changed(json!({"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}));
    let grown = with(vmi("Running"), json!({"spec": {"domain": {"cpu": {"sockets": 1, "maxSockets": 4}}}}));
    let w = World { vmi: Some(Arc::new(grown)), ..w };
    assert_eq!(restart(&w), None);
}

#[test]
fn metadata_that_somebody_reads_from_running_guests_follows_the_template() {
    let evict = "descheduler.alpha.kubernetes.io/evict";
    let noted = json!({"spec": {"template": {"metadata": {"annotations": {evict: "true", "team/x": "1"},
                                                          "labels": {"team": "red", "other": "1"}}}}});
    let mut w = changed(noted);
    let mut settings = crate::vmi::Settings::default();
    (settings.follow_annotations, settings.follow_labels) = (vec!["team/*".into(), "*".into()], vec!["team".into()]);
    w.settings = Arc::new(settings);
    let own = w.vm.metadata.annotations.clone().unwrap();
    let own = BTreeMap::from_iter(own.into_iter().chain([("kubevirt.io/skip-backup-hooks".into(), "true".into())]));
    Arc::make_mut(&mut w.vm).metadata.annotations = Some(own);
    let stale = json!({"metadata": {"annotations": {"descheduler.alpha.kubernetes.io/prefer-no-eviction": "x", "note": "kept"}}});
    w.vmi = Some(Arc::new(with(vmi("Running"), stale)));
    let after = instance_after(&w).unwrap().metadata;
    let noted = after.annotations.unwrap();
    let keys: Vec<&str> = noted.keys().map(String::as_str).collect();
    let expected = [evict, "kubevirt.io/skip-backup-hooks", "kubevirt.io/vm-generation", "note", "team/x"];
    assert_eq!(keys, expected, "set and removed, and nothing else touched");
    assert_eq!(after.labels.unwrap(), [("team".to_owned(), "red".to_owned())].into());
}

#[test]
fn the_pci_layout_of_the_first_start_is_kept_in_the_template() {
    let layout = json!({"metadata": {"annotations": {"kubevirt.io/pci-topology-version": "v3",
                                                     "kubevirt.io/pci-interface-slot-count": "4"}}});
    let w = world(vm("Manual"), Some(with(vmi("Running"), layout.clone())));
    let noted = machine_after(&w).unwrap().spec.template.metadata.unwrap().annotations.unwrap();
    assert_eq!(noted["kubevirt.io/pci-topology-version"], "v3");
    assert_eq!(noted["kubevirt.io/pci-interface-slot-count"], "4");
    let older =
        json!({"spec": {"template": {"metadata": {"annotations": {"kubevirt.io/pci-topology-version": "v2"}}}}});
    let w = world(with(vm("Manual"), older), Some(with(vmi("Running"), layout)));
    assert!(machine_after(&w).is_none(), "once");
}
