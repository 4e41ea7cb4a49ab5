use api::v1::VirtualMachineInstance;
use launcher_contract::migration::MigrationPhase::{Completed, Failed, Ready, SwitchingOver, Transferring};
use launcher_contract::migration::MigrationRole::{Source, Target};
use launcher_contract::migration::{MigrationPhase, MigrationRole};
use launcher_contract::types::DomainStatus::{self, Blocked, Crashed, PMSuspended, Paused, Running, Shutdown, Shutoff};
use launcher_contract::types::{Command, DomainReason as Reason, DomainState};
use lifecycle::{
    Act, Answer, Change, Facts, Guest, Receive, Sync, arrives_paused, has_started, not_moving, starts_paused,
};
use transfer::Refused;

use crate::{after, domain, migration};

/// What a launcher remembers.
#[derive(Debug, Clone, Copy)]
enum Memory {
    /// It has not started a guest.
    Fresh,
    Started,
    /// It has, and its user wants it paused.
    Held,
}
use Memory::{Fresh, Held, Started};

impl Memory {
    fn guest(self) -> Guest {
        match self {
            Fresh => Guest::default(),
            Started => after(&[Change::Started { paused: false }]),
            Held => after(&[Change::Started { paused: false }, Change::Paused]),
        }
    }
}

/// Everything a launcher may be asked, as one line: sync, prepare-target, pause, unpause, reset, soft reboot, shutdown,
/// kill, delete. `no` is a refusal, `none` that there is no domain, `-` that nothing is to be done.
fn answers(guest: Guest, facts: Facts<'_>) -> String {
    let sync = said(guest.sync(facts), |sync| match sync {
        Sync::Start => "start",
        Sync::Resume => "resume",
        Sync::Adjust => "adjust",
        Sync::Nothing(_) => "-",
    });
    let receive = said(guest.receive("m", facts), |receive| match receive {
        Receive::Prepare => "prepare",
        Receive::Again => "again",
    });
    let mut line = vec![sync, receive];
    line.extend(Command::ALL.map(|command| said(guest.command(command, facts), act)));
    line.join(" ")
}

fn said<T>(result: Result<T, Refused>, word: fn(T) -> &'static str) -> &'static str {
    match result {
        Ok(act) => word(act),
        Err(Refused::NoDomain) => "none",
        Err(Refused::WrongState(_)) => "no",
    }
}

fn act(act: Act) -> &'static str {
    match act {
        Act::Suspend => "suspend",
        Act::Resume => "resume",
        Act::Keep { .. } => "keep",
        Act::Reset => "reset",
        Act::Reboot { .. } => "reboot",
        Act::Shutdown { .. } => "shutdown",
        Act::Destroy { graceful: true } => "kill",
        Act::Destroy { graceful: false } => "kill-now",
        Act::Undefine => "delete",
        Act::Nothing(_) => "-",
    }
}

type Row = (&'static str, Memory, Option<(DomainStatus, Reason)>, &'static str);

fn check(rows: &[Row], moving: Option<(MigrationRole, MigrationPhase)>, sending: bool) {
    let moving = moving.map(|(role, phase)| migration(role, phase));
    for (name, memory, seen, expected) in rows {
        let seen = seen.map(|(status, reason)| domain(status, reason));
        let facts = Facts { domain: seen.as_ref(), migration: moving.as_ref(), sending };
        assert_eq!(answers(memory.guest(), facts), *expected, "{name}: {memory:?}, {facts:?}");
    }
}

