//! When the target's reply is lost: queries it until it reports whether the guest runs there, or virt-handler knows.

use std::time::Duration;

use launcher_contract::migration::MigrationPhase;

use crate::event::{Command, Event, Outcome};
use crate::source::{ASK_AGAIN, Next, Source, Step, TORN, Then, end, phase};
use crate::word::{Word, is_broken, word};

/// A target that is asked to start the guest, and neither starts it nor fails within this time, is told to end it.
const START_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug, Clone)]
pub(crate) struct Asking {
    since: Duration,
    /// Why it has to be queried.
    why: String,
    /// When to query again; `None` while an answer is pending.
    at: Option<Duration>,
}

impl Asking {
    pub(crate) fn wakes_at(&self) -> Option<Duration> {
        self.at
    }
}

impl Source {
    pub(crate) fn ask(&mut self, why: String, now: Duration) -> Next {
        let asking = Asking { since: now, why, at: None };
        match self.settled {
            Some(target_runs) => self.conclude(asking, target_runs),
            None => (Step::Asking(asking), vec![Command::AskTarget]),
        }
    }

    pub(crate) fn asking(&mut self, mut it: Asking, event: Event, now: Duration) -> Next {
        let commands = match event {
            Event::Settled(target_runs) => return self.conclude(it, target_runs),
            Event::There(Ok(domain)) => match word(domain, self.setup.paused) {
                Word::Runs => return self.conclude(it, true),
                Word::DoesNotRun => return self.conclude(it, false),
                Word::Died if self.is_post_copy() => return self.conclude(it, false),
                Word::Died => self.undecided(&mut it, "QEMU died at the target".to_owned(), now),
                // The target may not have noticed yet that the connection broke, or that it is back.
                Word::Fetches | Word::Starves => vec![Command::Look],
                Word::NotYet if now.saturating_sub(it.since) > START_WITHIN => vec![Command::DestroyThere],
                Word::NotYet => again(&mut it, now),
            },
            Event::Here(Ok(Some(domain))) if is_broken(domain) => return self.recover(it.why, now),
            Event::Here(_) => again(&mut it, now),
            Event::DestroyedThere(Ok(())) => return self.conclude(it, false),
            Event::There(Err(failure)) | Event::DestroyedThere(Err(failure)) => {
                self.undecided(&mut it, failure.text, now)
            }
            Event::Tick if it.at.is_some_and(|at| at <= now) => {
                it.at = None;
                vec![Command::AskTarget]
            }
            _ => Vec::new(),
        };
        (Step::Asking(it), commands)
    }

    /// The outcome is unknown. The phase lets virt-handler report what it knows.
    fn undecided(&self, it: &mut Asking, why: String, now: Duration) -> Vec<Command> {
        again(it, now);
        let warning = format!("cannot determine whether the guest runs on the target: {why}");
        vec![phase(MigrationPhase::Undecided), Command::Warn(warning)]
    }

    fn conclude(&mut self, it: Asking, target_runs: bool) -> Next {
        match target_runs {
            true if self.pass.resumes => self.confirm(),
            true => self.leave(),
            false if self.pass.resumes => end(Outcome::Stayed(TORN.to_owned())),
            false if self.is_post_copy() => self.stay(Then::End(Outcome::Stayed(TORN.to_owned()))),
            false => {
                let why = format!("the target did not start the guest: {}", it.why);
                self.stay(Then::End(Outcome::Stayed(why)))
            }
        }
    }
}

fn again(it: &mut Asking, now: Duration) -> Vec<Command> {
    it.at = Some(now + ASK_AGAIN);
    Vec::new()
}
