//! Whole courses, step by step.

use super::*;
use crate::migration::{Live, hand_off, start};

/// A name, and what happens.
type Step<'a> = (&'a str, &'a dyn Fn(&mut Scene));

/// A cluster of one guest and one migration: what the API holds.
struct Scene {
    w: World,
}

impl Scene {
    fn new() -> Self {
        Self { w: world(migration(""), vmi(Value::Null), vec![]) }
    }

    fn phase(&self) -> &str {
        self.w.migration.phase().map_or("", |phase| phase.as_str())
    }

    /// One pass, carried out on what the API holds. Says what was done that is not a write to the migration.
    fn pass(&mut self) -> Vec<Action> {
        let mut done = vec![];
        let mut waiting = decide(&self.w);
        waiting.reverse();
        while let Some(action) = waiting.pop() {
            match action {
                // The status has an endpoint of its own: nothing else is taken.
                Action::ReplaceStatus(Object::Migration(new)) => {
                    let mut stored = (*self.w.migration).clone();
                    stored.status = new.status;
                    self.w.migration = Arc::new(stored);
                }
                Action::Patch { kind: Of::Migration, patch: Patch::Json(patch), .. } => {
                    self.w.migration = Arc::new(applied(&*self.w.migration, &patch))
                }
                Action::Own(Own::Start) => waiting.extend(start(&self.w, Some(&source())).into_iter().rev()),
                Action::Own(Own::ConfirmHandOff) => {
                    let live = Live {
                        vmi: self.w.vmi.as_deref().cloned(),
                        target: self.w.target().cloned(),
                        migrations: vec![(*self.w.migration).clone()],
                    };
                    waiting.extend(hand_off(&self.w, &live).into_iter().rev());
                }
                Action::Own(Own::HandOff(patch)) | Action::Patch { kind: Of::Vmi, patch: Patch::Json(patch), .. } => {
                    self.patch_vmi(&patch)
                }
                Action::Own(Own::CreateTarget { .. }) => self.w.pods.push(Arc::new(target("new"))),
                Action::Delete { kind: Of::Pod, name, .. } => {
                    self.w.pods.retain(|pod| pod.metadata.name.as_deref() != Some(&name))
                }
                Action::Confirm { look: Look::NoTarget | Look::SameState | Look::GuestNotOn { .. }, then } => {
                    waiting.extend(then.into_iter().rev());
                }
                other => done.push(other),
            }
        }
        self.w.siblings = vec![self.w.migration.clone()];
        done
    }

    fn patch_vmi(&mut self, patch: &json_patch::Patch) {
        self.w.vmi = self.w.vmi.as_deref().map(|vmi| Arc::new(applied(vmi, patch)));
    }

    fn nodes_say(&mut self, stage: &str) {
        let mut guest = (**self.w.vmi.as_ref().unwrap()).clone();
        let mut state = serde_json::to_value(guest.status_mut().migration_state.take()).unwrap();
        machinery::patch::merge(&mut state, &course(stage));
        guest.status_mut().migration_state = serde_json::from_value(state).unwrap();
        if stage == "completed" {
            guest.status_mut().node_name = Some("n2".into());
        }
        self.w.vmi = Some(Arc::new(guest));
    }

    fn target_is(&mut self, state: &str) {
        self.w.pods.retain(|pod| pod.metadata.name.as_deref() != Some("target"));
        self.w.pods.push(Arc::new(target(state)));
    }

    /// Passes until the phase is this.
    fn until(&mut self, phase: &str) {
        for _ in 0..8 {
            if self.phase() == phase {
                return;
            }
            self.pass();
        }
        panic!("it stays {}: {:?}", self.phase(), decide(&self.w));
    }

    fn delete(&mut self) {
        self.w.migration = Arc::new(deleted((*self.w.migration).clone()));
    }

