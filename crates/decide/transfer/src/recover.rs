//! A post-copy whose connection broke: the memory here belongs to a guest that runs on the target. It is sent until the
//! target has all of it, or no longer needs it.
//!
//! The target's launcher has its QEMU listen again when it notices the break; until then connections fail. libvirt on
//! the target is not involved: its monitor may be blocked, and it notices by itself when everything has arrived.

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationPhase};

use crate::event::{Command, Domain, Event, Failure, Outcome, Pass, Report};
use crate::monitor::Monitor;
use crate::source::{ASK_AGAIN, Next, Source, Step, TORN, end, phase, stayed};
use crate::word::{Word, word};

/// A broken post-copy is given up if it could not be resumed for this long.
pub(crate) const RECOVER_WITHIN: Duration = Duration::from_secs(300);

#[derive(Debug, Clone)]
pub(crate) struct Recovering {
    stage: Stage,
    why: String,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Querying whether the target still needs anything.
    Asking,
    /// Querying the local libvirt whether QEMU still has the memory.
    Looking,
    /// The local libvirt starts to resume.
    Beginning,
    /// Retry at this time.
    Waiting(Duration),
}

impl Recovering {
    pub(crate) fn wakes_at(&self) -> Option<Duration> {
        match self.stage {
            Stage::Waiting(at) => Some(at),
            _ => None,
        }
    }
}

fn recovering(stage: Stage, why: String) -> Step {
    Step::Recovering(Recovering { stage, why })
}

impl Source {
    /// One attempt to resume, if there is time left.
    pub(crate) fn recover(&mut self, why: String, now: Duration) -> Next {
        let broken_at = *self.broken_at.get_or_insert(now);
        if now.saturating_sub(broken_at) >= RECOVER_WITHIN {
            let within = RECOVER_WITHIN.as_secs();
            let broke = "connection broke during post-copy and was not restored within";
            return stayed(format!("{broke} {within} s: {why}"));
        }
        let warning = Command::Warn(format!("post-copy interrupted: {why}; resuming"));
        let mut commands = vec![warning];
        if !self.is_post_copy() {
            // The order to switch was executed, but its answer was lost.
            self.mode = MigrationMode::PostCopy;
            commands.extend([Command::Report(Report::Mode(self.mode)), Command::LeaveMark]);
        }
        // Lets virt-handler report the outcome if it has learnt it from the target's.
        commands.push(phase(MigrationPhase::Undecided));
        let (step, more) = match self.settled {
            Some(true) => self.end_here(),
            Some(false) => end(Outcome::Stayed(TORN.to_owned())),
            None => (recovering(Stage::Asking, why), vec![Command::AskTarget]),
        };
        commands.extend(more);
        (step, commands)
    }

    pub(crate) fn wait_to_recover(&self, why: String, now: Duration) -> Next {
        (recovering(Stage::Waiting(now + ASK_AGAIN), why), Vec::new())
    }

    pub(crate) fn recovering(&mut self, it: Recovering, event: Event, now: Duration) -> Next {
        match (it.stage, event) {
            (Stage::Asking, Event::There(Ok(domain))) => match word(domain, self.setup.paused) {
                Word::Runs => self.end_here(),
                Word::DoesNotRun | Word::Died => end(Outcome::Stayed(TORN.to_owned())),
                Word::NotYet | Word::Fetches | Word::Starves => {
                    (recovering(Stage::Looking, it.why), vec![Command::Look])
                }
            },
            (Stage::Looking, Event::Here(Ok(Some(domain)))) => self.resend(domain),
            (Stage::Looking, Event::Here(Ok(None))) => self.wait_to_recover("the domain is gone".to_owned(), now),
            (Stage::Beginning, Event::Begun(result)) => self.begun_again(result, now),
            (Stage::Asking, Event::There(Err(failure))) | (Stage::Looking, Event::Here(Err(failure))) => {
                self.wait_to_recover(failure.text, now)
            }
            (Stage::Waiting(at), Event::Tick) if at <= now => self.recover(it.why, now),
            (Stage::Waiting(_), Event::Settled(_)) => self.recover(it.why, now),
            (stage, _) => (recovering(stage, it.why), Vec::new()),
        }
    }

    fn resend(&mut self, here: Domain) -> Next {
        if here.0.is_down() {
            return stayed(format!("QEMU ended ({:?}) before the memory transfer completed", here.0));
        }
        self.pass = Pass { post_copy: true, resumes: true };
        (recovering(Stage::Beginning, String::new()), vec![Command::Begin(self.pass)])
    }

    fn begun_again(&mut self, result: Result<(), Failure>, now: Duration) -> Next {
        match result {
            Ok(()) => self.perform(Monitor::after_switch_over(self.setup.options.clone()), None, now),
            Err(failure) => self.wait_to_recover(failure.text, now),
        }
    }
}
