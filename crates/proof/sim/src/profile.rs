//! Kinds of histories: what a seed is likely to contain.

mod disks;
mod state;

use std::time::Duration;

use api::v1::RunStrategy;

use crate::kinds::Kind;
use crate::rng::Rng;
use crate::script::{Deed, Disk, ELSEWHERE, Fault, GuestFate, JourneyFate, PodFate, Script, VolumeFate};

/// How likely each kind of trouble is. Numbers are maximum counts per history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    pub name: &'static str,
    pub about: &'static str,
    vms: u64,
    deeds: u64,
    lags: u64,
    outages: u64,
    refusals: u64,
    lost_answers: u64,
    strangers: u64,
    crashes: u64,
    leaders: u64,
    slow: u64,
    pods: u64,
    guests: u64,
    nodes: u64,
    /// Percentage of VMs with a DataVolume or a claim.
    storage: u64,
    /// Percentage of deeds that plug or unplug volumes.
    plugs: u64,
    /// Percentage of deeds that start or abort migrations.
    moves: u64,
    journeys: u64,
    /// Migrations of guests to other VMIs.
    exchanges: u64,
    /// Percentage of VMs with backend storage.
    state: u64,
    /// Storage in detail, with its faults.
    disks: u64,
}

const CALM: Profile = Profile {
    name: "calm",
    about: "a user and a healthy cluster",
    vms: 2,
    deeds: 6,
    lags: 0,
    outages: 0,
    refusals: 0,
    lost_answers: 0,
    strangers: 0,
    crashes: 0,
    leaders: 0,
    slow: 0,
    pods: 0,
    guests: 1,
    nodes: 0,
    storage: 20,
    plugs: 5,
    moves: 0,
    journeys: 0,
    exchanges: 0,
    state: 0,
    disks: 0,
};

/// A little of every fault between controllers and the API, for profiles that focus on deeds.
const ROUGH: Profile = Profile {
    lags: 4,
    outages: 1,
    refusals: 1,
    lost_answers: 3,
    strangers: 2,
    crashes: 2,
    leaders: 1,
    pods: 1,
    guests: 1,
    ..CALM
};

/// All profiles by name. The default is `mixed`, a mixture of all of them.
pub const PROFILES: &[Profile] = &[
    CALM,
    Profile { name: "stale", about: "caches that lag and watches that break", lags: 5, outages: 3, ..CALM },
    Profile {
        name: "crash",
        about: "the controller dies, loses its lease, is upgraded",
        lags: 2,
        crashes: 3,
        leaders: 2,
        lost_answers: 2,
        ..CALM
    },
    Profile {
        name: "storm",
        about: "everything at once",
        lags: 3,
        outages: 2,
        refusals: 3,
        lost_answers: 2,
        strangers: 3,
        crashes: 2,
        leaders: 1,
        slow: 1,
        pods: 2,
        guests: 2,
        nodes: 1,
        vms: 3,
        deeds: 9,
        ..CALM
    },
    Profile {
        name: "errors",
        about: "refused requests, lost answers, other writers, slow keys",
        refusals: 4,
        lost_answers: 3,
        strangers: 4,
        slow: 2,
        lags: 1,
        ..CALM
    },
    Profile { name: "imports", about: "DataVolumes and claims", storage: 90, lags: 2, crashes: 1, ..CALM },
    Profile {
        name: "hotplug",
        about: "volumes come and go",
        plugs: 55,
        deeds: 10,
        lags: 2,
        crashes: 1,
        vms: 1,
        ..CALM
    },
    Profile { name: "workload", about: "Pods and guests that fail", pods: 4, guests: 4, lags: 2, ..CALM },
    Profile { name: "nodes", about: "nodes that stop answering", nodes: 2, lags: 1, deeds: 4, ..CALM },
    // Several guests at once, so that limits matter.
    Profile {
        name: "migrations",
        about: "guests that move, are drained, and do not arrive",
        vms: 4,
        deeds: 8,
        moves: 75,
        journeys: 4,
        state: 35,
        storage: 10,
        plugs: 0,
        ..ROUGH
    },
    Profile {
        name: "between",
        about: "guests that become another machine's, or do not",
        vms: 3,
        deeds: 4,
        nodes: 1,
        moves: 30,
        journeys: 3,
        exchanges: 3,
        storage: 0,
        plugs: 0,
        ..ROUGH
    },
];

