//! The launcher that sends a guest: one migration from its first call to its last.
//!
//! ```text
//!  Reaching ─► Beginning ─► Preparing ─► Allowing ─► Performing ──────► Starting ─────────► Leaving ─► ends QEMU here
//!     │           │             │                        │ fails           │ target refuses     ▲           │
//!     │           │             │                        ▼                 │                    │ runs      ▼
//!     │           │             │                    GivingUp              │ no answer          │         Moved
//!     │           │             ▼                        │                 ├────────────────► Asking
//!     │           │          Staying ◄───────────────────┴─────────────────┘                    │ does not run
//!     ▼           ▼             ▼  ▲                                                            │
//!   Stayed      Stayed     goes on here, Stayed ◄───────────────────────────────────────────────┘
//!
//!  after the switch to post-copy the guest never goes on here; a break leads to Recovering:
//!
//!  Recovering: asks the target ─► looks here ─► Begin ─► Perform ─► Asking ─► Moved, or broken again; gives up in time
//! ```
//!
//! # Who may run the guest
//!
//! | moment | source | target |
//! |---|---|---|
//! | until all is sent | runs | QEMU waits, paused; ends with the source's connection |
//! | all is sent (`SwitchingOver`) | stands still, QEMU keeps everything | is told to run, by the source alone |
//! | target says it runs | QEMU ends | runs |
//! | target says it does not | runs again | QEMU has ended before that |
//! | target says nothing, or that its QEMU died (`Undecided`) | stands still | is queried again, through libvirt and virt-handler |
//! | post-copy | never runs again | runs, fetches memory |
//! | post-copy, the link is broken | keeps what is left, connects again | waits for memory, listens again |
//!
//! So the source resumes only if the target itself reports that the guest does not run there. A broken connection is
//! not such a report, and neither is a timeout. If the target can no longer be queried, the source's virt-handler gives
//! the order, based on what the target's virt-handler has recorded in the VMI.

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationOptions, MigrationPhase};

use crate::ask::Asking;
use crate::event::{Command, Domain, Event, Failure, How, Outcome, Pass, Report, without_post_copy};
use crate::monitor::{Monitor, PostCopy};
use crate::perform::Performing;
use crate::recover::Recovering;
use crate::word::{Word, is_broken, is_handed_over, is_left_standing, word};

/// The interval between queries without a conclusive answer.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A target that hangs when told to give up is left to its virt-handler: the guest is here, and not there.
pub(crate) const GIVE_UP_WITHIN: Duration = Duration::from_secs(10);
/// The timeout for connecting to the target: a restarted virt-handler reopens the proxy within this time.
const REACH_WITHIN: Duration = Duration::from_secs(20);
/// Why a guest in post-copy is lost.
pub(crate) const TORN: &str = "guest ended on the target before the memory transfer completed";
const NO_POST_COPY: &str = "post-copy is not possible on this node";

/// The input known before the first call.
#[derive(Debug, Clone)]
pub struct Setup {
    pub options: MigrationOptions,
    /// The least amount of data to send.
    pub bytes: u64,
    /// The guest was paused before, and stays paused.
    pub paused: bool,
    /// Whether QEMU can use post-copy on this node.
    pub post_copy: PostCopy,
}

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Source {
    pub(crate) setup: Setup,
    pub(crate) pass: Pass,
    pub(crate) mode: MigrationMode,
    step: Step,
    pub(crate) aborted: bool,
    pub(crate) settled: Option<bool>,
    /// The target was told to run the guest.
    told_to_run: bool,
    /// The target, or its node, has reported that the guest runs there.
    runs_there: bool,
    pub(crate) broken_at: Option<Duration>,
}

/// The current step. A step with a call waits for its answer.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Connecting to the target, or waiting until `at` to retry.
    Reaching { since: Duration, at: Option<Duration> },
    /// The local libvirt returns the domain definition.
    Beginning,
    /// The target's libvirt starts a QEMU that waits for memory.
    Preparing,
    /// The initial downtime is set before the transfer starts.
    Allowing { monitor: Box<Monitor>, downtime: u64 },
    /// Disks and memory are sent.
    Performing(Box<Performing>),
    /// The transfer failed: the target is told so.
    GivingUp { until: Duration, why: String },
    /// The transfer is complete: the target is told to run the guest.
    Starting,
    /// Its answer is lost: it is queried until the outcome is known.
    Asking(Asking),
    /// The guest runs there: a marker is left before QEMU may end here.
    Marking,
    /// The local libvirt ends the guest that has moved.
    Leaving,
    /// The local libvirt is told that the guest stays.
    Staying { then: Then },
    /// The local libvirt is queried whether a failed post-copy can be resumed.
    Judging { why: String, or: Outcome },
    /// The guest's local state is corrected, with retries until it is as required.
    Insisting { wish: Wish, then: Then, at: Option<Duration> },
    /// The rest of a post-copy whose connection broke is sent.
    Recovering(Recovering),
    /// All is done.
    Over,
}

