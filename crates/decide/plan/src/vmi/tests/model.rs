//! A cluster in miniature: actions are carried out on it, Pods, importer and node agent move at random.

use api::v1::VolumePhase;
use proptest::prelude::*;

use super::super::{decide, hotplug};
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
const DATA_VOLUMES: [&str; 5] = ["Pending", "ImportInProgress", "WaitForFirstConsumer", "Succeeded", "Failed"];
/// Volumes that come and go.
const PLUGS: [&str; 3] = ["a", "b", "c"];

/// The objects that exist. `vmi` is gone when nothing holds it any more.
#[derive(Clone, Debug)]
struct Cluster {
    vmi: Option<VirtualMachineInstance>,
    pods: Vec<Pod>,
    helpers: Vec<Pod>,
    /// The phase of the DataVolume that the instance needs from the start, if it needs one.
    data: Option<&'static str>,
    /// Those of the volumes that are plugged.
    plugged: [&'static str; 3],
    launchers_made: usize,
    pods_made: usize,
    writes: usize,
    version: u32,
    owner: Owner,
}

impl Cluster {
    fn new(vmi: VirtualMachineInstance) -> Self {
        Self {
            vmi: Some(vmi),
            pods: vec![],
            helpers: vec![],
            data: None,
            plugged: ["Succeeded"; 3],
            launchers_made: 0,
            pods_made: 0,
            writes: 0,
            version: 1,
            owner: Owner::Alive,
        }
    }

    fn world(&self) -> Option<World> {
        let mut w = World {
            owner: self.owner,
            helpers: self.helpers.iter().cloned().map(Arc::new).collect(),
            ..world(self.vmi.clone()?, self.pods.clone())
        };
        if let Some(phase) = self.data {
            w = with_claim(w, "data", phase);
        }
        for (name, phase) in PLUGS.into_iter().zip(self.plugged) {
            w = with_claim(w, name, phase);
        }
        Some(w)
    }

    fn store(&mut self, mut vmi: VirtualMachineInstance) {
        self.version += 1;
        vmi.metadata.resource_version = Some(self.version.to_string());
        let gone = vmi.is_marked_for_deletion() && vmi.metadata.finalizers.is_none();
        self.vmi = (!gone).then_some(vmi);
    }

    fn carry_out(&mut self, w: &World, actions: &[Action]) {
        for action in actions {
            let reads = matches!(action, Action::Confirm { look: Look::NoPods(_) | Look::NoOwner, .. });
            self.writes += usize::from(!reads && !matches!(action, Action::RequeueAfter(_)));
            match action {
                Action::Replace(Object::Vmi(_)) | Action::Patch { kind: Kind::Vmi, .. } => {
                    let new = written(w, std::slice::from_ref(action)).unwrap();
                    self.store(new);
                }
                Action::Create { object: Object::Pod(pod), .. } => self.create(pod),
                Action::Delete { kind: Kind::Pod, uid, grace_seconds, .. } => {
                    self.delete(uid, *grace_seconds == Some(0))
                }
                Action::Patch { kind: Kind::Pod, name, patch: Patch::Json(patch), .. } => {
                    self.change_pod(name, |value| {
                        machinery::patch::apply(value, patch).unwrap();
                    })
                }
                Action::Patch { kind: Kind::Pod, name, patch: Patch::Strategic(patch), .. } => {
                    self.set_condition(name, &set_condition(patch));
                }
                Action::Confirm { look: Look::NoPods(sort), then } => {
                    if !self.pods.iter().any(|pod| sort.includes(pod)) {
                        self.carry_out(w, then);
                    }
                }
                Action::Confirm { look: Look::NoOwner, then } => {
                    if self.owner == Owner::Gone {
                        self.carry_out(w, then);
                    }
                }
                Action::Confirm { look: Look::Current, then } => self.carry_out(w, then),
                Action::Confirm { look: Look::NoMigration { .. }, .. } => panic!("this guest does not move: {action}"),
                Action::Confirm { look: Look::NoStateClaim, .. } => panic!("this guest keeps no state: {action}"),
                Action::Note(_) | Action::RequeueAfter(_) => {}
                other => panic!("nothing that this guest needs: {other}"),
            }
        }
    }

