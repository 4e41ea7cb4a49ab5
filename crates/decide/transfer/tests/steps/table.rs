//! Migrations as a table: each command that is expected, and the event it is answered with.

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationOptions, MigrationPhase, Progress};
use launcher_contract::types::{DomainReason as Reason, DomainStatus as Status};
use transfer::{Command, Domain, Event, Failure, How, Outcome, Pass, PostCopy, Report, Setup, Source};

const PASS: Pass = Pass { post_copy: false, resumes: false };
const RUNS: Domain = (Status::Running, Reason::Migrated);
const STANDS: Domain = (Status::Paused, Reason::PausedMigration);
const DOWN: Domain = (Status::Shutoff, Reason::Migrated);
const DIED: Domain = (Status::Shutoff, Reason::Crashed);
const BROKEN: Domain = (Status::Paused, Reason::PausedPostcopyFailed);

/// A migration that is played, with its own clock.
struct Play {
    source: Source,
    now: Duration,
    next: Vec<Command>,
    phases: Vec<MigrationPhase>,
}

fn refused(text: &str) -> Failure {
    Failure { how: How::Refused, text: text.to_owned() }
}

fn lost() -> Failure {
    Failure { how: How::Lost, text: "closed".to_owned() }
}

impl Play {
    fn new(change: impl FnOnce(&mut Setup)) -> Play {
        let mut setup =
            Setup { options: MigrationOptions::default(), bytes: 1, paused: false, post_copy: PostCopy::Possible };
        change(&mut setup);
        let mut play = Play { source: Source::new(setup), now: Duration::ZERO, next: Vec::new(), phases: Vec::new() };
        let first = play.source.start(Duration::ZERO);
        play.remember(first);
        play
    }

    fn remember(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Report(Report::Phase(phase)) => self.phases.push(phase),
                Command::Report(_) | Command::Warn(_) => {}
                command => self.next.push(command),
            }
        }
    }

    #[track_caller]
    fn tell(&mut self, event: Event) {
        let commands = self.source.on(event, self.now);
        self.remember(commands);
    }

    /// The commands so far are these; the event answers them.
    #[track_caller]
    fn then(&mut self, expected: &[Command], event: Event) -> &mut Play {
        assert_eq!(self.next, expected);
        self.next.clear();
        self.tell(event);
        self
    }

    #[track_caller]
    fn after(&mut self, expected: &[Command], wait: Duration) -> &mut Play {
        self.now += wait;
        self.then(expected, Event::Tick)
    }

    #[track_caller]
    fn ends(&mut self, outcome: Outcome) {
        assert_eq!(self.next, [Command::End(outcome)]);
    }

    /// Up to the moment when all is sent.
    #[track_caller]
    fn sent(change: impl FnOnce(&mut Setup)) -> Play {
        let mut play = Play::performing(change);
        play.tell(Event::Performed(Ok(())));
        play
    }

    #[track_caller]
    fn performing(change: impl FnOnce(&mut Setup)) -> Play {
        let mut play = Play::new(change);
        let pass = match play.next.as_slice() {
            [Command::Reach] => Pass { post_copy: play.allows_post_copy(), resumes: false },
            other => panic!("{other:?}"),
        };
        play.then(&[Command::Reach], Event::Reached(Ok(())))
            .then(&[Command::Begin(pass)], Event::Begun(Ok(())))
            .then(&[Command::Prepare(pass)], Event::Prepared(Ok(())))
            .then(&[Command::SetDowntime(100)], Event::Allowed(Ok(())))
            .then(&[Command::Perform(pass), Command::Sample], Event::Sampled(None));
        play
    }

    fn allows_post_copy(&self) -> bool {
        format!("{:?}", self.source).contains("post_copy: true, resumes")
    }

    /// The same, after the switch to post-copy.
    #[track_caller]
    fn post_copy() -> Play {
        let mut play = Play::performing(|setup| {
            let options = &mut setup.options;
            (options.allow_post_copy, options.allow_workload_disruption) = (true, true);
            options.completion_timeout_per_gib_seconds = 1;
        });
        play.after(&[], Duration::from_secs(2));
        play.then(&[Command::Sample], Event::Sampled(Some(Progress { data_remaining: 9, ..Progress::default() })));
        play.then(&[Command::StartPostCopy], Event::Switched(Ok(())));
        play.then(&[Command::LeaveMark], Event::Marked);
        play
    }
}

