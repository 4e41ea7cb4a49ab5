//! Many histories hold, and the bugs we put in are found; those written by hand play as recorded.

mod scenarios;

use sim::{Campaign, Options, Plant, Report, launchers, play, profile_for, run, shrink};

/// Histories are objects that are made, compared and dropped: with it they take a seventh less time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Two cores are what a test machine has at least.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn campaign(profile: &str, seeds: u64, plant: Option<Plant>) -> Campaign {
    Campaign { start: 0, seeds, profile: profile.to_owned(), plant, threads: threads(), keep_going: false }
}

/// How many histories are played: a tenth, or the percentage that is asked for. `make nightly` plays all.
fn share(of: u64) -> u64 {
    let wanted = std::env::var("FERROVIRT_SIM_PERCENT").ok();
    of * wanted.map_or(10, |percent| percent.parse().expect("FERROVIRT_SIM_PERCENT is a number")) / 100
}

fn assert_hold(campaign: &Campaign) -> Report {
    let report = run(campaign);
    if let Some(failure) = &report.failure {
        let profile = profile_for(&campaign.profile, failure.seed).expect("a campaign runs a profile there is");
        let script = shrink(&profile.script(failure.seed), Options::default());
        let outcome = play(&script, Options { verbose: true, ..Options::default() });
        panic!(
            "seed {}: {}\nreplay with: ferrovirt-sim --profile {} --seed {}\n{}",
            failure.seed,
            failure.violation,
            campaign.profile,
            failure.seed,
            outcome.timeline.join("\n")
        );
    }
    println!(
        "{}: {} histories, {} guests moved, {} passes, {} requests, {:?}",
        campaign.profile, report.histories, report.moved, report.passes, report.requests, report.took
    );
    report
}

#[test]
fn histories_of_all_kinds_hold() {
    assert_hold(&campaign("mixed", share(33_000), None));
}

/// Other seeds than there, where every eleventh history is of this kind.
#[test]
fn histories_of_guests_that_move_hold() {
    let report = assert_hold(&Campaign { start: 1_000_000, ..campaign("migrations", share(13_000), None) });
    assert!(report.moved * 2 > report.histories, "{} guests moved in {} histories", report.moved, report.histories);
}

#[test]
fn histories_of_guests_that_become_anothers_hold() {
    let report = assert_hold(&Campaign { start: 2_000_000, ..campaign("between", share(6_000), None) });
    assert!(report.moved * 3 > report.histories, "{} guests moved in {} histories", report.moved, report.histories);
}

/// The launchers' machines and the node agents' as they ship, over a link that loses, delays and breaks.
#[test]
fn both_launchers_of_twenty_thousand_migrations_hold() {
    let report = run(&campaign(launchers::NAME, share(20_000), None));
    if let Some(failure) = &report.failure {
        let told = launchers::play(failure.seed, Options { verbose: true, ..Options::default() });
        panic!("seed {}: {}\n{}", failure.seed, failure.violation, told.timeline.join("\n"));
    }
    assert!(report.moved * 3 > report.histories, "{} guests moved in {} histories", report.moved, report.histories);
    println!("launchers: {} histories, {} guests moved, {:?}", report.histories, report.moved, report.took);
}

/// Histories that once broke an invariant. docs/dev/simulator.md tells what happened in each.
#[test]
fn histories_that_once_broke_hold() {
    for start in [
        7_031_958, 7_035_918, 7_058_731, 7_066_960, 7_094_834, 7_114_567, 7_147_238, 7_150_340, 7_229_456, 7_340_684,
        7_341_409, 7_359_384, 7_370_208, 7_431_654, 7_441_751, 7_449_556, 7_469_443, 7_481_671, 7_481_692, 7_581_617,
        7_939_185, 7_994_315,
    ] {
        assert_hold(&Campaign { start, ..campaign("mixed", 1, None) });
    }
}

/// Here a process took the lead while Pods came late: it did not count the targets that its predecessor had made.
#[test]
fn a_new_leader_counts_what_was_started_before() {
    assert_hold(&Campaign { start: 2_001_408, ..campaign("migrations", 1, None) });
}

/// A deposed leader's request for a launcher came when the instance was gone: the Pod is nobody's, and does not stay.
#[test]
fn the_pod_of_a_dead_instance_is_nobodys() {
    assert_hold(&Campaign { start: 7_013_405, ..campaign("mixed", 1, None) });
}

/// A migration and a send of one guest were asked for at once: its target, the sender and the receiver waited for each other.
#[test]
fn a_migration_beside_an_exchange_makes_way() {
    assert_hold(&Campaign { start: 7_030_550, ..campaign("mixed", 1, None) });
}

/// A quota refused the target of an evacuation, which was canceled then: it ended, and still showed the quota.
#[test]
fn an_evacuation_that_was_canceled_waits_for_no_quota() {
    assert_hold(&Campaign { start: 364, ..campaign("migrations", 1, None) });
}

