//! What a plugin does next.
//!
//! **Expected flow.** A plugin listens on its socket, registers, and the kubelet watches its devices for as long as both
//! live. A kubelet that restarts removes all sockets in the directory, and knows no plugin: the plugin notices that its
//! socket is gone, listens again and registers.
//!
//! **Guarantees.** No matter how the watch ends, the plugin registers again, so it needs no event about it. A kubelet may
//! also end the watch of a plugin that registered twice in a row, when it notices the end of the first watch late.

use std::time::Duration;

use crate::health::{Health, Identity};

/// The kubelet opens its watch as soon as it has answered the registration. If there is none after this time, it has
/// dropped the plugin.
const SETTLE: Duration = Duration::from_secs(3);
/// Pauses after failures in a row, in seconds; the last one stays.
const BACKOFF: [u64; 4] = [1, 2, 5, 10];

/// Everything the decision depends on.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// On a clock that only goes forward.
    pub now: Duration,
    pub socket: Socket,
    /// The kubelet's own socket, if there is one.
    pub kubelet: Option<Identity>,
    pub watch: Watch,
    /// The device as it is now, and as it was last reported.
    pub health: &'a Health,
    pub reported: &'a Health,
    /// The last registration since the plugin listens.
    pub registered: Option<Registered>,
    /// Failures in a row.
    pub failed: Option<Failed>,
}

/// The plugin's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// The plugin does not listen.
    None,
    /// The plugin listens, and its socket is in the directory.
    InPlace,
    /// The plugin listens, but its socket was removed, or replaced by one that nobody listens on.
    Gone,
    /// Another process listens at its path: a newer virt-handler.
    Taken,
}

/// Whether the kubelet watches the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Open,
    Closed { since: Duration },
}

/// An accepted registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    pub at: Duration,
    pub kubelet: Option<Identity>,
}

/// Attempts in a row that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub times: usize,
    pub at: Duration,
    pub kubelet: Option<Identity>,
}

impl Failed {
    /// One more.
    pub fn again(before: Option<Failed>, at: Duration, kubelet: Option<Identity>) -> Failed {
        let times = before.filter(|before| before.kubelet == kubelet).map_or(0, |before| before.times);
        Failed { times: times.saturating_add(1), at, kubelet }
    }

    fn pause(self) -> Duration {
        Duration::from_secs(BACKOFF[self.times.clamp(1, BACKOFF.len()) - 1])
    }
}