fn finish(cancelled: bool) -> Command {
    Command::Finish { pass: PASS, cancelled }
}

fn confirm(cancelled: bool) -> Command {
    Command::Confirm { pass: PASS, cancelled }
}

const WITH: Pass = Pass { post_copy: true, resumes: false };
const AGAIN: Pass = Pass { post_copy: true, resumes: true };

#[test]
fn a_guest_that_runs_at_the_target_ends_here() {
    let mut play = Play::sent(|_| {});
    play.then(&[finish(false)], Event::Finished(Ok(())))
        .then(&[Command::LeaveMark], Event::Marked)
        .then(&[confirm(false)], Event::Confirmed(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(Some(DOWN))))
        .ends(Outcome::Moved);
    assert_eq!(play.phases, [MigrationPhase::SwitchingOver]);
}

#[test]
fn a_daemon_that_does_not_end_the_guest_is_insisted_upon() {
    let mut play = Play::sent(|_| {});
    play.then(&[finish(false)], Event::Finished(Ok(())))
        .then(&[Command::LeaveMark], Event::Marked)
        .then(&[confirm(false)], Event::Confirmed(Err(lost())))
        .then(&[Command::Look], Event::Here(Err(lost())))
        .after(&[], Duration::from_millis(500))
        .then(&[Command::Look], Event::Here(Ok(Some(STANDS))))
        .then(&[Command::Destroy], Event::Done(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(Some(DOWN))))
        .ends(Outcome::Moved);
}

#[test]
fn a_target_that_refuses_to_run_the_guest_leaves_it_here() {
    let mut play = Play::sent(|_| {});
    play.then(&[finish(false)], Event::Finished(Err(refused("QEMU died"))))
        .then(&[confirm(true)], Event::Confirmed(Err(refused("nothing to confirm"))))
        .then(&[Command::Look], Event::Here(Ok(Some(STANDS))))
        .then(&[Command::Resume], Event::Done(Ok(())))
        .ends(Outcome::Stayed("QEMU died".into()));
}

#[test]
fn a_guest_that_was_paused_stays_so() {
    let mut play = Play::sent(|setup| setup.paused = true);
    play.then(&[finish(false)], Event::Finished(Err(refused("no"))))
        .then(&[confirm(true)], Event::Confirmed(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(Some(STANDS))))
        .ends(Outcome::Stayed("no".into()));
}

#[test]
fn a_lost_answer_is_asked_for_until_the_target_tells() {
    for (last, moved) in [(Some(RUNS), true), (None, false), (Some((Status::Shutoff, Reason::Failed)), false)] {
        let mut play = Play::sent(|_| {});
        play.then(&[finish(false)], Event::Finished(Err(lost())))
            .then(&[Command::AskTarget], Event::There(Err(lost())))
            .after(&[], Duration::from_millis(500))
            .then(&[Command::AskTarget], Event::There(Ok(Some(STANDS))))
            .after(&[], Duration::from_millis(500))
            .then(&[Command::AskTarget], Event::There(Ok(last)));
        let expected = if moved { Command::LeaveMark } else { confirm(true) };
        assert_eq!(play.next, [expected], "{last:?}");
        assert_eq!(play.phases, [MigrationPhase::SwitchingOver, MigrationPhase::Undecided]);
    }
}

#[test]
fn a_target_that_never_starts_the_guest_is_ended_after_half_a_minute() {
    let mut play = Play::sent(|_| {});
    play.then(&[finish(false)], Event::Finished(Err(lost())))
        .then(&[Command::AskTarget], Event::There(Ok(Some(STANDS))))
        .after(&[], Duration::from_secs(31))
        .then(&[Command::AskTarget], Event::There(Ok(Some(STANDS))))
        .then(&[Command::DestroyThere], Event::DestroyedThere(Ok(())))
        .then(&[confirm(true)], Event::Confirmed(Ok(())));
}

#[test]
fn a_qemu_that_died_at_the_target_leaves_it_to_the_node_agents() {
    for moved in [true, false] {
        let mut play = Play::sent(|_| {});
        play.then(&[finish(false)], Event::Finished(Err(lost())))
            .then(&[Command::AskTarget], Event::There(Ok(Some(DIED))))
            .then(&[], Event::Settled(moved));
        assert_eq!(play.next, [if moved { Command::LeaveMark } else { confirm(true) }]);
        assert_eq!(play.phases.last(), Some(&MigrationPhase::Undecided));
    }
}

