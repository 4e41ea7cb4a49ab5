//! The shim's next steps: which containers to start, which to start later, and when it is done.
//!
//! ```text
//!                   start                 ends, policy says no more
//!  (no record) ───────────► Running ───────────────────────────────► Exited
//!                              ▲  │ ends, policy says again
//!                              │  ▼
//!                           BackingOff
//! ```
//!
//! Init containers run sequentially, and each must succeed before the next; the others start together.

use jiff::{SignedDuration, Timestamp};

use crate::{ContainerRecord, Exit, RestartPolicy, Stage};

const FIRST_PAUSE: SignedDuration = SignedDuration::from_secs(10);
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_mins(5);
/// The back-off of a container that ran this long is reset.
const CALM: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    pub start: Vec<usize>,
    /// Containers in back-off, and until when.
    pub back_off: Vec<(usize, Timestamp)>,
    /// Nothing runs and nothing will be started.
    pub finished: bool,
}

impl Outlook {
    /// When to wake up even if nothing happens.
    pub fn wake(&self) -> Option<Timestamp> {
        self.back_off.iter().map(|(_, until)| *until).min()
    }
}

/// `records` are those of all containers, the first `init` of them init containers.
pub fn outlook(
    policy: RestartPolicy,
    init: usize,
    records: &[Option<ContainerRecord>],
    stopping: bool,
    now: Timestamp,
) -> Outlook {
    let mut outlook = Outlook::default();
    let running = |r: &Option<ContainerRecord>| matches!(r, Some(ContainerRecord { stage: Stage::Running { .. }, .. }));
    if !stopping {
        let succeeded =
            |r: &Option<ContainerRecord>| r.as_ref().and_then(|r| r.stage.exit()).is_some_and(|exit| exit.code == 0);
        let candidates = match records[..init].iter().position(|r| !succeeded(r)) {
            Some(i) => i..i + 1,
            None => init..records.len(),
        };
        for i in candidates {
            // An init container that succeeded never gets here; for those that failed, Always means OnFailure.
            consider(policy, i, &records[i], now, &mut outlook);
        }
    }
    outlook.finished = outlook.start.is_empty() && outlook.back_off.is_empty() && !records.iter().any(running);
    outlook
}

fn consider(policy: RestartPolicy, i: usize, record: &Option<ContainerRecord>, now: Timestamp, outlook: &mut Outlook) {
    let Some(record) = record else { return outlook.start.push(i) };
    let until = match &record.stage {
        Stage::Running { .. } => return,
        Stage::BackingOff { until, .. } => *until,
        Stage::Exited(exit) if runs_again(policy, exit) => exit.finished_at + pause(record, exit),
        Stage::Exited(_) => return,
    };
    if until <= now { outlook.start.push(i) } else { outlook.back_off.push((i, until)) }
}

fn runs_again(policy: RestartPolicy, exit: &Exit) -> bool {
    match policy {
        RestartPolicy::Never => false,
        RestartPolicy::OnFailure => exit.code != 0,
        RestartPolicy::Always => true,
    }
}

/// Zero after the first run, then ten seconds, doubling up to five minutes.
fn pause(record: &ContainerRecord, exit: &Exit) -> SignedDuration {
    let calm = exit.started_at.is_some_and(|start| exit.finished_at.duration_since(start) >= CALM);
    match record.restarts {
        0 => SignedDuration::ZERO,
        _ if calm => SignedDuration::ZERO,
        n => FIRST_PAUSE.saturating_mul(1 << (n - 1).min(5)).min(LONGEST_PAUSE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExitReason, Process};
    use RestartPolicy::{Always, Never, OnFailure};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn running() -> Option<ContainerRecord> {
        let process = Process { pid: 1, start_time: 1, boot: 1 };
        Some(ContainerRecord { restarts: 0, stage: Stage::Running { process, started_at: at(0) }, previous: None })
    }

    /// Ran for `ran` seconds and ended at second 1000.
    fn exited(code: i32, restarts: u32, ran: i64) -> Option<ContainerRecord> {
        let exit = Exit {
            code,
            signal: None,
            reason: ExitReason::Error,
            message: String::new(),
            started_at: Some(at(1000 - ran)),
            finished_at: at(1000),
        };
        Some(ContainerRecord { restarts, stage: Stage::Exited(exit), previous: None })
    }

    fn starts(n: &[usize]) -> Outlook {
        Outlook { start: n.to_vec(), ..Outlook::default() }
    }

    fn waits(i: usize, until: i64) -> Outlook {
        Outlook { back_off: vec![(i, at(until))], ..Outlook::default() }
    }

    fn done() -> Outlook {
        Outlook { finished: true, ..Outlook::default() }
    }

    #[test]
    fn the_table() {
        type Case = (&'static str, RestartPolicy, usize, Vec<Option<ContainerRecord>>, bool, Outlook);
        let cases: Vec<Case> = vec![
            ("the first init container starts alone", Never, 2, vec![None, None, None], false, starts(&[0])),
            ("the next waits while one runs", Never, 2, vec![running(), None, None], false, Outlook::default()),
            ("the second follows a success", Never, 2, vec![exited(0, 0, 1), None, None], false, starts(&[1])),
            ("the main ones start together", Never, 1, vec![exited(0, 0, 1), None, None], false, starts(&[1, 2])),
            (
                "a failed init container ends a Pod that never restarts",
                Never,
                1,
                vec![exited(1, 0, 1), None],
                false,
                done(),
            ),
            (
                "a failed init container runs again otherwise",
                Always,
                1,
                vec![exited(1, 0, 1), None],
                false,
                starts(&[0]),
            ),
            ("a success is final on failure", OnFailure, 0, vec![exited(0, 0, 1)], false, done()),
            ("a failure is not", OnFailure, 0, vec![exited(1, 0, 1)], false, starts(&[0])),
            ("the second failure pauses", OnFailure, 0, vec![exited(1, 1, 1)], false, waits(0, 1010)),
            ("pauses double", Always, 0, vec![exited(0, 3, 1)], false, waits(0, 1040)),
            ("and have a limit", Always, 0, vec![exited(0, 60, 1)], false, waits(0, 1300)),
            ("a long run makes up for it", Always, 0, vec![exited(0, 60, 600)], false, starts(&[0])),
            (
                "one of two that goes on keeps the Pod",
                Never,
                0,
                vec![exited(1, 0, 1), running()],
                false,
                Outlook::default(),
            ),
            ("stopping starts nothing", Always, 0, vec![None, exited(1, 0, 1)], true, done()),
            ("stopping waits for what runs", Always, 0, vec![running()], true, Outlook::default()),
        ];
        for (name, policy, init, records, stopping, expected) in cases {
            assert_eq!(outlook(policy, init, &records, stopping, at(1005)), expected, "{name}");
        }
    }

    #[test]
    fn a_pause_that_is_over_starts_the_container() {
        let Some(ContainerRecord { stage: Stage::Exited(exit), .. }) = exited(1, 1, 1) else { unreachable!() };
        let record =
            ContainerRecord { restarts: 1, stage: Stage::BackingOff { exit, until: at(1010) }, previous: None };
        let look = |now| outlook(Always, 0, &[Some(record.clone())], false, at(now));
        assert_eq!(look(1009), waits(0, 1010));
        assert_eq!(look(1009).wake(), Some(at(1010)));
        assert_eq!(look(1010), starts(&[0]));
    }
}