/// The required state of the guest on the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    GoOn,
    StayPaused,
    End,
}

/// What follows when the guest's local state is as required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Then {
    End(Outcome),
    /// The transfer failed: the guest stays, unless a post-copy can be resumed.
    Vain(String),
    /// Another attempt, without post-copy.
    Again,
    /// A failed attempt to resume a post-copy is retried.
    Recover(String),
}

/// The next step and its commands.
pub(crate) type Next = (Step, Vec<Command>);

pub(crate) fn stayed(why: impl Into<String>) -> Next {
    end(Outcome::Stayed(why.into()))
}

pub(crate) fn end(outcome: Outcome) -> Next {
    (Step::Over, vec![Command::End(outcome)])
}

pub(crate) fn phase(phase: MigrationPhase) -> Command {
    Command::Report(Report::Phase(phase))
}

impl Source {
    /// [`Source::start`] returns the first commands.
    pub fn new(setup: Setup) -> Source {
        let pass = Pass { post_copy: setup.options.allow_post_copy, resumes: false };
        Source {
            setup,
            pass,
            mode: MigrationMode::PreCopy,
            step: Step::Over,
            aborted: false,
            settled: None,
            told_to_run: false,
            runs_there: false,
            broken_at: None,
        }
    }

    pub fn start(&mut self, now: Duration) -> Vec<Command> {
        let (step, commands) = reach(now);
        self.step = step;
        commands
    }

    /// When to send a [`Event::Tick`], unless something else happens before.
    pub fn wakes_at(&self) -> Option<Duration> {
        match &self.step {
            Step::Reaching { at, .. } | Step::Insisting { at, .. } => *at,
            Step::Asking(asking) => asking.wakes_at(),
            Step::Performing(performing) => performing.wakes_at(),
            Step::GivingUp { until, .. } => Some(*until),
            Step::Recovering(recovering) => recovering.wakes_at(),
            _ => None,
        }
    }

    /// Handles one event and returns the resulting commands. `now` must be monotonic. An answer that is no longer
    /// expected has no effect.
    pub fn on(&mut self, event: Event, now: Duration) -> Vec<Command> {
        match event {
            Event::AbortAsked => {
                self.aborted = true;
                return Vec::new();
            }
            Event::Settled(target_runs) => self.settled = Some(target_runs),
            _ => {}
        }
        self.runs_there |= self.is_word_of_running(&event);
        let step = std::mem::replace(&mut self.step, Step::Over);
        let (step, commands) = match step {
            // Any earlier report to the contrary was wrong.
            Step::Staying { .. } | Step::Insisting { wish: Wish::GoOn | Wish::StayPaused, .. } if self.is_gone() => {
                self.leave()
            }
            step => self.next(step, event, now),
        };
        self.step = step;
        commands
    }

    fn is_word_of_running(&self, event: &Event) -> bool {
        match event {
            Event::Settled(target_runs) => *target_runs,
            Event::Finished(Ok(())) => self.told_to_run,
            Event::There(Ok(domain)) => word(*domain, self.setup.paused) == Word::Runs,
            _ => false,
        }
    }

    /// Whether the guest must not resume here, although all of it is here.
    fn is_gone(&self) -> bool {
        self.runs_there && !self.is_post_copy()
    }

