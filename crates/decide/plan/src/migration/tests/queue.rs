//! Who is next.

use super::*;
use crate::migration::next_in_line;
use crate::migration::queue::comes_before;

fn one(name: &str, phase: &str, priority: &str) -> Arc<Migration> {
    let mut migration = named(name, phase);
    migration.spec.priority = (!priority.is_empty()).then(|| priority.into());
    Arc::new(migration)
}

fn config(limit: Option<u32>) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.configuration.migrations.get_or_insert_default().parallel_migrations_per_cluster = limit;
    config
}

#[test]
fn urgency_comes_first_then_age_then_the_uid() {
    let aged = |name: &str, priority: &str, created: i64| {
        let mut migration = (*one(name, "Pending", priority)).clone();
        migration.metadata.creation_timestamp = Some(time(created));
        migration
    };
    let line = [
        aged("z", "system-critical", 9),
        aged("y", "user-triggered", 1),
        aged("b", "user-triggered", 2),
        aged("c", "user-triggered", 2),
        aged("x", "system-maintenance", 0),
        aged("a", "", 0),
    ];
    for (place, own) in line.iter().enumerate() {
        for (other_place, other) in line.iter().enumerate() {
            assert_eq!(comes_before(other, own), other_place < place, "{other:?} before {own:?}");
        }
    }
}

#[test]
fn as_many_as_could_start_at_once_are_woken_the_most_urgent_first() {
    let all = || {
        vec![
            one("a", "Pending", ""),
            one("b", "Pending", "system-critical"),
            one("c", "Running", "system-critical"),
            one("d", "", "system-critical"),
            one("e", "Pending", "user-triggered"),
            one("f", "Pending", "system-critical"),
        ]
    };
    let names = |limit: Option<u32>| -> Vec<String> {
        next_in_line(all(), &config(limit)).iter().filter_map(|m| m.metadata.name.clone()).collect()
    };
    assert_eq!(names(None), ["b", "f", "e", "a"], "those that run or are new need no waking");
    assert_eq!(names(Some(2)), ["b", "f"]);
    assert_eq!(names(Some(0)), Vec::<String>::new());
}