#[test]
#[rustfmt::skip] // one row per state
fn a_guest_that_does_not_migrate() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("before the first sync", Fresh, None, "start prepare none none reset none none kill delete"),
        ("a start that failed", Fresh, Some((Shutoff, Reason::Unknown)), "start no no no reset reboot - kill delete"),
        ("it runs", Started, Some((Running, Reason::Booted)), "adjust no suspend keep reset reboot shutdown kill no"),
        ("it runs again", Held, Some((Running, Reason::Unpaused)), "adjust no suspend keep reset reboot shutdown kill no"),
        ("paused by its user", Held, Some((Paused, Reason::PausedUser)), "adjust no keep resume reset reboot shutdown kill no"),
        ("paused by somebody else", Started, Some((Paused, Reason::PausedUser)), "resume no keep resume reset reboot shutdown kill no"),
        ("I/O error", Started, Some((Paused, Reason::PausedIOError)), "resume no keep resume reset reboot shutdown kill no"),
        ("I/O error, then paused by its user", Held, Some((Paused, Reason::PausedIOError)), "adjust no keep resume reset reboot shutdown kill no"),
        ("watchdog", Started, Some((Paused, Reason::PausedWatchdog)), "resume no keep resume reset reboot shutdown kill no"),
        ("left paused by a start", Started, Some((Paused, Reason::PausedStartingUp)), "resume no keep resume reset reboot shutdown kill no"),
        ("read by a new daemon", Started, Some((Paused, Reason::Unknown)), "resume no keep resume reset reboot shutdown kill no"),
        ("being saved", Started, Some((Paused, Reason::PausedSave)), "- no keep resume reset reboot shutdown kill no"),
        ("being dumped", Started, Some((Paused, Reason::PausedDump)), "- no keep resume reset reboot shutdown kill no"),
        ("snapshot", Started, Some((Paused, Reason::PausedSnapshot)), "- no keep resume reset reboot shutdown kill no"),
        ("crashed, QEMU is still there", Started, Some((Paused, Reason::PausedCrashed)), "- no keep resume reset reboot shutdown kill no"),
        ("shutting down", Started, Some((Shutdown, Reason::User)), "- no no no reset reboot - kill no"),
        ("blocked", Started, Some((Blocked, Reason::Booted)), "adjust no no no reset reboot - kill no"),
        ("suspended by itself", Started, Some((PMSuspended, Reason::Unknown)), "adjust no no no reset reboot - kill no"),
        ("powered off", Started, Some((Shutoff, Reason::Shutdown)), "no no no no reset reboot - kill delete"),
        ("powered off, paused by its user before", Held, Some((Shutoff, Reason::Shutdown)), "no no no no reset reboot - kill delete"),
        ("killed", Started, Some((Shutoff, Reason::Destroyed)), "no no no no reset reboot - kill delete"),
        ("panicked", Started, Some((Crashed, Reason::Panicked)), "no no no no reset reboot - kill delete"),
        ("deleted", Started, None, "no no none none reset none none kill delete"),
    ], None, false);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_guest_that_is_being_sent_belongs_to_its_migration() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("it runs", Started, Some((Running, Reason::Booted)), "- no no no reset reboot shutdown kill no"),
        ("paused by its user", Held, Some((Paused, Reason::PausedUser)), "- no no no reset reboot shutdown kill no"),
        ("stopped for the switch-over", Started, Some((Paused, Reason::PausedMigration)), "- no no no reset reboot shutdown kill no"),
        ("left paused by libvirt", Started, Some((Paused, Reason::Unknown)), "- no no no reset reboot shutdown kill no"),
        ("paused before the rest is sent", Started, Some((Paused, Reason::PausedUser)), "- no no no reset reboot shutdown kill no"),
        ("I/O error", Started, Some((Paused, Reason::PausedIOError)), "- no no no reset reboot shutdown kill no"),
        ("handed over by post-copy", Started, Some((Paused, Reason::PausedPostcopy)), "- no no no reset reboot shutdown kill-now no"),
        ("post-copy is broken", Started, Some((Paused, Reason::PausedPostcopyFailed)), "- no no no reset reboot shutdown kill-now no"),
        ("powered off", Started, Some((Shutoff, Reason::Shutdown)), "no no no no reset reboot - kill delete"),
    ], Some((Source, SwitchingOver)), true);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_guest_that_has_moved_stays_away() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("moved", Started, Some((Shutoff, Reason::Migrated)), "no no no no reset reboot - kill delete"),
        ("moved, paused by its user", Held, Some((Shutoff, Reason::Migrated)), "no no no no reset reboot - kill delete"),
        ("deleted", Started, None, "no no none none reset none none kill delete"),
    ], Some((Source, Completed)), false);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_guest_that_did_not_move_is_a_guest_like_any_other() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("it runs", Started, Some((Running, Reason::MigrationCanceled)), "adjust no suspend keep reset reboot shutdown kill no"),
        ("paused by its user", Held, Some((Paused, Reason::PausedUser)), "adjust no keep resume reset reboot shutdown kill no"),
        ("left paused by libvirt", Started, Some((Paused, Reason::Unknown)), "resume no keep resume reset reboot shutdown kill no"),
        ("I/O error", Started, Some((Paused, Reason::PausedIOError)), "resume no keep resume reset reboot shutdown kill no"),
    ], Some((Source, Failed)), false);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_target_waits_for_its_guest_and_does_not_start_it() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("QEMU is not there yet", Fresh, None, "no again none none reset none none kill delete"),
        ("QEMU waits for memory", Fresh, Some((Paused, Reason::PausedMigration)), "no again keep no reset reboot shutdown kill no"),
        ("QEMU waits, and libvirt does not say for what", Fresh, Some((Paused, Reason::Unknown)), "no again keep no reset reboot shutdown kill no"),
        ("QEMU is about to run it", Fresh, Some((Running, Reason::Migrated)), "no again suspend keep reset reboot shutdown kill no"),
        ("it runs, and the source has no answer yet", Started, Some((Running, Reason::Migrated)), "no no suspend keep reset reboot shutdown kill no"),
        ("QEMU has ended", Fresh, Some((Shutoff, Reason::Failed)), "no again no no reset reboot - kill delete"),
    ], Some((Target, Ready)), false);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_guest_that_fetches_its_memory_runs_at_the_target() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("it runs", Started, Some((Running, Reason::Postcopy)), "no no suspend keep reset reboot shutdown kill-now no"),
        ("it runs, and gets no memory", Started, Some((Running, Reason::PostcopyFailed)), "no no suspend keep reset reboot shutdown kill-now no"),
        ("it stands, for want of memory", Started, Some((Paused, Reason::PausedPostcopyFailed)), "no no keep resume reset reboot shutdown kill-now no"),
        ("paused by its user", Held, Some((Paused, Reason::PausedUser)), "no no keep resume reset reboot shutdown kill no"),
    ], Some((Target, Transferring)), false);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_guest_that_has_arrived_is_a_guest_like_any_other() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("it runs", Started, Some((Running, Reason::Migrated)), "adjust no suspend keep reset reboot shutdown kill no"),
        ("it has arrived paused by its user", Held, Some((Paused, Reason::PausedUser)), "adjust no keep resume reset reboot shutdown kill no"),
        ("I/O error", Started, Some((Paused, Reason::PausedIOError)), "resume no keep resume reset reboot shutdown kill no"),
        ("powered off", Started, Some((Shutoff, Reason::Shutdown)), "no no no no reset reboot - kill delete"),
    ], Some((Target, Completed)), false);
}

