//! Progress of a migration, as reported by the source node.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;

const MIB: u64 = 1 << 20;

/// A snapshot of a migration in progress. Unknown values are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Progress {
    /// `PreCopy`, `PostCopy` or `Paused`.
    pub mode: String,
    /// Total bytes to send.
    pub data_total: u64,
    /// Bytes sent; exceeds the total if the guest keeps writing.
    pub data_processed: u64,
    /// Bytes left to send.
    pub data_remaining: u64,
    /// Bytes per second that the guest dirties.
    pub dirty_rate: u64,
    /// Bytes per second sent.
    pub bandwidth: u64,
    /// Iterations over the memory.
    pub iteration: u64,
    /// Expected downtime in milliseconds if the switch-over happened now.
    pub expected_downtime: u64,
    /// Percentage by which the guest is throttled to let the migration converge.
    pub throttle_percent: u64,
}

impl Progress {
    /// Whether anything is known yet.
    pub fn has_begun(&self) -> bool {
        self.data_total > 0
    }

    /// Estimated time to completion at the current rates; `None` if the guest dirties memory faster than it is sent, or
    /// nothing is sent.
    pub fn eta(&self) -> Option<Duration> {
        // After the switch-over the guest writes at the target.
        let dirtied = if self.mode == "PreCopy" || self.mode.is_empty() { self.dirty_rate } else { 0 };
        let gained = self.bandwidth.checked_sub(dirtied).filter(|gained| *gained > 0)?;
        Some(Duration::from_secs(self.data_remaining.div_ceil(gained)))
    }
}

/// The line that `virtctl migrate --wait` shows after the phase.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes.div_ceil(MIB);
        write!(f, "{} MiB left of {}", mib(self.data_remaining), mib(self.data_total))?;
        if self.iteration > 1 {
            write!(f, ", pass {}", self.iteration)?;
        }
        write!(f, ", sends {} MiB/s, guest dirties {} MiB/s", mib(self.bandwidth), mib(self.dirty_rate))?;
        if self.throttle_percent > 0 {
            write!(f, ", slowed down by {} %", self.throttle_percent)?;
        }
        if self.expected_downtime > 0 {
            write!(f, ", expected downtime {} ms", self.expected_downtime)?;
        }
        match self.eta() {
            Some(eta) => write!(f, ", ETA {} s", eta.as_secs()),
            None if self.bandwidth > 0 => f.write_str(", does not converge at this rate"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(remaining: u64, bandwidth: u64, dirty_rate: u64, mode: &str) -> Progress {
        Progress {
            mode: mode.into(),
            data_total: 256 * MIB,
            data_remaining: remaining * MIB,
            bandwidth: bandwidth * MIB,
            dirty_rate: dirty_rate * MIB,
            ..Progress::default()
        }
    }

    #[test]
    fn the_rest_takes_as_long_as_what_is_gained_on_the_guest() {
        let seconds = |progress: Progress| progress.eta().map(|eta| eta.as_secs());
        assert_eq!(seconds(progress(100, 20, 0, "PreCopy")), Some(5));
        assert_eq!(seconds(progress(100, 20, 10, "PreCopy")), Some(10));
        assert_eq!(seconds(progress(100, 20, 20, "PreCopy")), None);
        assert_eq!(seconds(progress(100, 20, 90, "PreCopy")), None);
        assert_eq!(seconds(progress(100, 20, 90, "PostCopy")), Some(5), "the guest is there already");
        assert_eq!(seconds(progress(100, 0, 0, "PreCopy")), None);
        assert_eq!(seconds(progress(0, 1, 0, "PreCopy")), Some(0));
    }

    #[test]
    fn the_line_tells_what_is_known() {
        let figures = progress(100, 20, 10, "PreCopy");
        let known = Progress { iteration: 3, expected_downtime: 40, throttle_percent: 20, ..figures };
        let expected = "100 MiB left of 256, pass 3, sends 20 MiB/s, guest dirties 10 MiB/s, slowed down by 20 %, \
                        expected downtime 40 ms, ETA 10 s";
        assert_eq!(known.to_string(), expected);
        let stuck = progress(100, 20, 30, "PreCopy").to_string();
        assert!(stuck.ends_with("guest dirties 30 MiB/s, does not converge at this rate"), "{stuck}");
        let first = progress(256, 0, 0, "").to_string();
        assert_eq!(first, "256 MiB left of 256, sends 0 MiB/s, guest dirties 0 MiB/s");
        assert!(!Progress::default().has_begun());
    }
}