/// Profiles that are not part of `mixed`, whose seeds keep their histories.
pub const SEPARATE: &[Profile] = &[Profile {
    name: "storage",
    about: "storage that is slow, fails, or is still used by somebody else, while disks are plugged and unplugged",
    vms: 2,
    deeds: 10,
    plugs: 65,
    storage: 40,
    nodes: 1,
    disks: 3,
    ..ROUGH
}];

/// The profile of this name; `mixed` assigns them to seeds in turn.
pub fn profile_for(name: &str, seed: u64) -> Option<&'static Profile> {
    if name == "mixed" {
        return Some(&PROFILES[(seed % PROFILES.len() as u64) as usize]);
    }
    PROFILES.iter().chain(SEPARATE).find(|profile| profile.name == name)
}

/// Offset from a sender's number to that of a receiver in the same namespace.
const SAME_NAMESPACE: u8 = 4;

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn time(rng: &mut Rng, low_ms: u64, high_ms: u64) -> Duration {
    Duration::from_millis(rng.within(low_ms, high_ms))
}

/// When the user is done and no more faults occur.
const ACTIVE: u64 = 180_000;
/// Lost nodes take longer to be noticed.
const NODES_ACTIVE: u64 = 600_000;

impl Profile {
    /// The history of a seed.
    pub fn script(&self, seed: u64) -> Script {
        let root = Rng::new(seed);
        let mut user = self.user(&mut root.fork("user"));
        let mut faults = Vec::new();
        let rng = &mut root.fork("faults");
        self.watch_faults(rng, &mut faults);
        self.request_faults(rng, &mut faults);
        self.process_faults(rng, &mut faults);
        self.world_faults(&mut root.fork("world"), &mut faults);
        self.updates(&mut root.fork("updates"), &mut faults);
        let keeps = self.state(&mut root.fork("state"), &mut user, &mut faults);
        self.disks(&mut root.fork("disks"), &mut user, &mut faults);
        call_off(&mut root.fork("calls off"), &mut user);
        let lost = faults.iter().any(|fault| matches!(fault, Fault::NodeOutage { .. } | Fault::NodeLoss { .. }));
        let calm = Duration::from_millis(if lost { NODES_ACTIVE } else { ACTIVE });
        Script { seed, user, faults, keeps, storage: self.disks > 0, calm }
    }

    fn user(&self, rng: &mut Rng) -> Vec<(Duration, Deed)> {
        let mut deeds = Vec::new();
        let vms = rng.within(1, self.vms) as u8;
        if self.exchanges > 0 {
            self.exchange(rng, vms, &mut deeds);
            deeds.sort_by_key(|(at, _)| *at);
            return deeds;
        }
        for vm in 0..vms {
            deeds.push((time(rng, 0, 20_000), self.birth(rng, vm)));
            if rng.chance(50) {
                deeds.push((time(rng, 0, 60_000), Deed::CreateClaim { vm }));
            }
        }
        for _ in 0..rng.within(1, self.deeds) {
            let vm = rng.below(u64::from(vms)) as u8;
            let at = time(rng, 1_000, ACTIVE - 20_000);
            let deed = self.deed(rng, vm);
            // Abort migrations in any of their phases.
            if matches!(deed, Deed::Migrate { .. }) && rng.chance(25) {
                deeds.push((at + time(rng, 100, 15_000), Deed::AbortMigration { vm }));
            }
            deeds.push((at, deed));
            // Haste: a second deed right after the first.
            if rng.chance(25) {
                deeds.push((at + time(rng, 1, 2_000), self.deed(rng, vm)));
            }
        }
        deeds.sort_by_key(|(at, _)| *at);
        deeds
    }

