//! A cluster in miniature: actions are carried out on it, Pods and node agent move at random.

use k8s_openapi::api::core::v1::PodCondition;
use proptest::prelude::*;

use super::super::decide;
use super::*;

const POD_STATES: [&str; 10] = [
    "new",
    "unschedulable",
    "creating",
    "image missing",
    "running",
    "ready",
    "compute ended",
    "succeeded",
    "failed",
    "terminating",
];
const PHASES: [&str; 10] = [
    "",
    "Pending",
    "Scheduling",
    "Scheduled",
    "Running",
    "Succeeded",
    "Failed",
    "WaitingForSync",
    "Unknown",
    "Invented",
];

/// The objects that exist. `vmi` is gone when nothing holds it any more.
#[derive(Clone, Debug)]
struct Cluster {
    vmi: Option<VirtualMachineInstance>,
    pods: Vec<Pod>,
    pods_made: usize,
    version: u32,
    owner: Owner,
}

impl Cluster {
    fn world(&self) -> Option<World> {
        Some(World { owner: self.owner, ..world(self.vmi.clone()?, self.pods.clone()) })
    }

    fn store(&mut self, mut vmi: VirtualMachineInstance) {
        self.version += 1;
        vmi.metadata.resource_version = Some(self.version.to_string());
        let gone = vmi.is_marked_for_deletion() && vmi.metadata.finalizers.is_none();
        self.vmi = (!gone).then_some(vmi);
    }

    fn carry_out(&mut self, w: &World, actions: &[Action]) {
        for action in actions {
            match action {
                Action::UpdateVmi(_) | Action::PatchVmi(_) => {
                    let new = written(w, std::slice::from_ref(action)).unwrap();
                    self.store(new);
                }
                Action::CreatePod { pod, .. } => {
                    assert!(!self.pods.iter().any(|p| p.metadata.name == pod.metadata.name));
                    self.pods_made += 1;
                    let mut pod = (**pod).clone();
                    pod.metadata.uid = Some(format!("pod-{}", self.pods_made));
                    pod.metadata.creation_timestamp = Some(time(i64::try_from(self.pods_made).unwrap()));
                    pod.status = super::pod("new").status;
                    self.pods.push(pod);
                }
                Action::DeletePod { uid, at_once, .. } => {
                    let scheduled = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                    self.pods.retain(|p| p.metadata.uid.as_ref() != Some(uid) || (!at_once && scheduled(p)));
                    for pod in self.pods.iter_mut().filter(|p| p.metadata.uid.as_ref() == Some(uid)) {
                        pod.metadata.deletion_timestamp = Some(time(60));
                        pod.metadata.deletion_grace_period_seconds = Some(60);
                    }
                }
                Action::PatchPod { name, patch } => self.change_pod(name, |value| {
                    machinery::patch::apply(value, patch).unwrap();
                }),
                Action::SetPodCondition { name, condition, .. } => self.set_condition(name, condition),
                Action::ConfirmNoPods { node, then } => {
                    let here = |pod: &Pod| node.is_none() || crate::pods::node_name(pod) == node.as_deref();
                    if !self.pods.iter().any(here) {
                        self.carry_out(w, then);
                    }
                }
                Action::CreateClaim { .. } | Action::DeleteClaim { .. } | Action::PatchClaim { .. } => {
                    panic!("this guest keeps no state: {action}")
                }
                Action::ConfirmNoStateClaim { .. } => panic!("this guest keeps no state: {action}"),
                Action::Note(_) | Action::RequeueAfter(_) => {}
            }
        }
    }

    fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        let pod = self.pods.iter_mut().find(|p| p.metadata.name.as_deref() == Some(name)).unwrap();
        let mut value = serde_json::to_value(&*pod).unwrap();
        change(&mut value);
        *pod = serde_json::from_value(value).unwrap();
    }

    fn set_condition(&mut self, name: &str, condition: &PodCondition) {
        let pod = self.pods.iter_mut().find(|p| p.metadata.name.as_deref() == Some(name)).unwrap();
        let list = pod.status.get_or_insert_default().conditions.get_or_insert_default();
        list.retain(|c| c.type_ != condition.type_);
        list.push(condition.clone());
    }

    /// Passes until nothing is written. Panics if that never happens.
    fn settle(&mut self) {
        for _ in 0..20 {
            let Some(w) = self.world() else { return };
            let before = (self.vmi.clone(), self.pods.clone());
            let actions = decide(&w);
            check_pass(&w, &actions);
            self.carry_out(&w, &actions);
            let writes = actions.iter().any(|a| !matches!(a, Action::Note(_) | Action::RequeueAfter(_)));
            if !writes {
                assert_eq!(actions, [], "a settled world gives nothing to do");
                return;
            }
            if before == (self.vmi.clone(), self.pods.clone()) {
                panic!("a write that changes nothing: {actions:#?}");
            }
        }
        panic!("never settles: {:#?}", self.world().map(|w| decide(&w)));
    }

    /// What kubelet, node agent and users do. `kind` picks one.
    fn stir(&mut self, kind: u8, state: usize) {
        match kind {
            0..=3 => {
                // The kubelet moves a Pod to another state; conditions others set survive.
                if let Some(pod) = self.pods.last_mut().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                    let template = super::pod(POD_STATES[state % 9]);
                    let gate = pod.status.as_ref().and_then(|s| s.conditions.clone()).unwrap_or_default();
                    let mut status = template.status.unwrap();
                    let list = status.conditions.get_or_insert_default();
                    let known: Vec<String> = list.iter().map(|c| c.type_.clone()).collect();
                    list.extend(gate.into_iter().filter(|c| c.type_.contains('/') && !known.contains(&c.type_)));
                    pod.status = Some(status);
                    let node = template.spec.and_then(|spec| spec.node_name);
                    let spec = pod.spec.as_mut().unwrap();
                    spec.node_name = spec.node_name.clone().or(node);
                }
            }
            4 => drop(self.pods.pop()),
            5 => {
                let phase = match self.vmi.as_ref().and_then(|vmi| vmi.phase()) {
                    Some(Phase::Scheduled) => Phase::Running,
                    Some(Phase::Running) => [Phase::Succeeded, Phase::Failed][state % 2].clone(),
                    _ => return,
                };
                if let Some(mut vmi) = self.vmi.take() {
                    vmi.status_mut().phase = Some(phase);
                    self.store(vmi);
                }
            }
            6 => {
                if let Some(mut vmi) = self.vmi.take() {
                    vmi.metadata.deletion_timestamp.get_or_insert(time(50));
                    self.store(vmi);
                }
            }
            _ => self.owner = Owner::Gone,
        }
    }
}