    fn next(&mut self, step: Step, event: Event, now: Duration) -> Next {
        match (step, event) {
            (Step::Reaching { since, .. }, Event::Reached(result)) => self.reached(since, result, now),
            (Step::Reaching { since, at: Some(at) }, Event::Tick) if at <= now => {
                (Step::Reaching { since, at: None }, vec![Command::Reach])
            }
            (Step::Beginning, Event::Begun(result)) => self.begun(result, now),
            (Step::Preparing, Event::Prepared(result)) => self.prepared(result, now),
            (Step::Allowing { monitor, downtime }, Event::Allowed(result)) => {
                self.perform(*monitor, result.is_err().then_some(downtime), now)
            }
            (Step::Performing(performing), event) => self.performing(performing, event, now),
            (Step::GivingUp { why, .. }, Event::Finished(_)) => self.stay(Then::Vain(why)),
            (Step::GivingUp { until, why }, Event::Tick) if now >= until => {
                let (step, mut commands) = self.stay(Then::Vain(why));
                let hangs = "the target did not respond to the cancellation";
                commands.insert(0, Command::Warn(hangs.to_owned()));
                (step, commands)
            }
            (Step::Starting, Event::Finished(result)) => self.finished(result, now),
            (Step::Asking(asking), event) => self.asking(asking, event, now),
            (Step::Marking, Event::Marked) => self.confirm(),
            (Step::Leaving, Event::Confirmed(result)) => self.confirmed(result),
            (Step::Staying { then }, Event::Confirmed(_)) => self.let_go_on(then, now),
            (Step::Judging { why, or }, Event::Here(result)) => match result {
                Ok(Some(domain)) if is_broken(domain) => self.recover(why, now),
                _ => end(or),
            },
            (Step::Insisting { wish, then, at }, event) => self.insisting(wish, then, at, event, now),
            (Step::Recovering(recovering), event) => self.recovering(recovering, event, now),
            (step, _) => (step, Vec::new()),
        }
    }

    pub(crate) fn is_post_copy(&self) -> bool {
        self.mode == MigrationMode::PostCopy
    }

    fn reached(&self, since: Duration, result: Result<(), Failure>, now: Duration) -> Next {
        match result {
            Ok(()) => (Step::Beginning, vec![Command::Begin(self.pass)]),
            Err(_) if now.saturating_sub(since) < REACH_WITHIN && !self.aborted => {
                (Step::Reaching { since, at: Some(now + ASK_AGAIN) }, Vec::new())
            }
            Err(failure) => stayed(failure.text),
        }
    }

    fn begun(&mut self, result: Result<(), Failure>, now: Duration) -> Next {
        match result {
            Ok(()) => (Step::Preparing, vec![Command::Prepare(self.pass)]),
            Err(Failure { how: How::NoPostCopy, .. }) => self.again(now),
            Err(failure) => stayed(failure.text),
        }
    }

    /// Another attempt without post-copy, if this one was with it.
    fn again(&mut self, now: Duration) -> Next {
        if !self.pass.post_copy {
            return stayed(NO_POST_COPY);
        }
        self.pass.post_copy = false;
        self.setup.options = without_post_copy(&self.setup.options);
        let (step, mut commands) = reach(now);
        let why = "QEMU cannot use userfaultfd on this node; migrating without post-copy";
        commands.insert(0, Command::Warn(why.to_owned()));
        (step, commands)
    }

    fn prepared(&mut self, result: Result<(), Failure>, now: Duration) -> Next {
        match result {
            Ok(()) => {
                let Setup { options, bytes, post_copy, .. } = self.setup.clone();
                let mut monitor = Monitor::new(options, bytes, post_copy);
                match monitor.first_downtime() {
                    // Before the transfer starts: QEMU uses it a tenth of a second later to decide whether to pause the
                    // guest.
                    Some(downtime) => {
                        (Step::Allowing { monitor: Box::new(monitor), downtime }, vec![Command::SetDowntime(downtime)])
                    }
                    None => self.perform(monitor, None, now),
                }
            }
            // Begin locks the domain until it is confirmed one way or the other.
            Err(Failure { how: How::NoPostCopy, .. }) => self.stay(Then::Again),
            Err(failure) => self.stay(Then::End(Outcome::Stayed(failure.text))),
        }
    }

    /// The transfer is complete. From here on the target decides.
    pub(crate) fn switch_over(&mut self) -> Next {
        self.told_to_run = true;
        let finish = Command::Finish { pass: self.pass, cancelled: false };
        (Step::Starting, vec![phase(MigrationPhase::SwitchingOver), finish])
    }

    /// The transfer failed. A target that does not hear of it ends its QEMU with our connection.
    pub(crate) fn give_up(&self, why: String, now: Duration) -> Next {
        let finish = Command::Finish { pass: self.pass, cancelled: true };
        (Step::GivingUp { until: now + GIVE_UP_WITHIN, why }, vec![finish])
    }

    fn finished(&mut self, result: Result<(), Failure>, now: Duration) -> Next {
        match result {
            Ok(()) => self.leave(),
            Err(Failure { how: How::Refused | How::NoPostCopy, text }) if !self.is_post_copy() => {
                self.stay(Then::End(Outcome::Stayed(text)))
            }
            Err(failure) => {
                let warning = Command::Warn(format!("lost the target's reply: {}", failure.text));
                let (step, mut commands) = self.ask(failure.text, now);
                commands.insert(0, warning);
                (step, commands)
            }
        }
    }