    fn create(&mut self, pod: &Pod) {
        let all = || self.pods.iter().chain(&self.helpers);
        assert!(!all().any(|p| p.metadata.name == pod.metadata.name), "made twice: {:?}", pod.metadata.name);
        self.pods_made += 1;
        let mut pod = pod.clone();
        pod.metadata.uid = Some(format!("pod-{}", self.pods_made));
        pod.metadata.creation_timestamp = Some(time(i64::try_from(self.pods_made).unwrap()));
        pod.status = super::pod("new").status;
        if machinery::meta::is_controlled_by(&pod.metadata, "vmi-uid") {
            self.launchers_made += usize::from(!crate::pods::is_temporary(&pod));
            self.pods.push(pod);
        } else {
            self.helpers.push(pod);
        }
    }

    fn delete(&mut self, uid: &str, at_once: bool) {
        let is = |pod: &Pod| pod.metadata.uid.as_deref() == Some(uid);
        let scheduled = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        self.helpers.retain(|pod| !is(pod));
        self.pods.retain(|pod| !is(pod) || (!at_once && scheduled(pod)));
        for pod in self.pods.iter_mut().filter(|pod| is(pod)) {
            pod.metadata.deletion_timestamp = Some(time(60));
            pod.metadata.deletion_grace_period_seconds = Some(60);
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
            let before = (self.vmi.clone(), self.pods.clone(), self.helpers.clone());
            let actions = decide(&w);
            check_pass(&w, &actions);
            self.carry_out(&w, &actions);
            let writes = actions.iter().any(|a| !matches!(a, Action::Note(_) | Action::RequeueAfter(_)));
            if !writes {
                assert_eq!(actions, [], "a settled world gives nothing to do");
                return;
            }
            if before == (self.vmi.clone(), self.pods.clone(), self.helpers.clone()) {
                panic!("a write that changes nothing: {actions:#?}");
            }
        }
        panic!("never settles: {:#?}", self.world().map(|w| decide(&w)));
    }

    /// What kubelet, importer, node agent and users do. `kind` picks one.
    fn stir(&mut self, kind: u8, state: usize) {
        match kind {
            0..=3 => self.move_pod(state),
            4 => {
                // A Pod vanishes, and its dependents with it.
                let uid = self.pods.pop().and_then(|pod| pod.metadata.uid).unwrap_or_default();
                self.helpers.retain(|pod| !machinery::meta::is_controlled_by(&pod.metadata, &uid));
            }
            5 => self.move_guest(state),
            6 => {
                if let Some(mut vmi) = self.vmi.take() {
                    vmi.metadata.deletion_timestamp.get_or_insert(time(50));
                    self.store(vmi);
                }
            }
            7 => self.owner = Owner::Gone,
            8 => self.data = self.data.map(|_| DATA_VOLUMES[state % 5]),
            9 => self.plugged[state % 3] = DATA_VOLUMES[state % 4],
            10..=12 => self.move_helper(state),
            13..=14 => self.plug(PLUGS[state % 3]),
            _ => self.move_volume(PLUGS[state % 3]),
        }
    }

    /// The kubelet moves a Pod to another state; conditions that others set survive.
    fn move_pod(&mut self, state: usize) {
        let Some(pod) = self.pods.last_mut().filter(|pod| pod.metadata.deletion_timestamp.is_none()) else { return };
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

    /// The node agent starts the guest, or tells of its end.
    fn move_guest(&mut self, state: usize) {
        let phase = match self.vmi.as_ref().and_then(|vmi| vmi.phase()) {
            Some(Phase::Scheduled) => Phase::Running,
            Some(Phase::Running) => [Phase::Succeeded, Phase::Failed][state % 2].clone(),
            _ => return,
        };
        if let Some(mut vmi) = self.vmi.take() {
            vmi.status_mut().phase = Some(phase);
            vmi.status_mut().selinux_context = Some("none".into());
            self.store(vmi);
        }
    }

    fn move_helper(&mut self, state: usize) {
        let count = self.helpers.len().max(1);
        if let Some(pod) = self.helpers.get_mut(state % count) {
            let phase = if crate::pods::is_temporary(pod) { "Succeeded" } else { "Running" };
            pod.status = attachment("x", &[], phase).status;
        }
    }

    /// A user plugs a volume, or unplugs it.
    fn plug(&mut self, name: &str) {
        let Some(mut vmi) = self.vmi.take() else { return };
        if vmi.spec.volumes.iter().any(|volume| volume.name == name) {
            vmi.spec.volumes.retain(|volume| volume.name != name);
        } else {
            let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}});
            vmi = with_volume(vmi, volume);
        }
        self.store(vmi);
    }

    /// The node agent brings a volume a step further into the guest, or out of it.
    fn move_volume(&mut self, name: &str) {
        let Some(mut vmi) = self.vmi.take() else { return };
        let wanted = vmi.spec.volumes.iter().any(|volume| volume.name == name);
        let running = vmi.is_running();
        if let Some(status) = vmi.status_mut().volume_status.iter_mut().find(|status| status.name == name && running) {
            let attached = status.hotplug_volume.as_ref().is_some_and(|hotplug| hotplug.attach_pod_uid.is_some());
            let next = match (wanted, status.phase.clone()) {
                (true, Some(VolumePhase::AttachedToNode)) if attached => Some(VolumePhase::MountedToPod),
                (true, Some(VolumePhase::MountedToPod)) => Some(VolumePhase::Ready),
                (false, Some(VolumePhase::Ready | VolumePhase::MountedToPod | VolumePhase::AttachedToNode)) => {
                    Some(VolumePhase::UnMountedFromPod)
                }
                (_, phase) => phase,
            };
            status.phase = next;
        }
        self.store(vmi);
    }
}