#[test]
fn the_node_agents_last_word_counts_until_the_guest_goes_on() {
    let mut play = Play::sent(|_| {});
    play.then(&[finish(false)], Event::Finished(Err(lost())))
        .then(&[Command::AskTarget], Event::Settled(false))
        .then(&[confirm(true)], Event::Settled(true))
        .then(&[Command::LeaveMark], Event::Marked);
}

#[test]
fn a_transfer_that_fails_is_told_to_the_target_which_may_hang() {
    let mut play = Play::performing(|_| {});
    play.then(&[], Event::Performed(Err(refused("no route"))))
        .after(&[finish(true)], Duration::from_secs(10))
        .then(&[confirm(true)], Event::Confirmed(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(Some((Status::Running, Reason::Booted)))))
        .ends(Outcome::Stayed("no route".into()));
}

#[test]
fn an_abortion_is_repeated_until_the_transfer_ends() {
    let mut play = Play::performing(|_| {});
    play.tell(Event::AbortAsked);
    for _ in 0..2 {
        play.after(&[], Duration::from_millis(400)).then(&[Command::Sample], Event::Sampled(Some(Progress::default())));
        assert_eq!(play.next, [Command::AbortJob]);
        play.next.clear();
    }
    play.then(&[], Event::Performed(Err(refused("canceled by client"))))
        .then(&[finish(true)], Event::Finished(Ok(())))
        .then(&[confirm(true)], Event::Confirmed(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(None)))
        .ends(Outcome::Stayed("Live migration has been aborted".into()));
}

#[test]
fn a_target_that_is_not_there_yet_is_waited_for() {
    let mut play = Play::new(|_| {});
    for _ in 0..39 {
        play.then(&[Command::Reach], Event::Reached(Err(lost()))).after(&[], Duration::from_millis(500));
    }
    play.then(&[Command::Reach], Event::Reached(Err(lost())));
    play.after(&[], Duration::from_millis(500)).then(&[Command::Reach], Event::Reached(Err(lost())));
    play.ends(Outcome::Stayed("closed".into()));
}

#[test]
fn a_node_without_post_copy_is_left_without_it() {
    let no = || Err(Failure { how: How::NoPostCopy, text: "Postcopy is not supported".into() });
    let mut play = Play::new(|setup| setup.options.allow_post_copy = true);
    play.then(&[Command::Reach], Event::Reached(Ok(())))
        .then(&[Command::Begin(WITH)], Event::Begun(Ok(())))
        .then(&[Command::Prepare(WITH)], Event::Prepared(no()))
        .then(&[Command::Confirm { pass: WITH, cancelled: true }], Event::Confirmed(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(Some((Status::Running, Reason::Booted)))))
        .then(&[Command::Reach], Event::Reached(Ok(())))
        .then(&[Command::Begin(PASS)], Event::Begun(no()))
        .ends(Outcome::Stayed("post-copy is not possible on this node".into()));
}

#[test]
fn an_end_that_overtakes_the_answer_to_post_copy_waits_for_it() {
    let mut play = Play::performing(|setup| {
        let options = &mut setup.options;
        (options.allow_post_copy, options.allow_workload_disruption) = (true, true);
        options.completion_timeout_per_gib_seconds = 1;
    });
    play.after(&[], Duration::from_secs(2));
    play.then(&[Command::Sample], Event::Sampled(Some(Progress::default())));
    play.then(&[Command::StartPostCopy], Event::Performed(Ok(()))).then(&[], Event::Switched(Ok(())));
    assert_eq!(play.next, [Command::LeaveMark, Command::Finish { pass: WITH, cancelled: false }]);
}

