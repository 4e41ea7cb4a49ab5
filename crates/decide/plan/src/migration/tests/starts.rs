//! What is looked at once more under the lock for starts.

use super::*;
use crate::migration::{
    has_left, has_target_among, needs_stored_instance, says_the_same, start, with_stored_instance,
    with_stored_migration,
};

fn pending() -> World {
    world(migration("Pending"), vmi(Value::Null), vec![])
}

#[test]
fn a_start_goes_by_the_migration_that_is_stored_if_it_is_the_same() {
    let going = with_stored_migration(pending(), Some(deleted(migration("Pending")))).unwrap();
    assert!(!start(&going, Some(&source())).iter().any(|action| matches!(action, Action::CreateTarget { .. })));
    assert!(with_stored_migration(pending(), None).is_none(), "it is gone");
    let mut another = migration("Pending");
    another.metadata.uid = Some("uid-of-another".to_owned());
    assert!(with_stored_migration(pending(), Some(another)).is_none(), "its name was used again");
}

#[test]
fn only_who_empties_a_node_looks_for_the_instance_too() {
    assert!(!needs_stored_instance(&pending()));
    let mut w = pending();
    let key = api::annotations::EVACUATION_MIGRATION.to_owned();
    Arc::make_mut(&mut w.migration).metadata.annotations.get_or_insert_default().insert(key, "n1".into());
    assert!(needs_stored_instance(&w));
    let mut moved = vmi(Value::Null);
    moved.status_mut().node_name = Some("n2".into());
    let seen = with_stored_instance(w.clone(), Some(moved.clone())).unwrap();
    assert_eq!(seen.vmi.as_deref(), Some(&moved));
    assert!(with_stored_instance(w.clone(), None).is_none());
    moved.metadata.uid = Some("another".into());
    assert!(with_stored_instance(w.clone(), Some(moved)).is_none());
    assert!(with_stored_instance(World { vmi: None, ..w }, Some(vmi(Value::Null))).is_none());
}

#[test]
fn a_live_look_agrees_with_the_cache_or_does_not() {
    let w = world(migration("Running"), vmi(course("sending")), vec![]);
    assert!(says_the_same(&w, Some(&vmi(course("sending")))));
    assert!(!says_the_same(&w, Some(&vmi(course("ready")))));
    assert!(!says_the_same(&w, None));
    assert!(says_the_same(&pending(), None), "neither says anything");
    assert!(!has_left(Some(&vmi(Value::Null)), "n1"));
    assert!(has_left(Some(&vmi(Value::Null)), "n2") && has_left(None, "n1"));
}

#[test]
fn a_target_is_one_of_this_migration_and_this_instance() {
    let of = |migration: &str, instance: &str| {
        let labels = json!({api::labels::APP: "virt-launcher", api::labels::MIGRATION_JOB_UID: migration,
                            api::labels::CREATED_BY: instance});
        [pod("target", None, "new", labels)]
    };
    let table = [("uid-of-m", "vmi-uid", true), ("uid-of-m", "older", false), ("uid-of-another", "vmi-uid", false)];
    for (migration, instance, expected) in table {
        assert_eq!(has_target_among(&pending(), &of(migration, instance)), expected, "{migration} {instance}");
    }
    assert!(!has_target_among(&pending(), &[source()]));
}