/// What must hold of every single pass.
fn check_pass(w: &World, actions: &[Action]) {
    let node_owned = matches!(w.vmi.phase(), Some(Phase::Scheduled | Phase::Running));
    let flat: Vec<&Action> = actions
        .iter()
        .flat_map(|action| match action {
            Action::Confirm { look: Look::NoPods(_), then } => then.iter().collect(),
            action => vec![action],
        })
        .collect();
    for action in flat {
        match action {
            Action::Replace(Object::Vmi(_)) => assert!(!node_owned),
            Action::Patch { kind: Kind::Vmi, .. } => assert!(node_owned),
            Action::Create { object: Object::Pod(pod), .. } => check_creation(w, pod),
            Action::Delete { kind: Kind::Pod, uid, .. } => check_deletion(w, uid),
            _ => {}
        }
    }
    if let Some(new) = written(w, actions) {
        check_write(w, &new, node_owned);
    }
}

fn check_creation(w: &World, pod: &Pod) {
    assert!(!w.vmi.is_marked_for_deletion());
    if machinery::meta::is_controlled_by(&pod.metadata, "vmi-uid") {
        assert!(w.vmi.is_unprocessed() && w.pods.is_empty() && w.vmi.metadata.finalizers.is_some());
        return;
    }
    let launcher = w.launcher_pod().expect("helpers belong to a launcher");
    assert!(machinery::meta::is_controlled_by(&pod.metadata, launcher.metadata.uid.as_ref().unwrap()));
    if !crate::pods::is_temporary(pod) {
        let attachments = hotplug::attachment_pods(w, launcher);
        let pending = |pod: &&&Pod| !crate::pods::is_running(pod) && !crate::pods::is_down(pod);
        assert_eq!(attachments.iter().filter(pending).count(), 0, "one attachment Pod at a time");
    }
}

/// What the guest still sees keeps its Pod, unless the guest is gone or another Pod that runs has it too.
fn check_deletion(w: &World, uid: &str) {
    if w.vmi.is_marked_for_deletion() || w.vmi.is_final() {
        return;
    }
    let is = |pod: &&Arc<Pod>| pod.metadata.uid.as_deref() == Some(uid);
    if let Some(pod) = w.pods.iter().find(is) {
        assert!(crate::pods::is_temporary(pod), "a launcher is not deleted under its guest");
        return;
    }
    let pod = w.helpers.iter().find(is).expect("only what is there is deleted");
    let launcher = w.launcher_pod().filter(|pod| !crate::pods::is_down(pod));
    let Some(launcher) =
        launcher.filter(|l| machinery::meta::is_controlled_by(&pod.metadata, l.metadata.uid.as_ref().unwrap()))
    else {
        return;
    };
    for volume in hotplug::cargo(pod).into_iter().map(|attachment| attachment.volume) {
        let held = hotplug::status_of(&w.vmi, &volume).is_some_and(hotplug::is_in_use);
        let wanted = w.vmi.spec.volumes.iter().any(|v| v.name == volume);
        let others = hotplug::attachment_pods(w, launcher);
        let elsewhere = others.iter().any(|other| {
            other.metadata.uid != pod.metadata.uid && crate::pods::is_running(other) && hotplug::carries(other, &volume)
        });
        assert!(!held || (wanted && elsewhere), "{volume} is in use");
    }
}

