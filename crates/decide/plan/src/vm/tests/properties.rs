//! Any world at all.

use std::time::Duration;

use proptest::prelude::*;

use super::model::{Cluster, check_pass};
use super::*;
use crate::vm::printable;

const STRATEGIES: [&str; 7] = ["Always", "RerunOnFailure", "Manual", "Halted", "Once", "WaitAsReceiver", "Sometimes"];
const PHASES: [&str; 9] =
    ["", "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "WaitingForSync", "Unknown"];
const IMPORTS: [&str; 5] = ["", "Pending", "ImportInProgress", "Succeeded", "Failed"];

/// Things that may be said about a virtual machine, any number of them at once.
fn machine_traits() -> Vec<Value> {
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    vec![
        json!({"status": {"stateChangeRequests": [{"action": "Start"}]}}),
        json!({"status": {"stateChangeRequests": [{"action": "Stop", "uid": "vmi-uid"}, {"action": "Start"}]}}),
        json!({"status": {"startFailure": {"consecutiveFailCount": 2, "lastFailedVMIUID": "x", "retryAfterTimestamp": time(150)}}}),
        json!({"status": {"runStrategy": "RerunOnFailure"}}),
        json!({"metadata": {"deletionTimestamp": time(10)}}),
        json!({"metadata": {"generation": 5}}),
        template(json!({"domain": {"cpu": {"sockets": 2, "cores": 1}}})),
        template(json!({"domain": {"memory": {"guest": "4Gi"}}})),
        template(json!({"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]})),
        template(json!({"volumes": [{"name": "root", "containerDisk": {"image": "i"}},
            {"name": "hot", "persistentVolumeClaim": {"claimName": "hot", "hotpluggable": true}}]})),
        template(json!({"networks": [{"name": "blue", "multus": {"networkName": "blue"}}],
            "domain": {"devices": {"interfaces": [{"name": "blue", "bridge": {}}]}}})),
        template(json!({"networks": [{"name": "red", "multus": {"networkName": "red"}}],
            "domain": {"devices": {"interfaces": [{"name": "red", "bridge": {}, "state": "absent"}]}}})),
        json!({"status": {"volumeRequests": [{"addVolumeOptions": {"name": "more", "disk": {},
            "volumeSource": {"dataVolume": {"name": "more"}}}}]}}),
        json!({"status": {"volumeRequests": [{"removeVolumeOptions": {"name": "hot"}}]}}),
        json!({"status": {"memoryDumpRequest": {"claimName": "dump", "phase": "Associating"}}}),
        json!({"status": {"memoryDumpRequest": {"claimName": "dump", "phase": "Unmounting", "fileName": "f"}}}),
        json!({"status": {"memoryDumpRequest": {"claimName": "dump", "phase": "Completed", "remove": true}}}),
        json!({"spec": {"dataVolumeTemplates": [{"metadata": {"name": "made"}, "spec": {"source": {"blank": {}}, "storage": {}}}]}}),
        json!({"spec": {"instancetype": {"name": "nowhere"}}}),
        json!({"status": {"conditions": [{"type": "ManualRecoveryRequired", "status": "True"}]}}),
    ]
}

/// Things that may be said about its instance.
fn instance_traits() -> Vec<Value> {
    let condition = |type_: &str, status: &str| json!({"status": {"conditions": [{"type": type_, "status": status}]}});
    vec![
        json!({"metadata": {"deletionTimestamp": time(10)}}),
        json!({"metadata": {"ownerReferences": null}}),
        json!({"status": {"migrationState": {"startTimestamp": time(1)}}}),
        json!({"status": {"migrationState": {"completed": true, "sourceState": {"syncAddress": "a"}, "targetState": {}}}}),
        condition("LiveMigratable", "True"),
        condition("HotVCPUChange", "True"),
        condition("HotMemoryChange", "False"),
        json!({"spec": {"domain": {"cpu": {"sockets": 1, "maxSockets": 8}, "memory": {"guest": "2Gi", "maxGuest": "8Gi"}}},
               "status": {"memory": {"guestCurrent": "2Gi", "guestAtBoot": "2Gi"}}}),
        json!({"spec": {"networks": [{"name": "red", "multus": {"networkName": "red"}}],
            "domain": {"devices": {"interfaces": [{"name": "red", "bridge": {}, "state": "absent"}]}}}}),
        json!({"status": {"volumeStatus": [{"name": "dump", "target": "", "phase": "MemoryDumpCompleted"}]}}),
        json!({"metadata": {"annotations": {"kubevirt.io/pci-topology-version": "v3"}}}),
        json!({"metadata": {"annotations": {"kubevirt.io/create-migration-target": "true"}}}),
    ]
}

fn any_world() -> impl Strategy<Value = World> {
    let machine = prop::collection::vec(0..machine_traits().len(), 0..5);
    let instance =
        prop::option::weighted(0.7, (0..PHASES.len(), prop::collection::vec(0..instance_traits().len(), 0..4)));
    let rest =
        (0..IMPORTS.len() + 1, any::<bool>(), any::<bool>(), prop::option::weighted(0.1, Just(Duration::from_secs(5))));
    (0..STRATEGIES.len(), machine, instance, rest).prop_map(
        |(strategy, machine, instance, (import, dump, stage, expects))| {
            let base = vm(STRATEGIES[strategy]);
            let mut changed = machine.iter().fold(base.clone(), |vm, index| with(vm, machine_traits()[*index].clone()));
            changed.metadata.name = Some("vm".into());
            let vmi = instance.map(|(phase, traits)| {
                traits.iter().fold(vmi(PHASES[phase]), |vmi, index| with(vmi, instance_traits()[*index].clone()))
            });
            let mut w = world(changed, vmi);
            w.revisions = vec![Arc::new(revision(&base))];
            if let Some(phase) = IMPORTS.get(import) {
                w.claims.data_volumes.insert("made".into(), data_volume("made", json!({"phase": phase})));
            }
            if dump {
                w.claims.claims.insert("dump".into(), claim("dump", "Bound"));
            }
            if stage {
                w.config = config(json!({"vmRolloutStrategy": "Stage"}));
            }
            w.expects_instance = expects;
            w
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// The same world, the same answer; what is cached stays as it is; the rules of a pass are kept; and the word in
    /// the status is the one the table gives.
    #[test]
    fn a_decision_is_a_function_that_leaves_the_world_alone(w in any_world()) {
        let before = (w.vm.clone(), w.vmi.clone());
        let actions = decide(&w);
        prop_assert_eq!(&actions, &decide(&w));
        prop_assert_eq!((&*before.0, before.1.as_deref()), (&*w.vm, w.vmi.as_deref()));
        check_pass(&w, &actions);
        if w.expects_instance.is_some() {
            let touches = |a: &Action| matches!(a, Action::Create { object: Object::Vmi(_), .. } | Action::Delete { kind: Kind::Vmi, .. } | Action::Own(Own::CreateDataVolume { .. }));
            prop_assert!(!actions.iter().any(touches), "while an earlier write is not visible");
        }
        for action in &actions {
            if let Action::ReplaceStatus(Object::Vm(after)) = action {
                let word = printable::status(&w, after, &w.vm.run_strategy().unwrap_or_default());
                prop_assert_eq!(after.status.as_ref().unwrap().printable_status.as_ref(), Some(&word));
                prop_assert!(after.condition(api::conditions::READY).is_some());
            }
        }
    }

    /// Left to itself, any cluster comes to rest, and then nothing is written.
    #[test]
    fn any_world_comes_to_rest(w in any_world()) {
        let mut cluster = Cluster::of(&World { expects_instance: None, ..w });
        cluster.settle();
        cluster.writes.clear();
        prop_assert!(!cluster.pass());
        prop_assert_eq!(cluster.writes, Vec::<&str>::new());
    }
}
