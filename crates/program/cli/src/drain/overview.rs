//! The progress of a drain in one line. Pure.

use std::time::Duration;

use jiff::Timestamp;
use virtctl::migration::Progress;
use waits::Wait;

/// A guest, or another Pod, that is still on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// `namespace/name`.
    pub(super) name: String,
    pub(super) state: State,
}

/// The state of a remaining guest or Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It cannot leave yet.
    Waiting(Wait),
    /// It is being migrated.
    Moving(Option<Progress>),
    /// Its Pod is terminating.
    Ending,
}

/// Estimated remaining time, based on those that have left, or else on those that are moving.
pub(super) fn eta(total: usize, left: &[Left], elapsed: Duration) -> Option<Duration> {
    if left.is_empty() {
        return Some(Duration::ZERO);
    }
    let (gone, rest) = (u32::try_from(total.checked_sub(left.len())?).ok()?, u32::try_from(left.len()).ok()?);
    if gone > 0 {
        return Some(elapsed / gone * rest);
    }
    let moving = left.iter().filter(|one| matches!(one.state, State::Moving(_)));
    let at_once = u32::try_from(moving.count()).ok()?.max(1);
    let slowest = left.iter().filter_map(|one| match &one.state {
        State::Moving(Some(progress)) => progress.eta(),
        _ => None,
    });
    Some(slowest.max()? * rest.div_ceil(at_once))
}

/// What blocks the drain, and why: the longest wait, or else the slowest migration.
pub(super) fn holdup(left: &[Left]) -> Option<String> {
    let waits = left.iter().filter_map(|one| match &one.state {
        State::Waiting(wait) => Some((wait.since.unwrap_or(Timestamp::MAX), one, wait)),
        _ => None,
    });
    if let Some((_, one, wait)) = waits.min_by_key(|(since, one, _)| (*since, one.name.clone())) {
        let unblock = wait.unblock.as_ref().map(|unblock| format!(" ({unblock})")).unwrap_or_default();
        return Some(format!("{}: {}{unblock}", one.name, wait.what));
    }
    let moves = left.iter().filter_map(|one| match &one.state {
        State::Moving(Some(progress)) => Some((progress.data_remaining, one, progress)),
        _ => None,
    });
    let slowest = moves.max_by_key(|(remaining, ..)| *remaining);
    slowest.map(|(_, one, progress)| format!("{}: {progress}", one.name))
}

/// `3 of 8 drained, 2 migrating, 3 waiting; ETA 20 s; blocked by …`
pub(super) fn line(total: usize, left: &[Left], elapsed: Duration) -> String {
    let count = |wanted: fn(&State) -> bool| left.iter().filter(|one| wanted(&one.state)).count();
    let moving = count(|state| matches!(state, State::Moving(_)));
    let waiting = count(|state| matches!(state, State::Waiting(_)));
    let mut text =
        format!("{} of {total} drained, {moving} migrating, {waiting} waiting", total - left.len().min(total));
    if let Some(eta) = eta(total, left, elapsed) {
        text += &format!("; ETA {} s", eta.as_secs().max(1));
    }
    if let Some(holdup) = holdup(left) {
        text += &format!("; blocked by {holdup}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(name: &str, since: Option<&str>) -> Left {
        let since = since.map(|time| time.parse().unwrap());
        let state = State::Waiting(Wait { what: "no room".into(), since, unblock: Some("make some".into()) });
        Left { name: name.into(), state }
    }

    fn moving(name: &str, remaining: u64) -> Left {
        let progress = Progress {
            data_total: 100,
            data_remaining: remaining,
            bandwidth: 10,
            mode: "PreCopy".into(),
            ..Default::default()
        };
        Left { name: name.into(), state: State::Moving(Some(progress)) }
    }

    fn ending(name: &str) -> Left {
        Left { name: name.into(), state: State::Ending }
    }

    #[test]
    fn the_rest_takes_as_long_per_guest_as_those_before() {
        let seconds =
            |total, left: &[Left], elapsed| eta(total, left, Duration::from_secs(elapsed)).map(|e| e.as_secs());
        assert_eq!(seconds(4, &[ending("a")], 30), Some(10));
        assert_eq!(seconds(4, &[], 30), Some(0));
        assert_eq!(seconds(2, &[moving("a", 50), waiting("b", None)], 3), Some(10), "one after the other");
        assert_eq!(seconds(2, &[moving("a", 50), moving("b", 20)], 3), Some(5), "both at once");
        assert_eq!(seconds(1, &[waiting("a", None)], 3), None, "nothing is known yet");
    }

    #[test]
    fn the_longest_wait_holds_a_drain_up() {
        let later = waiting("ns/b", Some("2026-01-02T03:00:09Z"));
        let first = waiting("ns/a", Some("2026-01-02T03:00:01Z"));
        assert_eq!(holdup(&[later, first, moving("ns/c", 9)]).as_deref(), Some("ns/a: no room (make some)"));
        let slow = holdup(&[moving("ns/c", 9), moving("ns/d", 90)]).unwrap();
        assert!(slow.starts_with("ns/d: "), "{slow}");
        assert_eq!(holdup(&[ending("a")]), None);
    }

    #[test]
    fn the_line_counts_what_is_done() {
        let left = [waiting("ns/a", None), ending("ns/b")];
        let text = line(4, &left, Duration::from_secs(10));
        assert_eq!(text, "2 of 4 drained, 0 migrating, 1 waiting; ETA 10 s; blocked by ns/a: no room (make some)");
    }
}