#[test]
#[rustfmt::skip] // one row per state
fn a_target_whose_migration_has_failed_starts_nothing() {
    check(&[
        // sync, prepare-target, pause, unpause, reset, soft reboot, shutdown, kill, delete
        ("it never came", Fresh, None, "no no none none reset none none kill delete"),
        ("QEMU still waits", Fresh, Some((Paused, Reason::PausedMigration)), "no no keep no reset reboot shutdown kill no"),
        ("it ended as it came", Started, Some((Shutoff, Reason::Crashed)), "no no no no reset reboot - kill delete"),
    ], Some((Target, Failed)), false);
}

/// A refusal as virt-handler passes it on.
fn sentence<T>(result: Result<T, Refused>) -> String {
    match result {
        Err(Refused::WrongState(sentence)) => sentence,
        Err(Refused::NoDomain) => "no domain".to_owned(),
        Ok(_) => "it is done".to_owned(),
    }
}

#[test]
fn a_refusal_says_what_the_launcher_does_instead() {
    let (fresh, started) = (Fresh.guest(), Started.guest());
    let runs = domain(Running, Reason::Booted);
    let ended = domain(Shutoff, Reason::Shutdown);
    let bare = DomainState { acpi: false, ..domain(Running, Reason::Booted) };
    let ready = migration(Target, Ready);
    let moved = migration(Source, Completed);
    let of = |domain| Facts { domain: Some(domain), ..Facts::default() };
    for (said, expected) in [
        (sentence(started.sync(of(&ended))), "virt-launcher's guest has ended"),
        (sentence(started.sync(Facts::default())), "virt-launcher's domain was deleted"),
        (
            sentence(fresh.sync(Facts { migration: Some(&ready), ..Facts::default() })),
            "virt-launcher waits for an incoming migration",
        ),
        (sentence(started.receive("m", of(&runs))), "virt-launcher already has a guest"),
        (
            sentence(fresh.receive("n", Facts { migration: Some(&ready), ..Facts::default() })),
            "this virt-launcher serves migration m, not n",
        ),
        (
            sentence(started.receive("m", Facts { migration: Some(&moved), ..of(&ended) })),
            "migration m has ended; a new attempt needs a new migration",
        ),
        (sentence(started.command(Command::Pause, of(&ended))), "the guest is Shutoff and cannot be paused"),
        (sentence(started.command(Command::Unpause, of(&ended))), "the guest is Shutoff and cannot be unpaused"),
        (sentence(started.command(Command::Pause, Facts::default())), "no domain"),
        (
            sentence(started.command(Command::SoftReboot, of(&bare))),
            "guest has neither guest agent nor ACPI; use reset",
        ),
        (sentence(started.command(Command::Delete, of(&runs))), "the guest still runs; kill it first"),
        (sentence(not_moving(true)), "the guest is being migrated; wait for it or abort the migration"),
    ] {
        assert_eq!(said, expected);
    }
}

