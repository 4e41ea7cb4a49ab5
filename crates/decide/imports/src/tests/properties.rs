//! Histories of a DataVolume: whatever comes in whatever order, these rules hold.

use proptest::prelude::*;
use serde_json::json;

use super::{OURS, Scene, failed, of};
use crate::words::keys;
use crate::{Action, Transfer};

/// What happens to a DataVolume and its claim from outside.
#[derive(Clone, Copy, Debug)]
enum Step {
    Pass,
    Bind,
    Progress,
    Fail,
    FailForGood,
    Succeed,
    InUse,
    /// The process is killed: what it ran is gone.
    Kill,
    LoseAnnotations,
    DeleteClaim,
    Wait,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Step::*;
    let step = prop::sample::select(vec![
        Pass,
        Pass,
        Pass,
        Pass,
        Bind,
        Bind,
        Progress,
        Fail,
        FailForGood,
        Succeed,
        InUse,
        Kill,
        LoseAnnotations,
        DeleteClaim,
        Wait,
    ]);
    prop::collection::vec(step, 1..60)
}

fn sources() -> impl Strategy<Value = serde_json::Value> {
    prop::sample::select(vec![json!({"http": {"url": "http://x/y"}}), json!({"upload": {}}), json!({"blank": {}})])
}

fn running(scene: &Scene) -> bool {
    scene.transfer.is_some() && scene.claim.is_some()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_filled_claim_stays_as_it_is_and_decisions_settle(source in sources(), steps in steps()) {
        let mut scene = Scene::new(source);
        let mut filled = false;
        for step in steps {
            match step {
                Step::Pass => {
                    let decision = scene.pass();
                    let starts = decision.actions.iter().any(|action| matches!(action, Action::Start(_)));
                    prop_assert!(!(starts && filled), "a filled claim is filled again");
                    if scene.phase() == "Succeeded" {
                        prop_assert!(filled, "it said so without content");
                        prop_assert!(scene.transfer.is_none(), "the volume is still held");
                    }
                }
                Step::Bind if scene.claim.is_some() => { scene.bind(OURS); }
                Step::Progress if running(&scene) => { scene.is(Transfer::Running { progress: Some(1.0) }); }
                Step::Fail if running(&scene) => { scene.is(failed("no", false, scene.now)); }
                Step::FailForGood if running(&scene) => { scene.is(failed("checksum mismatch", true, scene.now)); }
                Step::InUse if running(&scene) => { scene.is(Transfer::Waiting { why: "in use".to_owned() }); }
                Step::Succeed if running(&scene) && !filled => {
                    scene.is(Transfer::Done { preallocated: false });
                    // It counts once it is noted: before, a kill loses it.
                    scene.pass();
                    filled = scene.note(keys::PHASE) == "Succeeded";
                }
                Step::Kill => scene.transfer = None,
                Step::LoseAnnotations if scene.phase() == "Succeeded" => {
                    if let Some(annotations) = scene.claim.as_mut().and_then(|claim| claim.metadata.annotations.as_mut()) {
                        annotations.retain(|key, _| key == keys::CREATED_FOR);
                    }
                }
                Step::DeleteClaim => {
                    scene.claim = None;
                    scene.volume = None;
                    scene.transfer = None;
                    filled = false;
                }
                Step::Wait => scene.now += 400,
                _ => {}
            }
        }
        scene.settle();
        let phase = scene.phase();
        prop_assert!(phase != "Unknown" && !phase.is_empty(), "{phase}");
    }

    #[test]
    fn a_strange_claim_is_never_touched(transfer in any::<bool>(), phase in "(Bound|Pending|Lost)") {
        let mut scene = Scene::new(json!({"http": {"url": "http://x/y"}}));
        scene.claim = Some(of(json!({"metadata": {"namespace": "ns", "name": "disk", "uid": "strange"}, "spec": {}, "status": {"phase": phase}})));
        scene.transfer = transfer.then_some(Transfer::Queued);
        for action in scene.decide().actions {
            prop_assert!(matches!(action, Action::Stop { .. }), "{action:?}");
        }
    }
}
