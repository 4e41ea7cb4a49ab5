//! Whatever the daemons answer, in whatever order, lost or twice.

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationOptions, Progress};
use launcher_contract::types::{DomainReason as Reason, DomainStatus as Status};
use proptest::prelude::*;
use transfer::{Command, Domain, Event, Failure, How, PostCopy, Report, Setup, Source, Word, word};

/// One turn of a history: which of the open calls is answered, and how.
#[derive(Debug, Clone, Copy)]
struct Turn {
    pick: u8,
    answer: u8,
    extra: u8,
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let turn = any::<(u8, u8, u8)>().prop_map(|(pick, answer, extra)| Turn { pick, answer, extra });
    prop::collection::vec(turn, 0..200)
}

const DOMAINS: [Option<Domain>; 9] = [
    None,
    Some((Status::Running, Reason::Migrated)),
    Some((Status::Paused, Reason::PausedMigration)),
    Some((Status::Paused, Reason::PausedPostcopy)),
    Some((Status::Paused, Reason::PausedPostcopyFailed)),
    Some((Status::Running, Reason::Postcopy)),
    Some((Status::Shutoff, Reason::Crashed)),
    Some((Status::Shutoff, Reason::Failed)),
    Some((Status::Shutoff, Reason::Migrated)),
];

fn result(answer: u8) -> Result<(), Failure> {
    let failure = |how| Err(Failure { how, text: "no".to_owned() });
    match answer % 6 {
        0 => failure(How::Refused),
        1 => failure(How::Lost),
        2 => failure(How::NoPostCopy),
        _ => Ok(()),
    }
}

fn domain(answer: u8) -> Result<Option<Domain>, Failure> {
    match usize::from(answer) % 12 {
        nth if nth < DOMAINS.len() => Ok(DOMAINS[nth]),
        _ => Err(Failure { how: How::Lost, text: "no".to_owned() }),
    }
}

fn answer(command: &Command, answer: u8) -> Option<Event> {
    Some(match command {
        Command::Reach => Event::Reached(result(answer)),
        Command::Begin(_) => Event::Begun(result(answer)),
        Command::Prepare(_) => Event::Prepared(result(answer)),
        Command::SetDowntime(_) => Event::Allowed(result(answer)),
        Command::Perform(_) => Event::Performed(result(answer)),
        Command::Sample => Event::Sampled((answer > 40).then(|| Progress {
            data_remaining: u64::from(answer),
            iterations: u64::from(answer),
            ..Progress::default()
        })),
        Command::StartPostCopy | Command::Suspend => Event::Switched(result(answer)),
        Command::Finish { .. } => Event::Finished(result(answer)),
        Command::AskTarget => Event::There(domain(answer)),
        Command::DestroyThere => Event::DestroyedThere(result(answer)),
        Command::LeaveMark => Event::Marked,
        Command::Confirm { .. } => Event::Confirmed(result(answer)),
        Command::Look => Event::Here(domain(answer)),
        Command::Resume | Command::Destroy => Event::Done(result(answer)),
        Command::AbortJob | Command::Report(_) | Command::Warn(_) | Command::End(_) => return None,
    })
}

/// A source under observation.
struct Watched {
    source: Source,
    now: Duration,
    open: Vec<Command>,
    told_to_run: bool,
    target_ran: bool,
    post_copy: bool,
    stands: bool,
    ended: bool,
}

impl Watched {
    fn new(post_copy: bool, disruption: bool, stands: bool) -> Watched {
        let options = MigrationOptions {
            allow_post_copy: post_copy,
            allow_workload_disruption: disruption,
            completion_timeout_per_gib_seconds: 5,
            ..MigrationOptions::default()
        };
        let setup = Setup { options, bytes: 1, paused: stands, post_copy: PostCopy::Possible };
        let mut source = Source::new(setup);
        let open = source.start(Duration::ZERO);
        Watched {
            source,
            now: Duration::ZERO,
            open,
            told_to_run: false,
            target_ran: false,
            post_copy: false,
            stands,
            ended: false,
        }
    }

    fn tell(&mut self, event: Event) -> Result<(), TestCaseError> {
        self.target_ran |= match &event {
            Event::Settled(runs) => *runs,
            Event::Finished(Ok(())) => self.told_to_run,
            Event::There(Ok(domain)) => word(*domain, self.stands) == Word::Runs,
            _ => false,
        };
        for command in self.source.on(event, self.now) {
            self.watch(&command)?;
            self.open.push(command);
        }
        Ok(())
    }

    fn watch(&mut self, command: &Command) -> Result<(), TestCaseError> {
        prop_assert!(!self.ended, "{command:?} after the end");
        match command {
            Command::Resume => prop_assert!(!self.target_ran && !self.post_copy, "both run"),
            Command::Confirm { cancelled: true, .. } => {
                prop_assert!(!self.target_ran || self.post_copy, "both run")
            }
            Command::Destroy | Command::Confirm { cancelled: false, .. } => {
                prop_assert!(self.target_ran, "nobody runs it")
            }
            Command::Finish { cancelled: false, .. } => {
                prop_assert!(!self.told_to_run, "told twice");
                self.told_to_run = true;
            }
            Command::Report(Report::Mode(mode)) => self.post_copy = *mode == MigrationMode::PostCopy,
            Command::End(_) => self.ended = true,
            _ => {}
        }
        Ok(())
    }

    fn turn(&mut self, turn: Turn) -> Result<(), TestCaseError> {
        self.now += Duration::from_millis(u64::from(turn.extra) * 4);
        if !self.open.is_empty() {
            let nth = usize::from(turn.pick) % self.open.len();
            let event = answer(&self.open[nth], turn.answer);
            // Some answers come twice.
            if !turn.extra.is_multiple_of(7) {
                self.open.remove(nth);
            }
            if let Some(event) = event {
                self.tell(event)?;
            }
        }
        match turn.extra {
            0..4 => self.tell(Event::Settled(turn.answer.is_multiple_of(2)))?,
            4..6 => self.tell(Event::AbortAsked)?,
            _ => {}
        }
        if self.source.wakes_at().is_some_and(|at| at <= self.now) || turn.extra.is_multiple_of(5) {
            self.tell(Event::Tick)?;
        }
        Ok(())
    }

    /// From now on everybody answers, and truthfully enough for an end.
    fn calm(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..3_000 {
            if self.ended {
                return Ok(());
            }
            let open = std::mem::take(&mut self.open);
            if open.iter().all(|command| answer(command, 255).is_none()) {
                let wake = self.source.wakes_at().unwrap_or(self.now);
                self.now = self.now.max(wake);
                self.tell(Event::Tick)?;
            }
            for command in open {
                let event = match command {
                    Command::AskTarget => Some(Event::There(Ok(Some((Status::Running, Reason::Migrated))))),
                    Command::Look => Some(Event::Here(Ok(Some((Status::Shutoff, Reason::Migrated))))),
                    other => answer(&other, 255),
                };
                if let Some(event) = event {
                    self.tell(event)?;
                }
            }
        }
        prop_assert!(self.ended, "goes on for ever: {:?}", self.source);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn never_do_both_run_it_never_does_nobody_and_it_always_ends(
        turns in turns(), post_copy: bool, disruption: bool, stands: bool,
    ) {
        let mut watched = Watched::new(post_copy, disruption, stands);
        for turn in turns {
            if watched.ended {
                return Ok(());
            }
            watched.turn(turn)?;
        }
        watched.calm()?;
    }
}
