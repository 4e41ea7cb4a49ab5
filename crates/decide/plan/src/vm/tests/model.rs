//! A virtual machine's life in miniature: actions are carried out, instances move on, users ask for things.

use api::v1::VirtualMachineInstancePhase as Phase;
use proptest::prelude::*;

use super::*;

const STRATEGIES: [&str; 7] = ["Always", "RerunOnFailure", "Manual", "Halted", "Once", "WaitAsReceiver", "Sometimes"];

#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) vm: Option<VirtualMachine>,
    pub(super) vmi: Option<VirtualMachineInstance>,
    revisions: Vec<ControllerRevision>,
    pub(super) claims: Claims,
    pub(super) config: Arc<ClusterConfig>,
    made: u32,
    version: u32,
    clock: i64,
    /// Writes to the API, by what they are.
    pub(super) writes: Vec<&'static str>,
}

impl Cluster {
    /// A cluster in a state of its own.
    pub(super) fn of(w: &World) -> Self {
        Self {
            vm: Some((*w.vm).clone()),
            vmi: w.vmi.as_deref().cloned(),
            revisions: w.revisions.iter().map(|revision| (**revision).clone()).collect(),
            claims: w.claims.clone(),
            config: w.config.clone(),
            made: 0,
            version: 100,
            clock: 100,
            writes: vec![],
        }
    }

    pub(super) fn new(strategy: &str) -> Self {
        let mut vm = vm(strategy);
        vm.metadata.finalizers = None;
        vm.metadata.annotations = None;
        vm.spec.template.spec.domain.firmware = None;
        Self { revisions: vec![], clock: 0, ..Self::of(&world(vm, None)) }
    }

    pub(super) fn world(&self) -> Option<World> {
        let mut w = world(self.vm.clone()?, self.vmi.clone());
        w.revisions = self.revisions.iter().cloned().map(Arc::new).collect();
        w.claims = self.claims.clone();
        w.config = self.config.clone();
        w.now = time(self.clock);
        Some(w)
    }

    pub(super) fn store_vm(&mut self, mut new: VirtualMachine) {
        self.version += 1;
        new.metadata.resource_version = Some(self.version.to_string());
        if self.vm.as_ref().is_some_and(|old| old.spec != new.spec) {
            new.metadata.generation = new.metadata.generation.map(|generation| generation + 1);
        }
        let gone = new.is_marked_for_deletion() && new.metadata.finalizers.is_none();
        self.vm = (!gone).then_some(new);
    }

    pub(super) fn store_vmi(&mut self, mut new: VirtualMachineInstance) {
        self.version += 1;
        new.metadata.resource_version = Some(self.version.to_string());
        let gone = new.is_marked_for_deletion() && new.metadata.finalizers.is_none();
        self.vmi = (!gone).then_some(new);
    }

