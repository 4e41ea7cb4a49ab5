use std::time::Duration;

use launcher_contract::types::{DomainReason as Reason, DomainState, DomainStatus as Status, LauncherState};
use lifecycle::{Event, Exit, Life, Limits, Order, Seen, has_ended};
use proptest::prelude::*;

const LIMITS: Limits = Limits { first: Duration::from_secs(300), grace: Duration::from_secs(30) };

const NONE: Seen = Seen { domain: None, awaits_guest: false };
const AWAITED: Seen = Seen { domain: None, awaits_guest: true };
const RUNS: Seen = Seen { domain: Some((Status::Running, Reason::Booted)), awaits_guest: false };
const DOWN: Seen = Seen { domain: Some((Status::Shutoff, Reason::Shutdown)), awaits_guest: false };
const MOVED: Seen = Seen { domain: Some((Status::Shutoff, Reason::Migrated)), awaits_guest: false };

/// What happens, what the launcher sees then, when, and what it does.
type Row = (Event, Seen, u64, &'static [Order]);

fn check(name: &str, rows: &[Row]) {
    let mut life = Life::new(LIMITS);
    for (event, seen, at, expected) in rows {
        assert_eq!(life.on(*event, *seen, Duration::from_secs(*at)), *expected, "{name}: {event:?} at {at} s");
    }
}

const DONE: &[Order] = &[Order::Exit(Exit::Done("done"))];
const OVERDUE: &[Order] = &[Order::EndGuest { overdue: true }];

#[test]
fn a_launcher_waits_for_a_guest_until_somebody_decides_otherwise() {
    let nobody = &[Order::Exit(Exit::NobodyCame)];
    check("nobody comes", &[(Event::Tick, NONE, 299, &[]), (Event::Tick, NONE, 300, nobody)]);
    check("a target waits", &[(Event::Tick, AWAITED, 300, &[]), (Event::Tick, NONE, 9_000, &[])]);
    let deleted = &[Order::Exit(Exit::Done("deleted before it had a guest"))];
    check("deleted", &[(Event::Deleted, NONE, 5, deleted)]);
    let stopped = &[Order::Exit(Exit::Done("stopped before it had a guest"))];
    check(
        "stopped while a guest starts",
        &[
            (Event::StopAsked, RUNS, 5, &[Order::EndGuest { overdue: false }]),
            (Event::Started, RUNS, 5, &[]),
            (Event::Killed, DOWN, 6, stopped),
            (Event::Started, DOWN, 6, &[]),
        ],
    );
}

#[test]
fn a_guest_is_guarded_and_its_end_is_kept_for_a_while() {
    for (name, end, event, at) in [
        ("it powers off, and is deleted", DOWN, Event::Deleted, 11),
        ("it powers off, and nobody deletes it", DOWN, Event::Tick, 25),
        ("it has moved, and is deleted", MOVED, Event::Deleted, 11),
        ("it has moved, and the Pod is stopped", MOVED, Event::StopAsked, 11),
        ("it has moved, and nobody deletes it", MOVED, Event::Tick, 610),
        ("it is gone without a trace", NONE, Event::Tick, 25),
    ] {
        check(
            name,
            &[
                (Event::Started, RUNS, 1, &[Order::Guard]),
                (Event::Tick, RUNS, 9, &[]),
                (Event::Ended, end, 10, &[Order::KeepState]),
                (Event::Ended, end, 10, &[]),
                (Event::Tick, end, at - 1, &[]),
                (event, end, at, DONE),
                (Event::Tick, end, at, &[]),
            ],
        );
    }
    check(
        "a stop is too late for a guest that has ended",
        &[
            (Event::Started, RUNS, 1, &[Order::Guard]),
            (Event::Ended, DOWN, 10, &[Order::KeepState]),
            (Event::StopAsked, DOWN, 11, &[]),
            (Event::Tick, DOWN, 25, DONE),
        ],
    );
}

#[test]
fn a_stopped_pod_ends_its_guest_after_the_grace_period_and_not_before() {
    let marked: [Row; 2] = [(Event::Started, RUNS, 1, &[Order::Guard]), (Event::StopAsked, RUNS, 10, &[Order::Mark])];
    let with = |rows: &[Row]| [&marked[..], rows].concat();
    check(
        "virt-handler shuts it down",
        &with(&[(Event::Tick, RUNS, 39, &[]), (Event::Ended, DOWN, 39, &[Order::KeepState])]),
    );
    check(
        "it is killed, and libvirt notices",
        &with(&[
            (Event::Tick, RUNS, 40, OVERDUE),
            (Event::Killed, RUNS, 41, &[]),
            (Event::Ended, DOWN, 42, &[Order::KeepState]),
            (Event::Tick, DOWN, 57, DONE),
        ]),
    );
    check(
        "it is seen dead before the kill returns",
        &with(&[
            (Event::Tick, RUNS, 40, OVERDUE),
            (Event::Ended, DOWN, 41, &[Order::KeepState]),
            (Event::Killed, DOWN, 41, &[]),
            (Event::Tick, DOWN, 56, DONE),
        ]),
    );
    check(
        "libvirt does not notice",
        &with(&[
            (Event::Tick, RUNS, 40, OVERDUE),
            (Event::Killed, RUNS, 50, &[]),
            (Event::Tick, RUNS, 59, &[]),
            (Event::Tick, RUNS, 60, &[Order::KeepState]),
            (Event::Tick, RUNS, 75, DONE),
        ]),
    );
}

#[test]
fn the_longest_grace_period_is_no_error() {
    let mut life = Life::new(Limits { grace: Duration::MAX, ..LIMITS });
    life.on(Event::Started, RUNS, Duration::from_secs(1));
    assert_eq!(life.on(Event::StopAsked, RUNS, Duration::from_secs(2)), [Order::Mark]);
    assert_eq!(life.wakes_at(), Some(Duration::MAX));
}

#[test]
fn a_guest_has_ended_when_nothing_of_it_is_up() {
    let of = |domain| LauncherState { domain, ..Default::default() };
    let domain = |status| Some(DomainState { status, ..Default::default() });
    assert!(has_ended(&of(None)) && has_ended(&of(domain(Status::Shutoff))) && has_ended(&of(domain(Status::Crashed))));
    assert!(!has_ended(&of(domain(Status::Paused))) && !has_ended(&of(domain(Status::Shutdown))));
}

const EVENTS: [Event; 6] = [Event::Started, Event::Ended, Event::Deleted, Event::StopAsked, Event::Killed, Event::Tick];

fn turns() -> impl Strategy<Value = Vec<(Event, Seen, u64)>> {
    let seen = prop::sample::select(vec![NONE, AWAITED, RUNS, DOWN, MOVED]);
    prop::collection::vec((prop::sample::select(EVENTS.to_vec()), seen, 0..200_u64), 0..40)
}

proptest! {
    /// Whatever happens in whatever order: the guest is ended only in a Pod that is stopped, and not within its grace
    /// period; its end is kept before the launcher exits; and after a stop the launcher exits.
    #[test]
    fn a_launcher_always_comes_to_its_end(turns in turns()) {
        let (mut life, mut now) = (Life::new(LIMITS), Duration::ZERO);
        let (mut stopped, mut guarded, mut kept, mut over) = (None, false, false, false);
        let calm = [(Event::StopAsked, RUNS, 0), (Event::Killed, RUNS, 1)].repeat(2);
        let calm = calm.into_iter().chain([(Event::Tick, RUNS, 3_000), (Event::Killed, RUNS, 0)]);
        let calm = calm.chain([(Event::Tick, RUNS, 3_000); 4]);
        for (event, seen, later) in turns.into_iter().chain(calm) {
            now += Duration::from_secs(later);
            let heeded = life.heeds(event);
            let orders = life.on(event, seen, now);
            if heeded && event == Event::StopAsked {
                stopped = stopped.or(Some(now));
            }
            prop_assert!(heeded || orders.is_empty(), "{event:?} is not heeded, and has an effect");
            for order in orders {
                prop_assert!(!over, "{order:?} after the exit");
                match order {
                    Order::Guard => guarded = true,
                    Order::Mark => prop_assert!(guarded && stopped.is_some()),
                    Order::EndGuest { overdue } => {
                        prop_assert!(stopped.is_some_and(|at| !overdue || now >= at + LIMITS.grace), "ended too early");
                        prop_assert_eq!(overdue, guarded);
                    }
                    Order::KeepState => kept = true,
                    Order::Exit(exit) => {
                        prop_assert_eq!(guarded, kept, "a guest's end is kept");
                        prop_assert!(!guarded || exit == Exit::Done("done"));
                        over = true;
                    }
                }
            }
        }
        prop_assert!(over, "goes on for ever: {:?}", life);
    }
}
