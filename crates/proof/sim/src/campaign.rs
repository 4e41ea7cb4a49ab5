//! Plays many histories, on all cores.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::engine::{Options, Outcome, play};
use crate::invariants::Violation;
use crate::launchers;
use crate::plant::Plant;
use crate::profile::profile_for;

/// Which histories to play.
#[derive(Clone, Debug)]
pub struct Campaign {
    pub start: u64,
    pub seeds: u64,
    /// A profile's name, or `mixed`.
    pub profile: String,
    pub plant: Option<Plant>,
    pub threads: usize,
}

/// The first seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub violation: Violation,
}

/// The result of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub histories: u64,
    pub passes: u64,
    pub requests: u64,
    /// Guests that migrated to another node.
    pub moved: u64,
    pub failure: Option<Failure>,
    pub took: Duration,
}

/// Plays the histories until one fails. Every seed below the failing one has passed.
///
/// # Panics
/// If the profile does not exist.
pub fn run(campaign: &Campaign) -> Report {
    let began = Instant::now();
    let next = AtomicU64::new(campaign.start);
    let stop = AtomicBool::new(false);
    let report = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..campaign.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= campaign.start + campaign.seeds || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let options = Options { plant: campaign.plant, ..Options::default() };
                    let outcome = play_seed(&campaign.profile, seed, options).expect("the profile exists");
                    if outcome.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    add(&mut report.lock(), seed, outcome);
                }
            });
        }
    });
    let mut report = report.into_inner();
    report.took = began.elapsed();
    report
}

/// The history of a seed; `None` if there is no such profile.
pub fn play_seed(profile: &str, seed: u64, options: Options) -> Option<Outcome> {
    if profile == launchers::NAME {
        return Some(launchers::play(seed, options));
    }
    profile_for(profile, seed).map(|profile| play(&profile.script(seed), options))
}

fn add(report: &mut Report, seed: u64, outcome: Outcome) {
    report.histories += 1;
    report.passes += outcome.passes;
    report.requests += outcome.requests;
    report.moved += outcome.moved;
    if let Some(violation) = outcome.violation
        && report.failure.as_ref().is_none_or(|known| seed < known.seed)
    {
        report.failure = Some(Failure { seed, violation });
    }
}
