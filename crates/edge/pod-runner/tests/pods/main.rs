//! Pods in real namespaces: processes, control groups, mounts and networks, as root, each test in directories and
//! network namespaces of its own. The mounts of all tests live in a mount namespace of this process.

#![allow(clippy::unwrap_used, reason = "a test without the usual harness is a test nevertheless")]

mod claims;
mod containers;
mod faults;
mod harness;
mod networks;
mod runner;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // The roles that a node's program has; they come before anything that makes a thread.
    match args.next().as_deref().and_then(|a| a.to_str()) {
        Some(pod_runner::shim::SUBCOMMAND) => return pod_runner::shim::main(args),
        Some(pod_runner::exec::SUBCOMMAND) => return pod_runner::exec::main(args),
        Some(faults::DRIVER) => return faults::drive(args),
        _ => {}
    }
    let arguments = Arguments::from_args();
    if !rustix::process::geteuid().is_root() {
        test_support::skip("Pods need root");
        return ExitCode::SUCCESS;
    }
    hostfs::ns::unshare(hostfs::ns::Kinds::NEWNS).expect("a mount namespace");
    hostfs::mounts::make_private_recursive("/").expect("private mounts");
    let tests: &[(&'static str, fn())] = &[
        (
            "a_command_runs_and_its_output_and_code_are_kept",
            containers::a_command_runs_and_its_output_and_code_are_kept,
        ),
        ("a_launcher_finds_the_world_it_expects", containers::a_launcher_finds_the_world_it_expects),
        (
            "a_container_that_handles_the_signal_ends_by_itself",
            containers::a_container_that_handles_the_signal_ends_by_itself,
        ),
        (
            "a_container_that_never_stops_talking_is_heard_and_bounded",
            containers::a_container_that_never_stops_talking_is_heard_and_bounded,
        ),
        ("a_program_starts_with_no_signal_blocked", containers::a_program_starts_with_no_signal_blocked),
        ("a_container_that_ignores_the_signal_is_killed", containers::a_container_that_ignores_the_signal_is_killed),
        (
            "a_container_over_its_memory_limit_is_killed_for_it",
            containers::a_container_over_its_memory_limit_is_killed_for_it,
        ),
        (
            "init_containers_run_in_order_and_failures_restart",
            containers::init_containers_run_in_order_and_failures_restart,
        ),
        ("an_imported_image_is_a_root_and_a_volume", containers::an_imported_image_is_a_root_and_a_volume),
        ("volumes_are_shared_and_files_appear", containers::volumes_are_shared_and_files_appear),
        ("a_program_that_is_not_there_is_a_start_error", containers::a_program_that_is_not_there_is_a_start_error),
        ("pods_of_two_nodes_reach_each_other", networks::pods_of_two_nodes_reach_each_other),
        ("a_pod_outlives_its_driver_and_is_adopted", faults::a_pod_outlives_its_driver_and_is_adopted),
        (
            "a_driver_killed_at_any_point_leaves_work_that_can_be_finished",
            faults::a_driver_killed_at_any_point_leaves_work_that_can_be_finished,
        ),
        ("a_lost_shim_takes_its_containers_along", faults::a_lost_shim_takes_its_containers_along),
        ("everything_can_be_destroyed_from_the_records", faults::everything_can_be_destroyed_from_the_records),
        (
            "a_file_system_claim_is_a_directory_that_outlives_its_pods",
            claims::a_file_system_claim_is_a_directory_that_outlives_its_pods,
        ),
        ("a_block_claim_is_a_device_of_the_containers_user", claims::a_block_claim_is_a_device_of_the_containers_user),
        ("a_claim_in_use_on_another_node_is_waited_for", claims::a_claim_in_use_on_another_node_is_waited_for),
        (
            "a_claim_that_is_being_filled_or_of_the_wrong_mode_is_waited_for",
            claims::a_claim_that_is_being_filled_or_of_the_wrong_mode_is_waited_for,
        ),
        (
            "claims_outlive_a_killed_node_process_and_are_given_back_without_it",
            claims::claims_outlive_a_killed_node_process_and_are_given_back_without_it,
        ),
        (
            "a_driver_killed_while_it_publishes_leaves_claims_that_can_be_used_and_given_back",
            claims::a_driver_killed_while_it_publishes_leaves_claims_that_can_be_used_and_given_back,
        ),
        (
            "what_the_node_mounts_later_reaches_a_running_launcher",
            claims::what_the_node_mounts_later_reaches_a_running_launcher,
        ),
        (
            "a_directory_of_the_machine_is_a_volume_where_its_type_fits",
            claims::a_directory_of_the_machine_is_a_volume_where_its_type_fits,
        ),
        ("a_pod_lives_from_its_object_to_its_deletion", runner::a_pod_lives_from_its_object_to_its_deletion),
        ("ends_refusals_and_obstacles_are_told", runner::ends_refusals_and_obstacles_are_told),
        (
            "a_missing_image_is_pulled_and_a_failed_pull_is_told_and_tried_again",
            runner::a_missing_image_is_pulled_and_a_failed_pull_is_told_and_tried_again,
        ),
        (
            "a_new_runner_adopts_what_runs_and_clears_what_nobody_owns",
            runner::a_new_runner_adopts_what_runs_and_clears_what_nobody_owns,
        ),
        (
            "a_pod_waits_for_its_claim_starts_at_once_and_sees_it_grow",
            runner::a_pod_waits_for_its_claim_starts_at_once_and_sees_it_grow,
        ),
        (
            "a_new_runner_keeps_the_claims_of_what_runs_and_takes_those_of_nobody",
            runner::a_new_runner_keeps_the_claims_of_what_runs_and_takes_those_of_nobody,
        ),
    ];
    let trials = tests.iter().map(|(name, test)| {
        Trial::test(*name, move || -> Result<(), Failed> {
            test();
            Ok(())
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