    /// The guest runs on the target: nothing of it may run here any more.
    pub(crate) fn leave(&mut self) -> Next {
        self.runs_there = true;
        (Step::Marking, vec![Command::LeaveMark])
    }

    pub(crate) fn confirm(&self) -> Next {
        (Step::Leaving, vec![Command::Confirm { pass: self.pass, cancelled: false }])
    }

    fn confirmed(&mut self, result: Result<(), Failure>) -> Next {
        let Err(failure) = result else { return self.end_here() };
        let warning = Command::Warn(format!("libvirt did not stop the migrated guest on the source: {}", failure.text));
        let (step, mut commands) = match self.is_post_copy() && !self.pass.resumes {
            true => {
                let why = "the connection broke during post-copy".to_owned();
                (Step::Judging { why, or: Outcome::Moved }, vec![Command::Look])
            }
            false => self.end_here(),
        };
        commands.insert(0, warning);
        (step, commands)
    }

    /// Ends QEMU here, whatever state libvirt is in. Only if the guest runs on the target.
    pub(crate) fn end_here(&mut self) -> Next {
        self.runs_there = true;
        self.insist(Wish::End, Then::End(Outcome::Moved))
    }

    /// Resumes the guest here, whatever state libvirt is in. Only if it does not run on the target.
    pub(crate) fn stay(&mut self, then: Then) -> Next {
        if self.is_gone() {
            return self.leave();
        }
        (Step::Staying { then }, vec![Command::Confirm { pass: self.pass, cancelled: true }])
    }

    fn let_go_on(&mut self, then: Then, now: Duration) -> Next {
        if !self.is_post_copy() {
            return self.insist(if self.setup.paused { Wish::StayPaused } else { Wish::GoOn }, then);
        }
        match then {
            Then::Vain(why) => (Step::Judging { why: why.clone(), or: Outcome::Stayed(why) }, vec![Command::Look]),
            then => self.then(then, now),
        }
    }

    fn insist(&self, wish: Wish, then: Then) -> Next {
        (Step::Insisting { wish, then, at: None }, vec![Command::Look])
    }

    /// Retries until it succeeds: a daemon that died is restarted, and its guest must not be left between two states.
    fn insisting(&mut self, wish: Wish, then: Then, at: Option<Duration>, event: Event, now: Duration) -> Next {
        let command = match event {
            Event::Here(Err(failure)) | Event::Done(Err(failure)) => {
                let warning = Command::Warn(format!("{} {}; retrying", wish.action(), failure.text));
                return (Step::Insisting { wish, then, at: Some(now + ASK_AGAIN) }, vec![warning]);
            }
            Event::Here(Ok(Some(domain))) if wish == Wish::GoOn && is_handed_over(domain) => {
                return self.recover("the connection broke as post-copy began".to_owned(), now);
            }
            Event::Here(Ok(domain)) => match domain.and_then(|domain| wish.needs(domain)) {
                Some(command) => command,
                None => return self.then(then, now),
            },
            // The answer may belong to an earlier wish: verify that QEMU is gone instead of assuming it.
            Event::Done(Ok(())) if wish == Wish::End => Command::Look,
            Event::Done(Ok(())) => return self.then(then, now),
            Event::Tick if at.is_some_and(|at| at <= now) => Command::Look,
            _ => return (Step::Insisting { wish, then, at }, Vec::new()),
        };
        (Step::Insisting { wish, then, at: None }, vec![command])
    }

    fn then(&mut self, then: Then, now: Duration) -> Next {
        match then {
            Then::End(outcome) => end(outcome),
            Then::Vain(why) => stayed(why),
            Then::Again => self.again(now),
            Then::Recover(why) => self.wait_to_recover(why, now),
        }
    }
}

impl Wish {
    /// The command that is needed in this state of the domain.
    fn needs(self, domain: Domain) -> Option<Command> {
        match self {
            Wish::GoOn => is_left_standing(domain).then_some(Command::Resume),
            Wish::StayPaused => None,
            Wish::End => (!domain.0.is_down()).then_some(Command::Destroy),
        }
    }

    fn action(self) -> &'static str {
        match self {
            Wish::GoOn => "cannot resume the guest on the source:",
            Wish::StayPaused => "cannot read the state of the guest that stays paused:",
            Wish::End => "cannot stop the migrated guest on the source:",
        }
    }
}

fn reach(now: Duration) -> Next {
    (Step::Reaching { since: now, at: None }, vec![Command::Reach])
}
