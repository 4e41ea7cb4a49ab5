//! Transfers disks and memory while sampling and evaluating QEMU's statistics.

use std::time::Duration;

use launcher_contract::migration::{MigrationMode, MigrationPhase, Progress};

use crate::event::{Command, Event, Failure, Report};
use crate::monitor::{Monitor, Order, Sample};
use crate::source::{Next, Source, Step, Then, phase};

/// How often QEMU's statistics are sampled.
const POLL: Duration = Duration::from_millis(400);
const ABORTED: &str = "Live migration has been aborted";

#[derive(Debug, Clone)]
pub(crate) struct Performing {
    monitor: Monitor,
    begun: Duration,
    /// The initial downtime, as long as QEMU has not accepted it.
    downtime: Option<u64>,
    given_up: Option<String>,
    /// When to take the next sample; `None` while one is pending.
    sample_at: Option<Duration>,
    last_sample: Duration,
    /// The migration mode once the pending order is executed.
    ordered: Option<MigrationMode>,
    /// The end of the transfer, if it came while an order was pending: its meaning depends on whether post-copy has
    /// started.
    performed: Option<Result<(), Failure>>,
}

impl Performing {
    pub(crate) fn wakes_at(&self) -> Option<Duration> {
        self.sample_at
    }
}

fn sample(progress: &Progress, elapsed: Duration) -> Sample {
    Sample {
        elapsed,
        remaining: progress.data_remaining,
        iteration: progress.iterations,
        bandwidth: progress.bandwidth,
    }
}

impl Source {
    /// Starts the transfer, watched by the monitor.
    pub(crate) fn perform(&self, monitor: Monitor, downtime: Option<u64>, now: Duration) -> Next {
        let performing = Performing {
            monitor,
            begun: now,
            downtime,
            given_up: None,
            sample_at: None,
            last_sample: now,
            ordered: None,
            performed: None,
        };
        (Step::Performing(Box::new(performing)), vec![Command::Perform(self.pass), Command::Sample])
    }

    pub(crate) fn performing(&mut self, mut it: Box<Performing>, event: Event, now: Duration) -> Next {
        let commands = match event {
            Event::Performed(result) if it.ordered.is_none() => return self.performed(*it, result, now),
            Event::Performed(result) => {
                it.performed = Some(result);
                Vec::new()
            }
            Event::Switched(result) => {
                let commands = self.switched(&mut it, result, now);
                if let Some(result) = it.performed.take() {
                    let (step, more) = self.performed(*it, result, now);
                    return (step, [commands, more].concat());
                }
                commands
            }
            Event::Allowed(Ok(())) => {
                // The initial downtime is part of the start. A later one is a remedy, which restarts the timeout of a
                // paused guest.
                if it.downtime.take().is_none() {
                    it.monitor.switched(self.mode, now.saturating_sub(it.begun));
                }
                Vec::new()
            }
            Event::Sampled(progress) => {
                it.sample_at = Some((it.last_sample + POLL).max(now));
                progress.map(|progress| self.judge(&mut it, progress, now)).unwrap_or_default()
            }
            Event::Tick if it.sample_at.is_some_and(|at| at <= now) => {
                (it.sample_at, it.last_sample) = (None, now);
                vec![Command::Sample]
            }
            _ => Vec::new(),
        };
        (Step::Performing(it), commands)
    }

    fn judge(&self, it: &mut Performing, progress: Progress, now: Duration) -> Vec<Command> {
        let sample = sample(&progress, now.saturating_sub(it.begun));
        let mut commands = vec![Command::Report(Report::Progress(progress))];
        commands.extend(it.downtime.map(Command::SetDowntime));
        if self.aborted {
            it.given_up.get_or_insert_with(|| ABORTED.to_owned());
        }
        let judges = it.given_up.is_none() && it.ordered.is_none();
        match judges.then(|| it.monitor.judge(sample)).flatten() {
            None => {}
            Some(Order::Abort { because }) => {
                commands.push(Command::Warn(format!("aborting: {because}")));
                it.given_up = Some(because);
            }
            Some(Order::PostCopy) => {
                it.ordered = Some(MigrationMode::PostCopy);
                commands.push(Command::StartPostCopy);
            }
            Some(Order::Pause) => {
                it.ordered = Some(MigrationMode::Paused);
                commands.push(Command::Suspend);
            }
            Some(Order::MaxDowntime(ms)) => commands.push(Command::SetDowntime(ms)),
        }
        if it.given_up.is_some() {
            // Repeated until it takes effect: libvirt refuses while QEMU is not ready for it.
            commands.push(Command::AbortJob);
        }
        commands
    }

    /// The order was executed, or failed.
    fn switched(&mut self, it: &mut Performing, result: Result<(), Failure>, now: Duration) -> Vec<Command> {
        let Some(mode) = it.ordered.take() else { return Vec::new() };
        if let Err(failure) = result {
            return vec![Command::Warn(format!("switching failed: {}; retrying", failure.text))];
        }
        self.mode = mode;
        it.monitor.switched(mode, now.saturating_sub(it.begun));
        let mut commands = vec![Command::Report(Report::Mode(mode))];
        commands.extend((mode == MigrationMode::PostCopy).then_some(Command::LeaveMark));
        commands
    }

    fn performed(&mut self, it: Performing, result: Result<(), Failure>, now: Duration) -> Next {
        let why = match result {
            Ok(()) if self.pass.resumes => {
                self.broken_at = Some(now);
                let (step, mut commands) = self.ask("the connection broke again".to_owned(), now);
                commands.insert(0, phase(MigrationPhase::SwitchingOver));
                return (step, commands);
            }
            Ok(()) => return self.switch_over(),
            Err(failure) => it.given_up.unwrap_or(failure.text),
        };
        if self.pass.resumes { self.stay(Then::Recover(why)) } else { self.give_up(why, now) }
    }
}