    /// Running guests, and pairs of migrations that move them to other VMIs.
    fn exchange(&self, rng: &mut Rng, vms: u8, deeds: &mut Vec<(Duration, Deed)>) {
        for vm in 0..vms {
            let strategy = match rng.below(10) {
                0..=5 => RunStrategy::Always,
                6..=7 => RunStrategy::RerunOnFailure,
                8 => RunStrategy::Manual,
                _ => RunStrategy::Once,
            };
            let birth = match rng.chance(10) {
                true => Deed::CreateVmi { vm },
                false => Deed::CreateVm { vm, strategy, disk: Disk::Image },
            };
            deeds.push((time(rng, 0, 15_000), birth));
            deeds.push((time(rng, 15_000, 25_000), Deed::Start { vm }));
        }
        let mut sides = Vec::new();
        for _ in 0..rng.within(1, self.exchanges) {
            let vm = rng.below(u64::from(vms)) as u8;
            let to = vm + if rng.chance(60) { ELSEWHERE.0 } else { SAME_NAMESPACE };
            let begin = time(rng, 10_000, ACTIVE - 60_000);
            deeds.push((begin.saturating_sub(time(rng, 0, 25_000)), Deed::Await { vm: to }));
            sides.extend([vm, to]);
            self.sides(rng, (vm, to), begin, deeds);
            // The way back, or a second attempt.
            if rng.chance(25) {
                let pair = if rng.chance(50) { (to, vm) } else { (vm, to) };
                let again = begin + time(rng, 20_000, 60_000);
                deeds.push((again.saturating_sub(time(rng, 1, 15_000)), Deed::Await { vm: pair.1 }));
                self.sides(rng, pair, again, deeds);
            }
        }
        for _ in 0..rng.within(0, self.deeds) {
            let vm = *rng.pick(&sides);
            deeds.push((time(rng, 20_000, ACTIVE - 20_000), self.deed(rng, vm)));
        }
    }

    /// Both sides create their migration, in either order; sometimes one of them does not, or aborts.
    fn sides(&self, rng: &mut Rng, (vm, to): (u8, u8), begin: Duration, deeds: &mut Vec<(Duration, Deed)>) {
        let (send, receive) = (Deed::Send { vm, to }, Deed::Receive { vm: to, from: vm });
        let pairs = if rng.chance(50) { [send, receive] } else { [receive, send] };
        let longest = if rng.chance(70) { 3_000 } else { 30_000 };
        let later = time(rng, 0, longest);
        let [first, second] = pairs;
        deeds.push((begin, first));
        if rng.chance(92) {
            deeds.push((begin + later, second));
        }
        if rng.chance(45) {
            let who = *rng.pick(&[vm, to]);
            let deed = match rng.below(12) {
                0..=6 => Deed::AbortMigration { vm: who },
                7 => Deed::DeleteVm { vm: who },
                8 => Deed::DeleteVmi { vm: who },
                9 => Deed::DeletePod { vm: who },
                10 => Deed::Crash { vm: who },
                _ => Deed::ShutDown { vm: who },
            };
            deeds.push((begin + later + time(rng, 1, 40_000), deed));
        }
    }

    fn birth(&self, rng: &mut Rng, vm: u8) -> Deed {
        if rng.chance(15) {
            return Deed::CreateVmi { vm };
        }
        let disk = match rng.chance(self.storage) {
            false => Disk::Image,
            true if rng.chance(70) => Disk::Template,
            true => Disk::Claim,
        };
        Deed::CreateVm { vm, strategy: strategy(rng), disk }
    }