    pub(super) fn carry_out(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Patch { kind: Kind::Vm, patch: Patch::Json(patch), .. } => {
                    self.writes.push("patch VM");
                    self.store_vm(patched(self.vm.as_ref().unwrap(), patch));
                }
                Action::ReplaceStatus(Object::Vm(new)) => {
                    self.writes.push("VM status");
                    self.store_vm((**new).clone());
                }
                Action::Confirm { look: Look::OwnerAlive, .. } => self.adopt(action),
                Action::Create { object: Object::Revision(revision), .. } => {
                    self.writes.push("create revision");
                    let mut revision = (**revision).clone();
                    revision.metadata.uid = revision.metadata.name.clone();
                    self.revisions.push(revision);
                }
                Action::Delete { kind: Kind::Revision, name, .. } => {
                    self.writes.push("delete revision");
                    self.revisions.retain(|r| r.metadata.name.as_ref() != Some(name));
                }
                Action::Create { object: Object::Vmi(vmi), .. } => self.create_instance(vmi),
                Action::Delete { kind: Kind::Vmi, .. } => {
                    self.writes.push("delete VMI");
                    let mut vmi = self.vmi.clone().unwrap();
                    vmi.metadata.deletion_timestamp = Some(time(self.clock));
                    self.store_vmi(vmi);
                }
                Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } => {
                    self.writes.push("patch VMI");
                    self.store_vmi(patched(self.vmi.as_ref().unwrap(), patch));
                }
                Action::Confirm { look: Look::NoInstance, then } => {
                    // As the controller does: somebody else's instance of the name does not count.
                    if self.world().is_some_and(|w| w.instance().is_none()) {
                        self.carry_out(then);
                    }
                }
                Action::Confirm { look: Look::SameMachine, then } => self.carry_out(then), // here the cache is never stale
                Action::Own(Own::Authorize { then, .. }) => self.carry_out(then),
                Action::Own(Own::CreateDataVolume { data_volume, .. }) => {
                    self.writes.push("create DataVolume");
                    let name = data_volume.metadata.name.clone().unwrap();
                    assert!(self.claims.data_volume(&name).is_none(), "two of a name");
                    self.claims.data_volumes.insert(name, Arc::new((**data_volume).clone()));
                }
                Action::Patch { kind: Kind::Claim, name, patch: Patch::Json(patch), .. } => {
                    let found = self.claims.claims.get_mut(name).unwrap();
                    *found = Arc::new(patched(found.as_ref(), patch));
                }
                Action::Note(_) | Action::RequeueAfter(_) => {}
                other => panic!("nothing that a virtual machine needs: {other}"),
            }
        }
    }

    fn adopt(&mut self, action: &Action) {
        let (kind, name, set) = adopts(action).unwrap();
        let owners = serde_json::from_value(set["ownerReferences"].clone()).unwrap();
        if kind == Kind::DataVolume {
            Arc::make_mut(self.claims.data_volumes.get_mut(name).unwrap()).metadata.owner_references = owners;
        } else {
            let mut vmi = self.vmi.clone().unwrap();
            vmi.metadata.owner_references = owners;
            self.store_vmi(vmi);
        }
    }

    fn create_instance(&mut self, vmi: &VirtualMachineInstance) {
        self.writes.push("create VMI");
        assert!(self.vmi.is_none(), "two instances");
        let wanted = vmi.status.as_ref().and_then(|status| status.virtual_machine_revision_name.clone());
        assert!(self.revisions.iter().any(|kept| kept.metadata.name == wanted), "its spec is not kept");
        self.made += 1;
        let mut vmi = vmi.clone();
        vmi.metadata.uid = Some(format!("vmi-{}", self.made));
        // As admission does.
        vmi.metadata.finalizers.as_mut().unwrap().push(api::finalizers::VIRTUAL_MACHINE_INSTANCE.into());
        vmi.status_mut().phase = Some(Phase::Pending);
        self.store_vmi(vmi);
    }

    /// One pass. Says whether it did anything.
    pub(super) fn pass(&mut self) -> bool {
        let Some(w) = self.world() else { return false };
        let actions = decide(&w);
        check_pass(&w, &actions);
        self.carry_out(&actions);
        !actions.iter().all(|action| matches!(action, Action::RequeueAfter(_)))
    }

    /// Moves the instance to a phase.
    pub(super) fn enter(&mut self, phase: Phase) {
        let mut vmi = self.vmi.clone().unwrap();
        let entered = json!({"phase": phase, "phaseTransitionTimestamp": time(self.clock)});
        vmi.status_mut().phase_transition_timestamps.push(serde_json::from_value(entered).unwrap());
        vmi.status_mut().phase = Some(phase);
        self.store_vmi(vmi);
    }

    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            if !self.pass() {
                return;
            }
        }
        panic!("never settles: {:#?}", self.world().map(|w| decide(&w)));
    }

    /// What the instance controller, the node agent and users do.
    fn stir(&mut self, kind: u8, pick: usize) {
        self.clock += 7;
        match kind {
            0..=3 => self.advance_instance(pick),
            4 => {
                if let Some(mut vm) = self.vm.clone() {
                    let uid = self.vmi.as_ref().and_then(|vmi| vmi.metadata.uid.clone());
                    let requests = [
                        json!([{"action": "Stop", "uid": uid}, {"action": "Start"}]),
                        json!([{"action": "Start"}]),
                        json!([{"action": "Stop", "uid": "an earlier one"}]),
                    ];
                    let request = requests[pick % 3].clone();
                    vm.status_mut().state_change_requests.extend(serde_json::from_value::<Vec<_>>(request).unwrap());
                    self.store_vm(vm);
                }
            }
            5 => {
                if let Some(mut vm) = self.vm.clone() {
                    vm.spec.run_strategy = Some(STRATEGIES[pick % STRATEGIES.len()].into());
                    self.store_vm(vm);
                }
            }
            6 => {
                if let Some(mut vm) = self.vm.clone() {
                    vm.spec.template.spec.domain.cpu.get_or_insert_default().cores = u32::try_from(pick).ok();
                    vm.spec.template.spec.node_selector = [("zone".to_owned(), pick.to_string())].into();
                    self.store_vm(vm);
                }
            }
            _ => self.clock += 400,
        }
    }

    /// The instance moves one step; a deleted one ends, and one that has ended loses the other controller's finalizer.
    pub(super) fn advance_instance(&mut self, pick: usize) {
        let Some(mut vmi) = self.vmi.clone() else { return };
        let phase = match vmi.phase() {
            _ if vmi.is_final() => {
                machinery::meta::remove_finalizer(&mut vmi.metadata, api::finalizers::VIRTUAL_MACHINE_INSTANCE);
                return self.store_vmi(vmi);
            }
            _ if vmi.is_marked_for_deletion() || pick == 0 => Phase::Failed,
            Some(Phase::Pending) => Phase::Scheduled,
            Some(Phase::Scheduled) => Phase::Running,
            _ => Phase::Succeeded,
        };
        self.enter(phase);
    }
}