/// What the plugin can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the list of devices with this health to the kubelet.
    Report(Health),
    /// Listen on a new socket; what was served before ends.
    Serve { because: &'static str },
    /// Register with the kubelet.
    Register { because: &'static str },
}

/// Decides. The order of actions counts: the kubelet never gets an outdated list by registering.
pub fn decide(world: &World<'_>) -> Vec<Action> {
    let report = (world.health != world.reported).then(|| Action::Report(world.health.clone()));
    report.into_iter().chain(connect(world)).collect()
}

fn connect(world: &World<'_>) -> Option<Action> {
    match world.socket {
        Socket::None if due(world) => Some(Action::Serve { because: "it does not listen yet" }),
        Socket::None | Socket::Taken => None,
        // At once: whatever failed before, the directory is another one now.
        Socket::Gone => Some(Action::Serve { because: "its socket is gone: the kubelet restarted" }),
        Socket::InPlace => register(world).filter(|_| due(world)).map(|because| Action::Register { because }),
    }
}

/// Why the plugin has to register.
fn register(world: &World<'_>) -> Option<&'static str> {
    let Watch::Closed { since } = world.watch else { return None };
    world.kubelet?;
    match world.registered {
        None => Some("it is not registered yet"),
        Some(registered) if registered.kubelet != world.kubelet => Some("the kubelet restarted"),
        Some(registered) if world.now.saturating_sub(registered.at.max(since)) >= SETTLE => {
            Some("the kubelet does not watch it")
        }
        Some(_) => None,
    }
}

/// Whether the pause after failures is over. A new kubelet is no reason to wait.
fn due(world: &World<'_>) -> bool {
    let failed = world.failed.filter(|failed| failed.kubelet == world.kubelet);
    failed.is_none_or(|failed| world.now.saturating_sub(failed.at) >= failed.pause())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KUBELET: Option<Identity> = Some(Identity { file_system: 1, inode: 1, device: 0 });
    const OTHER: Option<Identity> = Some(Identity { file_system: 1, inode: 2, device: 0 });
    const SERVE: Action = Action::Serve { because: "it does not listen yet" };
    const AGAIN: Action = Action::Serve { because: "its socket is gone: the kubelet restarted" };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Served, registered and watched.
    fn settled() -> World<'static> {
        World {
            now: at(100),
            socket: Socket::InPlace,
            kubelet: KUBELET,
            watch: Watch::Open,
            health: &Health::Healthy,
            reported: &Health::Healthy,
            registered: Some(Registered { at: at(50), kubelet: KUBELET }),
            failed: None,
        }
    }

    fn closed(since: u64) -> Watch {
        Watch::Closed { since: at(since) }
    }

    fn failed(times: usize, seconds: u64) -> Option<Failed> {
        Some(Failed { times, at: at(seconds), kubelet: KUBELET })
    }

    fn register(because: &'static str) -> Vec<Action> {
        vec![Action::Register { because }]
    }

    #[test]
    fn a_settled_plugin_does_nothing() {
        assert_eq!(decide(&settled()), []);
    }

    #[test]
    fn a_plugin_listens_before_it_registers() {
        let new = World { socket: Socket::None, registered: None, watch: closed(99), ..settled() };
        assert_eq!(decide(&new), [SERVE]);
        assert_eq!(decide(&World { kubelet: None, ..new.clone() }), [SERVE]);
        assert_eq!(decide(&World { failed: failed(1, 100), ..new.clone() }), []);
        assert_eq!(decide(&World { failed: failed(1, 99), ..new.clone() }), [SERVE]);
        let listening = World { socket: Socket::InPlace, ..new };
        assert_eq!(decide(&listening), register("it is not registered yet"));
        assert_eq!(decide(&World { kubelet: None, ..listening }), [], "there is no kubelet yet");
    }

    #[test]
    fn a_removed_socket_is_replaced_at_once_and_one_of_another_process_is_not() {
        let restarted = World { socket: Socket::Gone, watch: closed(100), failed: failed(9, 100), ..settled() };
        assert_eq!(decide(&restarted), [AGAIN]);
        assert_eq!(decide(&World { socket: Socket::Gone, ..settled() }), [AGAIN]);
        assert_eq!(decide(&World { socket: Socket::Taken, registered: None, ..settled() }), []);
    }

    #[test]
    fn a_plugin_that_nobody_watches_registers_again() {
        let because = "the kubelet does not watch it";
        let cases = [
            (closed(98), 50, vec![]),
            (closed(97), 50, register(because)),
            (closed(10), 98, vec![]),
            (closed(10), 97, register(because)),
            (Watch::Open, 10, vec![]),
        ];
        for (watch, since, expected) in cases {
            let registered = Some(Registered { at: at(since), kubelet: KUBELET });
            assert_eq!(decide(&World { watch, registered, ..settled() }), expected, "{watch:?}, registered at {since}");
        }
        let other = World { kubelet: OTHER, watch: closed(100), ..settled() };
        assert_eq!(decide(&other), register("the kubelet restarted"));
        assert_eq!(decide(&World { watch: Watch::Open, ..other }), []);
    }

    #[test]
    fn pauses_grow_with_failures_and_end_with_a_new_kubelet() {
        let unknown = World { registered: None, watch: closed(0), ..settled() };
        for (times, pause) in [(0, 1), (1, 1), (2, 2), (3, 5), (4, 10), (5, 10), (usize::MAX, 10)] {
            let early = World { failed: failed(times, 100 - pause + 1), ..unknown.clone() };
            assert_eq!(decide(&early), [], "{times}");
            let late = World { failed: failed(times, 100 - pause), ..unknown.clone() };
            assert_eq!(decide(&late).len(), 1, "{times}");
        }
        let new = World { failed: failed(4, 100), kubelet: OTHER, ..unknown };
        assert_eq!(decide(&new), register("it is not registered yet"));
    }

    #[test]
    fn failures_count_per_kubelet() {
        let first = Failed::again(None, at(1), KUBELET);
        let second = Failed::again(Some(first), at(2), KUBELET);
        assert_eq!(second, Failed { times: 2, at: at(2), kubelet: KUBELET });
        assert_eq!(Failed::again(Some(second), at(3), OTHER).times, 1);
    }

    #[test]
    fn health_is_reported_when_it_changes_and_before_anything_else() {
        let broken = Health::Unhealthy("/dev/kvm does not exist".to_owned());
        let report = Action::Report(broken.clone());
        assert_eq!(decide(&World { health: &broken, ..settled() }), std::slice::from_ref(&report));
        assert_eq!(decide(&World { health: &broken, socket: Socket::Gone, ..settled() }), [report, AGAIN]);
        assert_eq!(decide(&World { health: &broken, reported: &broken, ..settled() }), []);
        let back = World { reported: &broken, ..settled() };
        assert_eq!(decide(&back), [Action::Report(Health::Healthy)]);
    }
}