    fn deed(&self, rng: &mut Rng, vm: u8) -> Deed {
        // Not drawn without migrations, so that the histories of other profiles stay the same.
        if self.moves > 0 && rng.chance(self.moves) {
            return match rng.below(20) {
                0..=8 => Deed::Migrate { vm },
                9..=10 => Deed::AbortMigration { vm },
                11..=13 => Deed::Evict { vm },
                14..=15 => Deed::Drain { vm },
                16..=17 => Deed::Backup { vm },
                18 => Deed::Resize { vm },
                _ => Deed::OldBudget { vm },
            };
        }
        if rng.chance(self.plugs) {
            let volume = rng.below(3) as u8;
            return if rng.chance(60) { Deed::Plug { vm, volume } } else { Deed::Unplug { vm, volume } };
        }
        match rng.below(20) {
            0..=2 => Deed::Start { vm },
            3..=5 => Deed::Stop { vm },
            6..=7 => Deed::Restart { vm },
            8..=9 => Deed::SetStrategy { vm, strategy: strategy(rng) },
            10 => Deed::EditTemplate { vm },
            11 => Deed::Annotate { vm },
            12 => Deed::Pause { vm },
            13 => Deed::Unpause { vm },
            14 => Deed::DeleteVm { vm },
            15 => Deed::OrphanVm { vm },
            16 => Deed::DeleteVmi { vm },
            17 => Deed::DeletePod { vm },
            18 => {
                if rng.chance(50) {
                    Deed::ShutDown { vm }
                } else {
                    Deed::Crash { vm }
                }
            }
            _ => self.birth(rng, vm),
        }
    }

    fn watch_faults(&self, rng: &mut Rng, faults: &mut Vec<Fault>) {
        const KINDS: [Kind; 7] = [Kind::Pod, Kind::Pod, Kind::Vmi, Kind::Vmi, Kind::Vm, Kind::DataVolume, Kind::Claim];
        const MOVING: [Kind; 7] =
            [Kind::Pod, Kind::Pod, Kind::Vmi, Kind::Vmi, Kind::Migration, Kind::Migration, Kind::Migration];
        let kinds = if self.moves > 0 { MOVING } else { KINDS };
        for _ in 0..rng.within(0, self.lags) {
            let from = time(rng, 0, ACTIVE - 40_000);
            let until = from + time(rng, 500, 40_000);
            faults.push(Fault::Lag { kind: *rng.pick(&kinds), from, until, by: time(rng, 100, 15_000) });
        }
        for _ in 0..rng.within(0, self.outages) {
            let at = time(rng, 0, ACTIVE - 40_000);
            faults.push(Fault::Outage { kind: *rng.pick(&kinds), at, lasts: time(rng, 500, 30_000) });
        }
    }

    fn request_faults(&self, rng: &mut Rng, faults: &mut Vec<Fault>) {
        for _ in 0..rng.within(0, self.refusals) {
            let code = *rng.pick(&[429, 500, 503]);
            faults.push(Fault::Refuse { from: rng.below(60), count: rng.within(1, 6), code });
        }
        for _ in 0..rng.within(0, self.lost_answers) {
            faults.push(Fault::LoseAnswer { request: rng.below(60) });
        }
        for _ in 0..rng.within(0, self.strangers) {
            faults.push(Fault::Interfere { request: rng.below(60) });
        }
        for _ in 0..rng.within(0, self.slow) {
            let from = time(rng, 0, ACTIVE - 60_000);
            let until = from + time(rng, 5_000, 40_000);
            faults.push(Fault::SlowKey { vm: rng.below(self.vms) as u8, from, until, latency: time(rng, 500, 10_000) });
        }
    }

    fn process_faults(&self, rng: &mut Rng, faults: &mut Vec<Fault>) {
        for _ in 0..rng.within(0, self.crashes) {
            faults.push(match rng.below(4) {
                0 => Fault::Crash { at: time(rng, 0, ACTIVE - 10_000) },
                1 if rng.chance(40) => Fault::Upgrade { at: time(rng, 0, ACTIVE - 10_000) },
                _ => Fault::CrashAt { request: rng.below(50), after: rng.chance(60) },
            });
        }
        for _ in 0..rng.within(0, self.leaders) {
            let at = time(rng, 0, ACTIVE - 10_000);
            faults.push(Fault::NewLeader { at, in_flight: time(rng, 1, 8_000) });
        }
    }

