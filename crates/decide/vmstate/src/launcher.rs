//! Whether the launcher is starting, responding, unresponsive or gone.

use std::time::Duration;

use jiff::Timestamp;

use crate::{DomainState, LauncherState};

/// The timeout for the first response on a launcher's socket.
const INITIALISATION: Duration = Duration::from_secs(3 * 60);
/// How long a launcher that has responded before may be unresponsive.
const WATCHDOG: Duration = Duration::from_secs(30);

/// What is known about the launcher.
#[derive(Debug, Clone, Copy)]
pub struct LauncherView<'a> {
    /// The Pod's directory on the node exists.
    pub pod_dir: bool,
    /// When this virt-handler first looked for the launcher.
    pub first_seen: Timestamp,
    /// It has responded at least once, possibly to an earlier virt-handler on this node.
    pub connected_once: bool,
    /// The process that responded is gone.
    pub process_gone: bool,
    /// Set while it does not respond.
    pub failing_since: Option<Timestamp>,
    /// The last response and its time; kept when the launcher becomes unresponsive.
    pub state: Option<(&'a LauncherState, Timestamp)>,
    /// The state file left by a launcher that no longer responds. The launcher wrote it after the guest had ended: it
    /// is as trustworthy as a response.
    pub left_behind: Option<&'a LauncherState>,
}

#[derive(Debug, Clone, Copy)]
pub enum Verdict<'a> {
    /// It has not opened its socket yet.
    NotInitialised,
    /// It responded before and does not now, but not for long enough to draw a conclusion.
    Silent,
    /// It will not respond any more.
    Gone,
    Connected(&'a LauncherState),
}

impl<'a> LauncherView<'a> {
    /// The final state of the domain, if it was reported or can be read.
    pub(crate) fn outcome(&self) -> Option<&'a DomainState> {
        let told = self.state.map(|(state, _)| state);
        let domains = [told, self.left_behind].into_iter().flatten().filter_map(|state| state.domain.as_ref());
        domains.into_iter().find(|domain| domain.is_down())
    }

    /// Whether the launcher has ever reported this migration.
    pub(crate) fn told_of(&self, migration: &str) -> bool {
        let states = [self.state.map(|(state, _)| state), self.left_behind];
        states.into_iter().flatten().filter_map(|state| state.migration.as_ref()).any(|known| known.uid == migration)
    }

    pub fn verdict(&self, now: Timestamp) -> Verdict<'a> {
        if let (Some((state, _)), None) = (self.state, self.failing_since) {
            return Verdict::Connected(state);
        }
        if !self.pod_dir || self.process_gone {
            return Verdict::Gone;
        }
        if !self.connected_once {
            return if since(self.first_seen, now) < INITIALISATION { Verdict::NotInitialised } else { Verdict::Gone };
        }
        // After a restart of virt-handler no failure is recorded yet: the silence counts from its first look.
        let silent_since = self.failing_since.unwrap_or(self.first_seen);
        if since(silent_since, now) < WATCHDOG { Verdict::Silent } else { Verdict::Gone }
    }
}

/// The elapsed time; zero if the clock went back.
pub(crate) fn since(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn verdict(view: LauncherView<'_>, now: i64) -> &'static str {
        match view.verdict(at(now)) {
            Verdict::NotInitialised => "not initialised",
            Verdict::Silent => "silent",
            Verdict::Gone => "gone",
            Verdict::Connected(_) => "connected",
        }
    }

    #[test]
    fn the_verdict_follows_what_was_found() {
        let state = LauncherState::default();
        let fresh = LauncherView {
            pod_dir: true,
            first_seen: at(0),
            connected_once: false,
            process_gone: false,
            failing_since: Some(at(0)),
            state: None,
            left_behind: None,
        };
        let answering =
            LauncherView { connected_once: true, failing_since: None, state: Some((&state, at(1))), ..fresh };
        let fell_silent = LauncherView { failing_since: Some(at(100)), ..answering };
        let restarted = LauncherView { state: None, ..answering };
        for (name, view, now, expected) in [
            ("a new Pod gets three minutes", fresh, 179, "not initialised"),
            ("and no more", fresh, 180, "gone"),
            ("a Pod without a directory is gone at once", LauncherView { pod_dir: false, ..fresh }, 0, "gone"),
            ("an answer counts", answering, 1_000_000, "connected"),
            (
                "an answer counts although the directory is gone",
                LauncherView { pod_dir: false, ..answering },
                5,
                "connected",
            ),
            ("silence is watched for half a minute", fell_silent, 129, "silent"),
            ("and then taken for the end", fell_silent, 130, "gone"),
            ("a dead process need not be waited for", LauncherView { process_gone: true, ..fell_silent }, 101, "gone"),
            ("after a restart silence counts from the first look", restarted, 29, "silent"),
            ("also then it ends", restarted, 30, "gone"),
            ("a clock that went back ends nothing", fell_silent, 0, "silent"),
        ] {
            assert_eq!(verdict(view, now), expected, "{name}");
        }
    }
}
