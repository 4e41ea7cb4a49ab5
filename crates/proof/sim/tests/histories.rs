//! Many histories hold, and the bugs we put in are found.

use sim::{Campaign, Options, Plant, play, profile_for, run, shrink};

/// Two cores are what a test machine has at least.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn campaign(seeds: u64, plant: Option<Plant>) -> Campaign {
    Campaign { start: 0, seeds, profile: "mixed".to_owned(), plant, threads: threads() }
}

/// How many histories are played; a nightly run plays a million with the program.
fn seeds() -> u64 {
    let wanted = std::env::var("FERROVIRT_SIM_SEEDS").ok();
    wanted.map_or(20_000, |seeds| seeds.parse().expect("FERROVIRT_SIM_SEEDS is a number"))
}

#[test]
fn twenty_thousand_histories_with_faults_hold() {
    let report = run(&campaign(seeds(), None));
    if let Some(failure) = report.failure {
        let profile = profile_for("mixed", failure.seed).unwrap();
        let script = shrink(&profile.script(failure.seed), Options::default());
        let outcome = play(&script, Options { verbose: true, ..Options::default() });
        panic!(
            "seed {}: {}\nreplay with: ferrovirt-sim --seed {}\n{}",
            failure.seed,
            failure.violation,
            failure.seed,
            outcome.timeline.join("\n")
        );
    }
    println!(
        "{} histories, {} passes, {} requests, {:?}",
        report.histories, report.passes, report.requests, report.took
    );
}

/// The seeds are among those that hold without the bug.
fn assert_found(plant: Plant, by: &[&str]) {
    let report = run(&campaign(2_000, Some(plant)));
    let failure = report.failure.unwrap_or_else(|| panic!("{plant:?} was not found"));
    assert!(by.contains(&failure.violation.invariant), "{plant:?} was found by {}", failure.violation);
    println!("{plant:?}: seed {}, {}", failure.seed, failure.violation);
}

#[test]
fn random_pod_names_are_found() {
    assert_found(Plant::RandomPodNames, &["one_launcher", "expectations", "pods_before_finalizers", "conflicts"]);
}

#[test]
fn missing_expectations_are_found() {
    assert_found(Plant::NoExpectations, &["expectations"]);
}

#[test]
fn acting_on_absence_is_found() {
    assert_found(Plant::ActOnAbsence, &["absence_is_confirmed", "pods_before_finalizers", "silent_nodes"]);
}

#[test]
fn swallowed_conflicts_are_found() {
    assert_found(Plant::SwallowConflicts, &["conflicts", "outcome_first"]);
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    for seed in [3, 12, 21] {
        let script = profile_for("storm", seed).unwrap().script(seed);
        let told = || play(&script, Options { verbose: true, ..Options::default() }).timeline;
        assert_eq!(told(), told(), "seed {seed}");
    }
}

#[test]
fn a_failing_history_shrinks_to_one_that_fails_alike() {
    let options = Options { plant: Some(Plant::NoExpectations), ..Options::default() };
    let failure = run(&campaign(2_000, options.plant)).failure.unwrap();
    let script = profile_for("mixed", failure.seed).unwrap().script(failure.seed);
    let shorter = shrink(&script, options);
    let parts = |script: &sim::Script| script.user.len() + script.faults.len();
    assert!(parts(&shorter) <= parts(&script));
    assert_eq!(play(&shorter, options).violation.unwrap().invariant, failure.violation.invariant);
}