/// What must hold of every single pass.
pub(super) fn check_pass(w: &World, actions: &[Action]) {
    let create = creates(actions).is_some();
    let delete = actions.iter().any(|action| matches!(action, Action::Delete { kind: Kind::Vmi, .. }));
    assert!(!(create && delete), "both in one pass");
    if create {
        assert!(w.vmi.is_none() && !w.vm.is_marked_for_deletion());
        let strategy = w.vm.run_strategy().unwrap();
        let requested = w.start_requested();
        match strategy.as_str() {
            "Halted" | "Sometimes" => panic!("{strategy} starts nothing"),
            "Manual" => assert!(requested),
            _ => {}
        }
        let failure = w.vm.status.as_ref().and_then(|status| status.start_failure.as_ref());
        let retry = failure.and_then(|failure| failure.retry_after_timestamp.clone());
        let waits = matches!(strategy.as_str(), "Always" | "RerunOnFailure");
        assert!(!waits || retry.is_none_or(|retry| retry <= w.now), "started before the pause was over");
    }
    let released = actions.iter().position(|action| {
        let Action::Patch { kind: Kind::Vmi, patch: Patch::Json(patch), .. } = action else { return false };
        patched(w.vmi.as_deref().unwrap(), patch).metadata.finalizers.as_ref().map(Vec::len)
            < w.vmi.as_ref().unwrap().metadata.finalizers.as_ref().map(Vec::len)
    });
    if let Some(released) = released {
        let status = actions.iter().position(|action| matches!(action, Action::ReplaceStatus(_)));
        assert!(status.is_none_or(|status| status < released), "let go before the outcome was recorded");
    }
}

#[test]
fn a_restart_replaces_the_instance_once() {
    let mut c = Cluster::new("Always");
    c.settle();
    c.stir(0, 1);
    c.stir(0, 1);
    c.settle();
    assert_eq!(c.made, 1);
    c.stir(4, 0); // restart
    c.settle();
    c.stir(0, 1); // the guest ends
    c.stir(0, 1); // its Pod goes
    c.settle();
    assert_eq!(c.made, 2);
    assert!(c.vm.unwrap().status.unwrap().state_change_requests.is_empty());
}

proptest! {
    /// Whatever users ask for and instances do: no panic, every pass keeps the rules, peace after every step, and a
    /// deleted machine goes with its instance.
    #[test]
    fn any_life_settles_and_ends_clean(
        strategy in 0..STRATEGIES.len(),
        steps in prop::collection::vec((0..8u8, 0..7usize), 0..30),
    ) {
        let mut cluster = Cluster::new(STRATEGIES[strategy]);
        for (kind, pick) in steps {
            cluster.settle();
            cluster.stir(kind, pick);
        }
        cluster.settle();
        if let Some(mut vm) = cluster.vm.clone() {
            vm.metadata.deletion_timestamp = Some(time(cluster.clock));
            cluster.store_vm(vm);
        }
        for _ in 0..4 {
            cluster.settle();
            cluster.advance_instance(1);
        }
        cluster.settle();
        prop_assert!(cluster.vm.is_none() && cluster.vmi.is_none(), "left behind: {cluster:#?}");
    }
}