#[test]
fn a_post_copy_whose_link_breaks_goes_on_when_the_target_listens_again() {
    let fetches = Some((Status::Paused, Reason::PausedPostcopyFailed));
    let mut play = Play::post_copy();
    play.then(&[], Event::Performed(Err(refused("broken pipe"))))
        .then(&[Command::Finish { pass: WITH, cancelled: true }], Event::Finished(Err(refused("post-copy failed"))))
        .then(&[Command::Confirm { pass: WITH, cancelled: true }], Event::Confirmed(Err(refused("no"))))
        .then(&[Command::Look], Event::Here(Ok(Some(BROKEN))))
        .then(&[Command::AskTarget], Event::There(Ok(fetches)))
        .then(&[Command::Look], Event::Here(Ok(Some(BROKEN))))
        .then(&[Command::Begin(AGAIN)], Event::Begun(Ok(())))
        .then(&[Command::Perform(AGAIN), Command::Sample], Event::Performed(Err(refused("nobody listens"))))
        .then(&[Command::Confirm { pass: AGAIN, cancelled: true }], Event::Confirmed(Ok(())))
        .after(&[], Duration::from_millis(500))
        .then(&[Command::AskTarget], Event::There(Ok(fetches)))
        .then(&[Command::Look], Event::Here(Ok(Some(BROKEN))))
        .then(&[Command::Begin(AGAIN)], Event::Begun(Ok(())))
        .then(&[Command::Perform(AGAIN), Command::Sample], Event::Performed(Ok(())))
        .then(&[Command::AskTarget], Event::There(Ok(Some(RUNS))))
        .then(&[Command::Confirm { pass: AGAIN, cancelled: false }], Event::Confirmed(Ok(())))
        .then(&[Command::Look], Event::Here(Ok(Some(DOWN))))
        .ends(Outcome::Moved);
}

#[test]
fn a_post_copy_that_cannot_go_on_is_given_up_after_five_minutes() {
    let mut play = Play::post_copy();
    play.then(&[], Event::Performed(Err(lost())))
        .then(&[Command::Finish { pass: WITH, cancelled: true }], Event::Finished(Err(lost())))
        .then(&[Command::Confirm { pass: WITH, cancelled: true }], Event::Confirmed(Err(lost())))
        .then(&[Command::Look], Event::Here(Ok(Some(BROKEN))))
        .then(&[Command::AskTarget], Event::There(Err(lost())))
        .after(&[], Duration::from_secs(299))
        .then(&[Command::AskTarget], Event::There(Err(lost())))
        .after(&[], Duration::from_secs(2));
    let why = "connection broke during post-copy and was not restored within 300 s: closed";
    play.ends(Outcome::Stayed(why.into()));
}

#[test]
fn a_guest_that_died_at_the_target_in_post_copy_does_not_come_back() {
    let mut play = Play::post_copy();
    play.then(&[], Event::Performed(Ok(())))
        .then(&[Command::Finish { pass: WITH, cancelled: false }], Event::Finished(Err(refused("QEMU died"))))
        .then(&[Command::AskTarget], Event::There(Ok(None)))
        .then(&[Command::Confirm { pass: WITH, cancelled: true }], Event::Confirmed(Ok(())));
    play.ends(Outcome::Stayed("guest ended on the target before the memory transfer completed".into()));
}

#[test]
fn a_switch_to_post_copy_whose_answer_was_lost_is_found_out() {
    let mut play = Play::performing(|setup| {
        let options = &mut setup.options;
        (options.allow_post_copy, options.allow_workload_disruption) = (true, true);
        options.completion_timeout_per_gib_seconds = 1;
    });
    play.after(&[], Duration::from_secs(2));
    play.then(&[Command::Sample], Event::Sampled(Some(Progress::default())))
        .then(&[Command::StartPostCopy], Event::Switched(Err(lost())))
        .then(&[], Event::Performed(Err(lost())))
        .then(&[Command::Finish { pass: WITH, cancelled: true }], Event::Finished(Err(lost())))
        .then(&[Command::Confirm { pass: WITH, cancelled: true }], Event::Confirmed(Err(lost())))
        .then(&[Command::Look], Event::Here(Ok(Some(BROKEN))))
        .then(&[Command::LeaveMark, Command::AskTarget], Event::There(Ok(Some(RUNS))))
        .then(&[Command::Look], Event::Here(Ok(Some(DOWN))))
        .ends(Outcome::Moved);
}

#[test]
fn the_mode_is_shown() {
    let mut play = Play::performing(|setup| {
        setup.options.allow_workload_disruption = true;
        setup.options.completion_timeout_per_gib_seconds = 1;
    });
    play.after(&[], Duration::from_secs(2));
    play.then(&[Command::Sample], Event::Sampled(Some(Progress::default())));
    assert_eq!(play.next, [Command::Suspend]);
    let shown = play.source.on(Event::Switched(Ok(())), play.now);
    assert_eq!(shown, [Command::Report(Report::Mode(MigrationMode::Paused))]);
}
