//! A transfer: what becomes of one attempt to fill a claim, and when there is another one.

use std::time::Duration;

use jiff::Timestamp;

/// What the process that fills a claim is doing.
#[derive(Clone, Debug, PartialEq)]
pub enum Transfer {
    /// Its turn has not come.
    Queued,
    /// The volume cannot be had yet.
    Waiting {
        why: String,
    },
    /// It runs; progress in per cent, if known.
    Running {
        progress: Option<f64>,
    },
    /// An upload can begin. So many have failed before, the last one for this reason.
    Ready {
        failures: u32,
        last: Option<String>,
    },
    Done {
        preallocated: bool,
    },
    Failed {
        failure: Failure,
        at: Timestamp,
    },
}

/// Why a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub message: String,
    /// Another attempt would fail the same way.
    pub permanent: bool,
}

impl Failure {
    /// Whether the content is not what the DataVolume promises. Upstream gives up for this reason alone: everything else
    /// might be mended at the source.
    pub(crate) fn is_fatal(&self) -> bool {
        self.permanent && self.message.contains("checksum mismatch")
    }
}

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// The pause before another attempt, like the kubelet's between restarts of a container.
pub(crate) fn pause(restarts: u32) -> Duration {
    FIRST.saturating_mul(1 << restarts.min(5)).min(LONGEST)
}

/// The time until another attempt after a failure at `failed`; `None` if it is due. A clock that was set back does not
/// make anybody wait longer than a pause.
pub(crate) fn remaining(failed: Timestamp, restarts: u32, now: Timestamp) -> Option<Duration> {
    let pause = pause(restarts);
    let passed = now.duration_since(failed).max(jiff::SignedDuration::ZERO).unsigned_abs();
    pause.checked_sub(passed).filter(|rest| !rest.is_zero())
}

/// Progress as DataVolumes show it.
pub(crate) fn shown(progress: Option<f64>) -> String {
    match progress.filter(|progress| progress.is_finite()) {
        Some(progress) => format!("{:.2}%", progress.clamp(0.0, 100.0)),
        None => UNKNOWN_PROGRESS.to_owned(),
    }
}

pub(crate) const UNKNOWN_PROGRESS: &str = "N/A";
pub(crate) const FULL_PROGRESS: &str = "100.0%";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_minutes() {
        let pauses: Vec<u64> = (0..8).map(|restarts| pause(restarts).as_secs()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(pause(u32::MAX), LONGEST);
    }

    #[test]
    fn an_attempt_is_due_when_the_pause_is_over() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (failed, now, expected) in
            [(100, 100, Some(10)), (100, 104, Some(6)), (100, 110, None), (100, 50, Some(10))]
        {
            assert_eq!(remaining(at(failed), 0, at(now)), expected.map(Duration::from_secs), "{failed} {now}");
        }
    }

    #[test]
    fn progress_has_two_digits_or_is_unknown() {
        for (progress, text) in [
            (Some(12.3456), "12.35%"),
            (Some(0.0), "0.00%"),
            (Some(250.0), "100.00%"),
            (Some(f64::NAN), "N/A"),
            (None, "N/A"),
        ] {
            assert_eq!(shown(progress), text);
        }
    }

    #[test]
    fn only_content_that_is_not_the_promised_one_is_given_up() {
        let failure = |message: &str, permanent| Failure { message: message.to_owned(), permanent };
        assert!(failure("checksum mismatch: expected a, got b", true).is_fatal());
        assert!(!failure("checksum mismatch: expected a, got b", false).is_fatal());
        assert!(!failure("Unable to process data: no disk image", true).is_fatal());
    }
}