/// What must hold of every single pass.
fn check_pass(w: &World, actions: &[Action]) {
    let node_owned = matches!(w.vmi.phase(), Some(Phase::Scheduled | Phase::Running));
    let flat: Vec<&Action> = actions
        .iter()
        .flat_map(|action| match action {
            Action::ConfirmNoPods { then, .. } => then.iter().collect(),
            action => vec![action],
        })
        .collect();
    for action in flat {
        match action {
            Action::UpdateVmi(_) => assert!(!node_owned),
            Action::PatchVmi(_) => assert!(node_owned),
            Action::CreatePod { .. } => {
                assert!(w.vmi.is_unprocessed() && !w.vmi.is_marked_for_deletion() && w.pods.is_empty());
                assert!(w.vmi.metadata.finalizers.is_some());
            }
            Action::DeletePod { .. } => assert!(w.vmi.is_marked_for_deletion()),
            _ => {}
        }
    }
    if let Some(new) = written(w, actions) {
        if w.vmi.is_final() {
            assert_eq!(new.phase(), w.vmi.phase(), "the end is final");
        }
        if new.metadata.finalizers.is_none() && w.vmi.metadata.finalizers.is_some() {
            assert!(w.pods.is_empty(), "a finalizer left before its Pod");
        }
        let ready = new.condition(api::conditions::READY).is_some_and(|c| c.is_true());
        assert!(!ready || w.vmi.is_running());
        assert_eq!(new.spec, w.vmi.spec, "the spec is never ours to write");
    }
}

fn start() -> Cluster {
    Cluster { vmi: Some(vmi("Pending")), pods: vec![], pods_made: 0, version: 1, owner: Owner::Alive }
}

#[test]
fn an_instance_runs_and_ends_in_few_writes() {
    let mut c = start();
    c.settle();
    assert_eq!((c.pods_made, c.vmi.as_ref().unwrap().phase()), (1, Some(&Phase::Scheduling)));
    c.stir(0, 4); // the Pod's containers run
    c.settle();
    assert_eq!(c.vmi.as_ref().unwrap().phase(), Some(&Phase::Scheduled));
    c.stir(5, 0); // the node agent starts the guest
    c.settle();
    c.stir(0, 5);
    c.settle();
    assert!(c.vmi.as_ref().unwrap().has_condition(api::conditions::READY));
    assert!(c.version <= 6, "{} writes to the instance until it was ready", c.version - 1);
    c.stir(6, 0); // a user deletes it
    c.settle();
    assert!(c.pods[0].metadata.deletion_timestamp.is_some());
    c.stir(5, 0); // the guest shuts down
    c.stir(4, 0); // the Pod vanishes
    c.settle();
    assert!(c.vmi.is_none(), "nothing holds the instance any more");
}

proptest! {
    /// From any state, however odd: no panic, every pass keeps the rules, and without outside events peace comes.
    #[test]
    fn any_world_settles(
        phase in 0..PHASES.len(),
        pods in prop::collection::vec(0..POD_STATES.len(), 0..3),
        deleted: bool,
        finalizer: bool,
        gone: bool,
    ) {
        let mut vmi = vmi(PHASES[phase]);
        if !finalizer {
            vmi.metadata.finalizers = None;
        } else if deleted {
            vmi.metadata.deletion_timestamp = Some(time(50));
        }
        let pods = pods.iter().enumerate().map(|(index, state)| {
            let mut pod = pod(POD_STATES[*state]);
            pod.metadata.name = Some(format!("virt-launcher-{index}"));
            pod.metadata.uid = Some(format!("pod-{index}"));
            pod
        });
        let owner = if gone { Owner::Gone } else { Owner::Alive };
        let mut cluster = Cluster { vmi: Some(vmi), pods: pods.collect(), pods_made: 0, version: 1, owner };
        cluster.settle();
    }

    /// Over one life, whatever kubelet, node agent and users do: one Pod, peace after every step, and a deleted instance
    /// goes once its Pods are gone.
    #[test]
    fn one_life_makes_one_pod_and_ends_clean(steps in prop::collection::vec((0..8u8, 0..9usize), 0..25)) {
        let mut cluster = start();
        for (kind, state) in steps {
            cluster.settle();
            cluster.stir(kind, state);
            prop_assert!(cluster.pods_made <= 1);
        }
        cluster.settle();
        cluster.stir(6, 0);
        cluster.owner = Owner::Gone;
        cluster.settle();
        cluster.pods.clear();
        cluster.settle();
        prop_assert!(cluster.vmi.is_none(), "left behind: {:#?}", cluster.vmi);
    }
}