fn check_write(w: &World, new: &VirtualMachineInstance, node_owned: bool) {
    if w.vmi.is_final() {
        assert_eq!(new.phase(), w.vmi.phase(), "the end is final");
    }
    if new.metadata.finalizers.is_none() && w.vmi.metadata.finalizers.is_some() {
        assert!(w.pods.is_empty(), "a finalizer left before its Pod");
    }
    let ready = new.condition(api::conditions::READY).is_some_and(|c| c.is_true());
    assert!(!ready || w.vmi.is_running());
    assert_eq!(new.spec, w.vmi.spec, "the spec is never ours to write");
    if new.phase() == Some(&Phase::Scheduling) && w.vmi.is_unprocessed() {
        assert!(w.launcher_pod().is_some(), "a temporary Pod is no launcher");
    }
    let (before, after) = (w.vmi.status.clone().unwrap_or_default(), new.status.clone().unwrap_or_default());
    let mut names: Vec<&str> = after.volume_status.iter().map(|status| status.name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), after.volume_status.len(), "one entry per volume");
    if node_owned {
        assert_eq!(before.node_name, after.node_name);
        assert_eq!(before.qos_class, after.qos_class);
        assert_eq!(before.phase_transition_timestamps, after.phase_transition_timestamps);
        let synchronized = api::conditions::SYNCHRONIZED;
        assert_eq!(w.vmi.condition(synchronized), new.condition(synchronized));
    }
}

fn start() -> Cluster {
    Cluster::new(vmi("Pending"))
}

#[test]
fn an_instance_runs_and_ends_in_few_writes() {
    let mut c = start();
    c.settle();
    assert_eq!((c.launchers_made, c.vmi.as_ref().unwrap().phase()), (1, Some(&Phase::Scheduling)));
    assert_eq!(c.writes, 3, "a Pod, its event, and one update");
    c.stir(0, 2); // the Pod is bound to a node
    c.settle();
    assert_eq!(c.writes, 3, "nobody needs to know");
    c.stir(0, 4); // the Pod's containers run
    c.settle();
    assert_eq!(c.vmi.as_ref().unwrap().phase(), Some(&Phase::Scheduled));
    assert_eq!(c.writes, 6, "the Pod's label, its gate, and the hand-over");
    c.stir(5, 0); // the node agent starts the guest
    c.settle();
    c.stir(0, 5);
    c.settle();
    assert!(c.vmi.as_ref().unwrap().has_condition(api::conditions::READY));
    assert!(c.writes <= 8, "{} writes until it was ready", c.writes);
    c.stir(6, 0); // a user deletes it
    c.settle();
    assert!(c.pods[0].metadata.deletion_timestamp.is_some());
    c.stir(5, 0); // the guest shuts down
    c.stir(4, 0); // the Pod vanishes
    c.settle();
    assert!(c.vmi.is_none(), "nothing holds the instance any more");
}

/// Plugging two volumes one after the other and unplugging the first, with everybody doing their part.
#[test]
fn volumes_move_in_and_out_of_a_running_guest() {
    let mut c = start();
    for (kind, state) in [(0, 5), (5, 0), (0, 5)] {
        c.settle();
        c.stir(kind, state);
    }
    let phase = |c: &Cluster, name: &str| {
        let status = c.vmi.as_ref().unwrap().status.clone().unwrap();
        status.volume_status.iter().find(|v| v.name == name).and_then(|v| v.phase.clone())
    };
    let cargos = |c: &Cluster| -> Vec<Vec<String>> {
        c.helpers.iter().map(|pod| hotplug::cargo(pod).into_iter().map(|a| a.volume).collect()).collect()
    };
    c.stir(13, 0); // plug a
    c.settle();
    assert_eq!(cargos(&c), [["a"]]);
    for _ in 0..3 {
        c.stir(10, 0); // its Pod runs, the node agent goes on
        c.settle();
        c.stir(15, 0);
        c.settle();
    }
    assert_eq!(phase(&c, "a"), Some(VolumePhase::Ready));
    c.stir(13, 1); // plug b
    c.settle();
    assert_eq!(cargos(&c), [vec!["a"], vec!["a", "b"]], "the first Pod stays until the second runs");
    c.stir(10, 1);
    c.settle();
    assert_eq!(cargos(&c), [["a", "b"]]);
    for _ in 0..2 {
        c.stir(15, 1);
        c.settle();
    }
    assert_eq!((phase(&c, "a"), phase(&c, "b")), (Some(VolumePhase::Ready), Some(VolumePhase::Ready)));
    c.stir(13, 0); // unplug a
    c.settle();
    assert_eq!(cargos(&c), [vec!["a", "b"], vec!["b"]], "the guest still sees a");
    c.stir(10, 1);
    c.settle();
    assert_eq!(cargos(&c).len(), 2);
    c.stir(15, 0); // the node agent lets go
    c.settle();
    assert_eq!(cargos(&c), [["b"]]);
    assert_eq!(phase(&c, "a"), None, "the last trace");
    assert_eq!(phase(&c, "b"), Some(VolumePhase::Ready));
}