    fn world_faults(&self, rng: &mut Rng, faults: &mut Vec<Fault>) {
        for _ in 0..rng.within(0, self.pods) {
            let fate = match rng.below(5) {
                0 => PodFate::Unschedulable(time(rng, 2_000, 60_000)),
                1 => PodFate::ImagePull(time(rng, 2_000, 60_000)),
                2 => PodFate::FailsEarly,
                3 => PodFate::Evicted(time(rng, 0, 30_000)),
                _ => PodFate::Killed(time(rng, 0, 30_000)),
            };
            faults.push(Fault::Pod { nth: rng.below(4), fate });
        }
        for _ in 0..rng.within(0, self.guests) {
            let fate = match rng.below(4) {
                0 => GuestFate::NeverStarts,
                1 => GuestFate::SlowStart(time(rng, 1_000, 30_000)),
                2 => GuestFate::ShutsDown(time(rng, 0, 40_000)),
                _ => GuestFate::Crashes(time(rng, 0, 40_000)),
            };
            faults.push(Fault::Guest { nth: rng.below(4), fate });
        }
        for _ in 0..if self.journeys > 0 { rng.within(0, self.journeys) } else { 0 } {
            let fate = match rng.below(5) {
                0 => JourneyFate::Breaks(time(rng, 100, 20_000)),
                1 => JourneyFate::Busy(rng.within(20, 120)),
                2 => JourneyFate::TargetDies(time(rng, 100, 20_000)),
                _ => JourneyFate::SourceDies,
            };
            faults.push(Fault::Journey { nth: rng.below(5), fate });
        }
        if self.journeys > 0 && rng.chance(20) {
            let at = time(rng, 20_000, 120_000);
            faults.push(Fault::NoTargets { at, lasts: time(rng, 5_000, 50_000), quota: rng.chance(60) });
        }
        if self.storage > 50 || rng.chance(30) {
            for nth in 0..3 {
                let fate = match rng.below(6) {
                    0 | 1 => VolumeFate::WaitsForConsumer,
                    2 => VolumeFate::Slow(time(rng, 2_000, 60_000)),
                    3 if rng.chance(40) => VolumeFate::Fails,
                    _ => continue,
                };
                faults.push(Fault::Volume { nth, fate });
            }
        }
        // Lost nodes make histories long, so only some of those with migrations between VMIs have them.
        let nodes = if self.exchanges > 0 && !rng.chance(25) { 0 } else { self.nodes };
        for _ in 0..rng.within(0, nodes) {
            let (node, at) = (rng.below(2) as u8, time(rng, 5_000, 120_000));
            if rng.chance(50) {
                faults.push(Fault::NodeOutage { node, at, lasts: time(rng, 20_000, 420_000) });
            } else if !faults.iter().any(|fault| matches!(fault, Fault::NodeLoss { .. })) {
                faults.push(Fault::NodeLoss { node, at });
            }
        }
    }
}

impl Profile {
    /// In profiles with migrations, newer launchers are sometimes a reason for them.
    fn updates(&self, rng: &mut Rng, faults: &mut Vec<Fault>) {
        if self.moves > 0 && rng.chance(35) {
            faults.push(Fault::Updates { at: time(rng, 0, ACTIVE - 40_000), evict: rng.chance(30) });
            if rng.chance(75) {
                faults.push(Fault::Upgrade { at: time(rng, 20_000, ACTIVE - 40_000) });
            }
        }
    }
}

/// Drains and evictions are often canceled: at once, or when others have begun to act.
fn call_off(rng: &mut Rng, deeds: &mut Vec<(Duration, Deed)>) {
    let asked = |(at, deed): &(Duration, Deed)| match deed {
        Deed::Evict { vm } | Deed::Drain { vm } => Some((*at, *vm)),
        _ => None,
    };
    for (at, vm) in deeds.iter().filter_map(asked).collect::<Vec<_>>() {
        if rng.chance(35) {
            let longest = if rng.chance(50) { 3_000 } else { 25_000 };
            deeds.push((at + time(rng, 1, longest), Deed::CallOff { vm }));
        }
    }
    deeds.sort_by_key(|(at, _)| *at);
}

fn strategy(rng: &mut Rng) -> RunStrategy {
    match rng.below(10) {
        0..=3 => RunStrategy::Always,
        4..=5 => RunStrategy::RerunOnFailure,
        6..=7 => RunStrategy::Manual,
        8 => RunStrategy::Halted,
        _ => RunStrategy::Once,
    }
}

/// How long a lost node is kept in the cluster before somebody removes it.
pub(crate) const NODE_REMOVED_AFTER: Duration = secs(340);
