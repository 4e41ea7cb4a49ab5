//! Plays many histories, on all cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
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
    /// Play on after a failure.
    pub keep_going: bool,
}

/// A seed that failed.
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
    pub failed: u64,
    /// The lowest seed that failed.
    pub failure: Option<Failure>,
    pub took: Duration,
}

/// What a running campaign reports.
#[derive(Debug)]
pub enum News<'a> {
    Failed(&'a Failure),
    /// So far; once a minute.
    Progress(&'a Report),
}

const PROGRESS: Duration = Duration::from_secs(60);

/// Plays the histories until one fails, or all of them. Every seed below the failing one has passed.
///
/// # Panics
/// If the profile does not exist.
pub fn run(campaign: &Campaign) -> Report {
    watch(campaign, |_| {})
}

/// [`run`], and reports while it plays.
///
/// # Panics
/// If the profile does not exist.
pub fn watch(campaign: &Campaign, tell: impl FnMut(News<'_>) + Send) -> Report {
    let began = Instant::now();
    let next = AtomicU64::new(campaign.start);
    let stop = AtomicBool::new(false);
    let watched = Mutex::new((Report::default(), tell, PROGRESS));
    std::thread::scope(|scope| {
        for _ in 0..campaign.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= campaign.start + campaign.seeds || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let outcome = play_caught(campaign, seed);
                    if outcome.violation.is_some() && !campaign.keep_going {
                        stop.store(true, Ordering::Relaxed);
                    }
                    let (report, tell, due) = &mut *watched.lock();
                    add(report, seed, outcome, tell);
                    report.took = began.elapsed();
                    if report.took >= *due {
                        *due = report.took + PROGRESS;
                        tell(News::Progress(report));
                    }
                }
            });
        }
    });
    let (mut report, ..) = watched.into_inner();
    report.took = began.elapsed();
    report
}

/// A panic of the simulation itself ends one history, not the campaign, and names its seed.
fn play_caught(campaign: &Campaign, seed: u64) -> Outcome {
    let options = Options { plant: campaign.plant, ..Options::default() };
    let played = catch_unwind(AssertUnwindSafe(|| play_seed(&campaign.profile, seed, options)));
    match played {
        Ok(outcome) => outcome.expect("the profile exists"),
        Err(_) => Outcome::panicked("the simulation panicked; its message is on stderr"),
    }
}

/// The history of a seed; `None` if there is no such profile.
pub fn play_seed(profile: &str, seed: u64, options: Options) -> Option<Outcome> {
    if profile == launchers::NAME {
        return Some(launchers::play(seed, options));
    }
    profile_for(profile, seed).map(|profile| play(&profile.script(seed), options))
}

fn add(report: &mut Report, seed: u64, outcome: Outcome, tell: &mut impl FnMut(News<'_>)) {
    report.histories += 1;
    report.passes += outcome.passes;
    report.requests += outcome.requests;
    report.moved += outcome.moved;
    let Some(violation) = outcome.violation else { return };
    let failure = Failure { seed, violation };
    tell(News::Failed(&failure));
    report.failed += 1;
    if report.failure.as_ref().is_none_or(|known| seed < known.seed) {
        report.failure = Some(failure);
    }
}
