//! Resumes a guest paused by an I/O error, with back-off while that does not help.

use std::time::Duration;

use jiff::Timestamp;

use crate::launcher::since;

const INITIAL_WAIT: Duration = Duration::from_secs(10);
const MAX_WAIT: Duration = Duration::from_secs(3 * 60);
/// A pause this soon after a resume counts as the same failure.
const WINDOW: Duration = Duration::from_secs(30);

/// The retry state of one guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoRetry {
    last_run: Timestamp,
    wait: Duration,
    last_run_failed: bool,
}

/// What to do with a guest that is paused by an IO error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Resume(IoRetry),
    Wait { delay: Duration, retry: IoRetry },
}

pub(crate) fn step(retry: Option<IoRetry>, now: Timestamp) -> Step {
    let fresh = IoRetry { last_run: now, wait: INITIAL_WAIT, last_run_failed: false };
    let Some(mut retry) = retry else { return Step::Resume(fresh) };
    let passed = since(retry.last_run, now);
    if !retry.last_run_failed {
        if passed > WINDOW {
            return Step::Resume(fresh);
        }
        retry.last_run_failed = true;
    }
    match retry.wait.checked_sub(passed).filter(|left| !left.is_zero()) {
        Some(delay) => Step::Wait { delay, retry },
        None => Step::Resume(IoRetry { last_run: now, wait: (retry.wait * 2).min(MAX_WAIT), last_run_failed: false }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn retry(last_run: i64, wait: u64, last_run_failed: bool) -> IoRetry {
        IoRetry { last_run: at(last_run), wait: Duration::from_secs(wait), last_run_failed }
    }

    fn wait(delay: u64, retry: IoRetry) -> Step {
        Step::Wait { delay: Duration::from_secs(delay), retry }
    }

    #[test]
    fn each_row_of_the_retry_table() {
        for (name, state, now, expected) in [
            ("a first failure is resumed at once", None, 0, Step::Resume(retry(0, 10, false))),
            ("a quick repeat waits", Some(retry(0, 10, false)), 1, wait(9, retry(0, 10, true))),
            ("the wait goes on", Some(retry(0, 10, true)), 4, wait(6, retry(0, 10, true))),
            (
                "after the wait: resume, wait twice as long",
                Some(retry(0, 10, true)),
                10,
                Step::Resume(retry(10, 20, false)),
            ),
            ("a repeat after the wait is resumed", Some(retry(0, 10, false)), 12, Step::Resume(retry(12, 20, false))),
            ("a late repeat starts anew", Some(retry(0, 80, false)), 31, Step::Resume(retry(31, 10, false))),
            ("the wait is limited", Some(retry(0, 180, true)), 180, Step::Resume(retry(180, 180, false))),
        ] {
            assert_eq!(step(state, at(now)), expected, "{name}");
        }
    }
}