    /// Brings it to a phase the usual way.
    fn bring_to(&mut self, phase: &str) {
        let steps: [Step<'_>; 7] = [
            ("Pending", &|_| {}),
            ("Scheduling", &|_| {}),
            ("Scheduled", &|scene| scene.target_is("running")),
            ("PreparingTarget", &|_| {}),
            ("TargetReady", &|scene| scene.nodes_say("listening")),
            ("Running", &|scene| scene.nodes_say("sending")),
            ("Succeeded", &|scene| scene.nodes_say("completed")),
        ];
        for (reached, cause) in steps {
            cause(self);
            self.until(reached);
            if reached == phase {
                return;
            }
        }
    }
}

#[test]
fn a_guest_moves() {
    let mut scene = Scene::new();
    scene.bring_to("Pending");
    assert!(scene.w.target().is_none());
    scene.until("Scheduling");
    let noted = scene.w.migration.status.as_ref().unwrap().migration_state.as_ref().unwrap();
    assert_eq!(noted.source_pod.as_deref(), Some("source"));
    scene.target_is("running");
    scene.until("Scheduled");
    scene.pass();
    let label =
        machinery::meta::label(&scene.w.vmi.as_ref().unwrap().metadata, api::labels::MIGRATION_TARGET_NODE_NAME);
    assert_eq!(label, Some("n2"), "handed off");
    scene.until("PreparingTarget");
    scene.nodes_say("listening");
    scene.until("TargetReady");
    scene.nodes_say("sending");
    scene.until("Running");
    scene.nodes_say("ready");
    let told = scene.pass();
    assert!(
        told.iter().any(|a| matches!(a, Action::Patch { kind: Of::Pod, .. })),
        "the switch-over shows on the target: {told:?}"
    );
    scene.nodes_say("completed");
    scene.until("Succeeded");
    scene.pass();
    assert_eq!(scene.w.migration.metadata.finalizers, None);
    let phases: Vec<&str> = scene
        .w
        .migration
        .status
        .as_ref()
        .unwrap()
        .phase_transition_timestamps
        .iter()
        .filter_map(|t| t.phase.as_ref().map(|phase| phase.as_str()))
        .collect();
    assert_eq!(
        phases,
        ["Pending", "Scheduling", "Scheduled", "PreparingTarget", "TargetReady", "Running", "Succeeded"]
    );
}

#[test]
fn a_migration_that_is_deleted_before_the_hand_off_leaves_nothing() {
    for phase in ["", "Pending", "Scheduling", "Scheduled"] {
        let mut scene = Scene::new();
        if !phase.is_empty() {
            scene.bring_to(phase);
        }
        scene.delete();
        scene.until("Failed");
        scene.pass();
        assert!(scene.w.target().is_none(), "{phase}");
        assert_eq!(scene.w.migration.metadata.finalizers, None, "{phase}");
        assert_eq!(scene.w.state(), None, "{phase}: the instance never heard of it");
    }
}

#[test]
fn a_migration_that_is_deleted_with_the_nodes_goes_on_until_it_can_be_given_up() {
    for phase in ["PreparingTarget", "TargetReady"] {
        let mut scene = Scene::new();
        scene.bring_to(phase);
        scene.delete();
        scene.pass();
        scene.pass();
        assert_eq!(scene.phase(), phase);
        assert_eq!(scene.w.state().unwrap().abort_requested, None);
        assert!(scene.w.target().is_some());
    }
    let mut scene = Scene::new();
    scene.bring_to("Running");
    scene.delete();
    let told = scene.pass();
    assert_eq!(scene.w.state().unwrap().abort_requested, Some(true));
    assert!(notes(&told).contains(&"SuccessfulAbortMigration".to_owned()));
    assert_eq!(notes(&scene.pass()), Vec::<String>::new(), "once");
    scene.nodes_say("failed");
    scene.until("Failed");
    scene.pass();
    scene.pass();
    assert!(scene.w.target().is_none(), "the guest stayed");
}

#[test]
fn a_copy_that_had_finished_when_it_was_given_up_counts() {
    let mut scene = Scene::new();
    scene.bring_to("Running");
    scene.delete();
    scene.pass();
    scene.nodes_say("completed");
    scene.until("Succeeded");
    scene.pass();
    assert!(scene.w.target().is_some(), "the guest is in it");
    assert_eq!(scene.w.migration.metadata.finalizers, None);
}
