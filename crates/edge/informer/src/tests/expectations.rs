use std::time::Duration;

use tokio::time::advance;

use crate::{EXPIRY, Expectations, Key, OwnWrites};

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_expected_of_an_unknown_key() {
    assert!(Expectations::default().satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn the_first_expectation_makes_the_record() {
    let e = Expectations::default();
    e.expect_creation(&key("vm"), key("a"));
    assert!(!e.satisfied(&key("vm")));
    assert!(e.satisfied(&key("other")));
}

#[tokio::test(start_paused = true)]
async fn only_the_expected_object_satisfies() {
    let e = Expectations::default();
    e.expect_creation(&key("vm"), key("a"));
    e.created(&key("vm"), &key("b"));
    assert!(!e.satisfied(&key("vm")));
    e.created(&key("vm"), &key("a"));
    assert!(e.satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_seen_twice_counts_once() {
    let e = Expectations::default();
    e.expect_deletion(&key("vm"), key("a"));
    e.expect_deletion(&key("vm"), key("b"));
    e.deleted(&key("vm"), &key("a"));
    e.deleted(&key("vm"), &key("a"));
    assert!(!e.satisfied(&key("vm")), "b is still there");
    e.deleted(&key("vm"), &key("b"));
    assert!(e.satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn an_object_deleted_before_its_creation_was_seen_is_no_longer_awaited() {
    let e = Expectations::default();
    e.expect_creation(&key("vm"), key("a"));
    e.deleted(&key("vm"), &key("a"));
    assert!(e.satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn two_steps_of_one_pass_do_not_overwrite_each_other() {
    let e = Expectations::default();
    e.expect_deletion(&key("vm"), key("old"));
    e.expect_creation(&key("vm"), key("new"));
    e.created(&key("vm"), &key("new"));
    assert!(!e.satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn an_expectation_expires_and_does_not_revive_with_the_next_one() {
    let e = Expectations::default();
    e.expect_creation(&key("vm"), key("a"));
    advance(EXPIRY - Duration::from_secs(1)).await;
    assert_eq!(e.open(&key("vm")), Some(Duration::from_secs(1)));
    advance(Duration::from_secs(1)).await;
    assert!(e.satisfied(&key("vm")));
    e.expect_creation(&key("vm"), key("b"));
    e.created(&key("vm"), &key("b"));
    assert!(e.satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn forgetting_the_owner_forgets_what_was_expected() {
    let e = Expectations::default();
    e.expect_creation(&key("vm"), key("a"));
    e.forget(&key("vm"));
    assert!(e.satisfied(&key("vm")));
}

#[tokio::test(start_paused = true)]
async fn a_cache_is_behind_until_it_shows_our_write_or_a_later_one() {
    let writes = OwnWrites::default();
    let vm = key("vm");
    assert_eq!(writes.behind(&vm, Some("1")), None);
    writes.wrote(&vm, Some("10"));
    assert_eq!(writes.behind(&vm, Some("9")), Some(EXPIRY), "9 comes before 10 although it sorts after it");
    assert_eq!(writes.behind(&vm, Some("10")), None);
    assert_eq!(writes.behind(&vm, Some("11")), None);
    assert_eq!(writes.behind(&key("other"), Some("1")), None);
    advance(EXPIRY).await;
    assert_eq!(writes.behind(&vm, Some("9")), None, "the event is taken to be lost");
    writes.wrote(&vm, Some("opaque"));
    assert!(writes.behind(&vm, Some("other")).is_some());
    assert_eq!(writes.behind(&vm, Some("opaque")), None);
}