#[test]
fn a_guest_is_rebooted_and_shut_down_by_what_it_reacts_to() {
    for (agent_connected, acpi, reboot, shutdown) in [
        (true, true, Some(Act::Reboot { agent: true }), Act::Shutdown { acpi: true }),
        (true, false, Some(Act::Reboot { agent: true }), Act::Shutdown { acpi: false }),
        (false, true, Some(Act::Reboot { agent: false }), Act::Shutdown { acpi: true }),
        (false, false, None, Act::Shutdown { acpi: false }),
    ] {
        let domain = DomainState { agent_connected, acpi, ..domain(Running, Reason::Booted) };
        let facts = Facts { domain: Some(&domain), ..Facts::default() };
        assert_eq!(Started.guest().command(Command::SoftReboot, facts).ok(), reboot, "{domain:?}");
        assert_eq!(Started.guest().command(Command::Shutdown, facts), Ok(shutdown), "{domain:?}");
    }
}

#[test]
fn a_start_without_an_answer_counts_if_the_domain_is_up() {
    for (answer, seen, expected) in [
        (Answer::Done, None, true),
        (Answer::Refused, Some((Running, Reason::Booted)), false),
        (Answer::Lost, Some((Running, Reason::Booted)), true),
        (Answer::Lost, Some((Paused, Reason::PausedStartingUp)), true),
        (Answer::Lost, Some((Shutoff, Reason::Unknown)), false),
        (Answer::Lost, None, false),
    ] {
        let domain = seen.map(|(status, reason)| domain(status, reason));
        assert_eq!(has_started(answer, domain.as_ref()), expected, "{answer:?} {seen:?}");
    }
}

#[test]
fn only_its_user_decides_whether_a_guest_stays_paused() {
    let stands = domain(Paused, Reason::PausedUser);
    let sync = |changes: &[Change]| {
        let guest = after(changes);
        guest.sync(Facts { domain: Some(&stands), ..Facts::default() })
    };
    let (held, resumes) = (Ok(Sync::Adjust), Ok(Sync::Resume));
    let keep = |paused| Act::Keep { paused }.change();
    assert_eq!((keep(true), keep(false)), (Some(Change::Paused), Some(Change::Resumed)));
    assert_eq!(sync(&[Change::Started { paused: true }]), held);
    assert_eq!(sync(&[Change::Started { paused: true }, Change::Resumed]), resumes);
    assert_eq!(sync(&[Change::Started { paused: false }]), resumes);
    assert_eq!(sync(&[Change::Started { paused: false }, Change::Paused]), held);
    assert_eq!(sync(&[Change::Expected { paused: true }, Change::Arrived]), held);
    assert_eq!(sync(&[Change::Expected { paused: false }, Change::Arrived]), resumes);
}

#[test]
fn the_instance_says_whether_a_guest_starts_or_arrives_paused() {
    let mut vmi = VirtualMachineInstance::default();
    assert!(!starts_paused(&vmi) && !arrives_paused(&vmi));
    vmi.spec.start_strategy = Some("Paused".to_owned());
    assert!(starts_paused(&vmi) && !arrives_paused(&vmi));
    for (reason, stays) in [("PausedByUser", true), ("PausedIOError", false), ("PausedByMigrationMonitor", false)] {
        let paused = api::v1::Condition { type_: "Paused".into(), reason: Some(reason.into()), ..Default::default() };
        vmi.status_mut().conditions = vec![paused];
        assert_eq!(arrives_paused(&vmi), stays, "{reason}");
    }
}