/// Disks are plugged and unplugged while storage is slow, fails, or is somebody else's.
#[test]
fn histories_of_disks_hold() {
    assert_hold(&campaign("storage", share(6_000), None));
}

/// The seeds are among those that hold without the bug.
fn assert_found(plant: Plant, by: &[&str]) {
    assert_found_in("mixed", plant, by);
}

fn assert_found_in(profile: &str, plant: Plant, by: &[&str]) {
    let report = run(&campaign(profile, 2_000, Some(plant)));
    let failure = report.failure.unwrap_or_else(|| panic!("{plant:?} was not found"));
    assert!(by.contains(&failure.violation.invariant), "{plant:?} was found by {}", failure.violation);
    println!("{plant:?}: seed {}, {}", failure.seed, failure.violation);
}

#[test]
fn random_pod_names_are_found() {
    let by = ["one_launcher", "expectations", "pods_before_finalizers", "conflicts", "ready", "between"];
    assert_found(Plant::RandomPodNames, &by);
}

#[test]
fn missing_expectations_are_found() {
    assert_found(Plant::NoExpectations, &["expectations"]);
}

#[test]
fn acting_on_absence_is_found() {
    let by = ["absence_is_confirmed", "pods_before_finalizers", "silent_nodes", "ready", "migration_phases"];
    assert_found(Plant::ActOnAbsence, &by);
}

#[test]
fn swallowed_conflicts_are_found() {
    assert_found(Plant::SwallowConflicts, &["conflicts", "outcome_first"]);
}

#[test]
fn a_hand_off_decided_from_a_stale_cache_is_found() {
    assert_found_in("migrations", Plant::ForgottenHandOff, &["handed_off", "one_guest", "state_claims"]);
}

#[test]
fn a_race_for_the_limits_is_found() {
    assert_found_in("migrations", Plant::UncountedStart, &["limits"]);
}

#[test]
fn two_owners_are_found() {
    // A migration whose guest another one has taken waits without knowing for what.
    assert_found_in("migrations", Plant::TwoOwners, &["handed_off", "one_guest", "migrations_kept"]);
}

#[test]
fn giving_up_by_deleting_the_target_is_found() {
    assert_found_in("migrations", Plant::AbortDeletesTarget, &["handed_off", "one_guest"]);
}

#[test]
fn a_sender_that_goes_on_is_found() {
    assert_found_in("between", Plant::SenderGoesOn, &["between", "one_guest"]);
}

#[test]
fn a_stale_copy_of_the_other_side_is_found() {
    assert_found_in("between", Plant::StaleCopy, &["between", "handed_off", "one_guest", "policies", "settles"]);
}

#[test]
fn a_claim_that_goes_before_the_other_is_the_guests_is_found() {
    assert_found_in("migrations", Plant::SourceClaimFirst, &["state_claims"]);
}

#[test]
fn a_job_that_is_not_awaited_is_found() {
    assert_found_in("migrations", Plant::JobNotAwaited, &["recovery_first", "state_claims"]);
}

#[test]
fn a_predecessor_that_goes_before_its_successor_runs_is_found() {
    assert_found_in("storage", Plant::ImpatientSwap, &["disks", "no_gap"]);
}

#[test]
fn a_disk_that_the_guest_still_has_is_found() {
    assert_found_in("storage", Plant::EagerEject, &["disks"]);
}

#[test]
fn a_source_that_resumes_after_the_target_ran_is_found() {
    assert_found_in(launchers::NAME, Plant::SourceResumes, &["one_guest"]);
}

#[test]
fn a_lost_finish_that_is_taken_for_a_failure_is_found() {
    assert_found_in(launchers::NAME, Plant::LostFinish, &["one_guest"]);
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    for (profile, seed) in
        [("storm", 3), ("storm", 12), ("storm", 21), ("migrations", 8), ("between", 5), ("storage", 4)]
    {
        let script = profile_for(profile, seed).unwrap().script(seed);
        let told = || play(&script, Options { verbose: true, ..Options::default() }).timeline;
        assert_eq!(told(), told(), "seed {seed}");
    }
}

#[test]
fn a_failing_history_shrinks_to_one_that_fails_alike() {
    let options = Options { plant: Some(Plant::NoExpectations), ..Options::default() };
    let failure = run(&campaign("mixed", 2_000, options.plant)).failure.unwrap();
    let script = profile_for("mixed", failure.seed).unwrap().script(failure.seed);
    let shorter = shrink(&script, options);
    let parts = |script: &sim::Script| script.user.len() + script.faults.len();
    assert!(parts(&shorter) <= parts(&script));
    assert_eq!(play(&shorter, options).violation.unwrap().invariant, failure.violation.invariant);
}
