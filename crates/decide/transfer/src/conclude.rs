//! What the source's launcher reports when a migration is aborted, and when it has ended.

use launcher_contract::migration::{AbortState, MigrationPhase, Progress};

use crate::event::Outcome;

/// Why an aborted migration has failed.
pub const ABORTED: &str = "Live migration has been aborted";

/// How a migration ended, in the words of the launcher's report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conclusion {
    pub phase: MigrationPhase,
    pub failure: Option<String>,
    pub abort: AbortState,
}

/// `abort`: what was reported of an abort until now. It was in time if the guest has stayed.
pub fn conclude(outcome: &Outcome, abort: AbortState) -> Conclusion {
    let aborting = abort == AbortState::Aborting;
    match outcome {
        Outcome::Moved => Conclusion {
            phase: MigrationPhase::Completed,
            failure: None,
            abort: if aborting { AbortState::Failed } else { abort },
        },
        Outcome::Stayed(_) if aborting => Conclusion {
            phase: MigrationPhase::Failed,
            failure: Some(ABORTED.to_owned()),
            abort: AbortState::Succeeded,
        },
        Outcome::Stayed(why) => Conclusion { phase: MigrationPhase::Failed, failure: Some(why.clone()), abort },
    }
}

/// What is reported of an abort from now on, as one was requested.
pub fn abort_asked(abort: AbortState) -> AbortState {
    match abort {
        AbortState::None | AbortState::Failed => AbortState::Aborting,
        other => other,
    }
}

/// The progress of a guest that has moved. `measured` are QEMU's final statistics, if there are any; they lack the
/// throttle, which QEMU has released.
pub fn final_progress(reported: &Progress, measured: Option<Progress>) -> Progress {
    let throttle_percent = reported.throttle_percent;
    Progress { throttle_percent, data_remaining: 0, ..measured.unwrap_or_else(|| reported.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_has_succeeded_if_the_guest_has_stayed() {
        use AbortState::{Aborting, Failed, None, Succeeded};
        let stayed = Outcome::Stayed("no link".to_owned());
        for (outcome, before, phase, failure, abort) in [
            (&Outcome::Moved, None, MigrationPhase::Completed, Option::None, None),
            (&Outcome::Moved, Aborting, MigrationPhase::Completed, Option::None, Failed),
            (&stayed, None, MigrationPhase::Failed, Some("no link"), None),
            (&stayed, Aborting, MigrationPhase::Failed, Some(ABORTED), Succeeded),
            (&stayed, Failed, MigrationPhase::Failed, Some("no link"), Failed),
        ] {
            let expected = Conclusion { phase, failure: failure.map(str::to_owned), abort };
            assert_eq!(conclude(outcome, before), expected, "{outcome:?} {before:?}");
        }
    }

    #[test]
    fn an_abort_is_reported_once_and_may_be_tried_again() {
        use AbortState::{Aborting, Failed, None, Succeeded, Unknown};
        for (before, after) in
            [(None, Aborting), (Failed, Aborting), (Aborting, Aborting), (Succeeded, Succeeded), (Unknown, Unknown)]
        {
            assert_eq!(abort_asked(before), after, "{before:?}");
        }
    }

    #[test]
    fn the_final_figures_are_qemus_with_the_last_throttle_and_nothing_left() {
        let reported = Progress { data_total: 1, data_remaining: 5, throttle_percent: 30, ..Default::default() };
        let measured = Progress { data_total: 2, data_remaining: 7, downtime_ms: 9, ..Default::default() };
        let with = Progress { data_total: 2, downtime_ms: 9, throttle_percent: 30, ..Default::default() };
        assert_eq!(final_progress(&reported, Some(measured)), with);
        let without = Progress { data_total: 1, throttle_percent: 30, ..Default::default() };
        assert_eq!(final_progress(&reported, None), without);
    }
}