proptest! {
    /// From any state, however odd: no panic, every pass keeps the rules, and without outside events peace comes.
    #[test]
    fn any_world_settles(
        phase in 0..PHASES.len(),
        pods in prop::collection::vec((0..POD_STATES.len(), any::<bool>()), 0..3),
        helpers in prop::collection::vec((0..7usize, 0..4usize), 0..3),
        volumes in prop::collection::vec((0..3usize, 0..5usize), 0..3),
        data in prop::option::of(0..5usize),
        (deleted, finalizer, gone, receives) in any::<(bool, bool, bool, bool)>(),
    ) {
        let mut vmi = vmi(PHASES[phase]);
        if !finalizer {
            vmi.metadata.finalizers = None;
        } else if deleted {
            vmi.metadata.deletion_timestamp = Some(time(50));
        }
        if receives {
            let annotations = vmi.metadata.annotations.get_or_insert_default();
            annotations.insert(api::annotations::CREATE_MIGRATION_TARGET.into(), "true".into());
        }
        if vmi.phase().is_some() {
            vmi.status_mut().selinux_context = Some("none".into());
        }
        let mut cluster = Cluster::new(vmi);
        if let Some(data) = data {
            cluster.data = Some(DATA_VOLUMES[data]);
            let volume = json!({"name": "data", "dataVolume": {"name": "data"}});
            cluster.vmi = cluster.vmi.map(|vmi| with_volume(vmi, volume));
        }
        for (name, phase) in volumes {
            cluster.plug(PLUGS[name]);
            cluster.plugged[name] = DATA_VOLUMES[phase % 4];
        }
        cluster.pods = pods.iter().enumerate().map(|(index, (state, temp))| {
            let mut pod = if *temp { temporary(POD_STATES[*state]) } else { pod(POD_STATES[*state]) };
            pod.metadata.name = Some(format!("virt-launcher-{index}"));
            pod.metadata.uid = Some(format!("pod-{index}"));
            let mut volumes = vec![json!({"name": "root"})];
            volumes.extend(data.map(|_| json!({"name": "data"})));
            pod.spec.as_mut().unwrap().volumes = serde_json::from_value(json!(volumes)).unwrap();
            pod
        }).collect();
        cluster.helpers = helpers.iter().enumerate().map(|(index, (volumes, state))| {
            let cargo: Vec<&str> = PLUGS.into_iter().enumerate().filter(|(i, _)| volumes & (1 << i) != 0).map(|(_, n)| n).collect();
            let mut pod = attachment(&format!("hp-{index}"), &cargo, ["Pending", "Running", "Succeeded", "Failed"][*state]);
            pod.metadata.owner_references.as_mut().unwrap()[0].uid = "pod-0".into();
            pod
        }).collect();
        cluster.owner = if gone { Owner::Gone } else { Owner::Alive };
        cluster.pods_made = 10;
        cluster.settle();
    }

    /// Over one life, whatever kubelet, importer, node agent and users do: one launcher Pod, peace after every step, and a
    /// deleted instance goes once its Pods are gone.
    #[test]
    fn one_life_makes_one_launcher_and_ends_clean(
        data in prop::option::of(0..5usize),
        steps in prop::collection::vec((0..18u8, 0..12usize), 0..40),
    ) {
        let mut cluster = start();
        if let Some(data) = data {
            cluster.data = Some(DATA_VOLUMES[data]);
            cluster.vmi = cluster.vmi.map(|vmi| with_volume(vmi, json!({"name": "data", "dataVolume": {"name": "data"}})));
        }
        for (kind, state) in steps {
            cluster.settle();
            cluster.stir(kind, state);
            prop_assert!(cluster.launchers_made <= 1);
        }
        cluster.settle();
        cluster.stir(6, 0);
        cluster.owner = Owner::Gone;
        cluster.settle();
        cluster.pods.clear();
        cluster.helpers.clear();
        cluster.settle();
        prop_assert!(cluster.vmi.is_none(), "left behind: {:#?}", cluster.vmi);
    }
}
