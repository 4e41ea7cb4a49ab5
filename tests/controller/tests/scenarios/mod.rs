//! What users do, and what they see; each on both servers.

mod life;
mod moves;
mod nodes;
mod starts;
mod storage;
mod updates;
mod waits;

use std::pin::Pin;

use anyhow::Result;
use libtest_mimic::Trial;

use crate::cluster::{Cluster, Kind};
use crate::env::Env;

type Body = fn(Env) -> Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The name, which is the namespace as well, and what happens.
struct Scenario {
    name: &'static str,
    body: Body,
}

macro_rules! scenarios {
    ($($module:ident::$body:ident,)*) => {
        &[$(Scenario { name: stringify!($body), body: |env| Box::pin($module::$body(env)) },)*]
    };
}

const SCENARIOS: &[Scenario] = scenarios![
    life::a_halted_machine_waits_for_its_user,
    life::a_machine_starts_when_asked,
    life::a_machine_stops_when_asked,
    life::a_restart_makes_one_new_instance,
    life::a_deleted_machine_takes_everything_along,
    life::an_orphaned_instance_runs_on,
    life::a_guest_whose_pod_was_taken_away_is_replaced,
    waits::a_crash_loop_slows_down_and_recovers,
    waits::a_data_volume_that_is_not_ready_is_waited_for,
    waits::a_missing_claim_is_waited_for,
    waits::a_pod_that_fits_nowhere_says_what_the_scheduler_said,
    waits::an_image_that_cannot_be_had_is_named,
    nodes::a_guest_on_a_lost_node_is_given_up_once_its_pod_has_ended,
    moves::a_guest_moves_and_nothing_of_it_stays_behind,
    moves::a_guest_that_has_to_leave_its_node_is_moved,
    moves::a_move_that_fits_nowhere_says_so_and_gives_up,
    moves::a_move_beyond_the_quota_waits_for_room,
    moves::a_move_is_given_up_on_its_way,
    moves::a_guest_becomes_another_machines,
    updates::a_guest_on_an_outdated_launcher_is_moved_or_evicted,
    starts::caches_fill_where_lists_are_not_streamed,
    starts::a_controller_that_sees_too_little_makes_nothing_twice,
    starts::a_budget_of_an_earlier_version_is_removed,
    storage::a_data_volume_without_owner_is_taken_over,
    storage::a_volume_of_another_namespace_is_copied_with_permission_only,
    storage::a_plugged_volume_is_held_by_a_pod_of_its_own,
    storage::a_guest_takes_its_state_along,
];

/// There are no Jobs in the embedded cluster.
const WITH_JOBS: &[Scenario] = scenarios![storage::a_job_looks_on_which_side_a_guest_was_last,];

pub(crate) fn trials(kind: Kind) -> Vec<Trial> {
    let more = if kind == Kind::Kube { WITH_JOBS } else { &[] };
    let each = SCENARIOS.iter().chain(more).map(|scenario| {
        let (namespace, body) = (scenario.name.replace('_', "-"), scenario.body);
        // Starting the cluster blocks, so it is done before the runtime is entered.
        Trial::test(format!("{}::{}", kind.name(), scenario.name), move || {
            let cluster = Cluster::shared(kind).map_err(|err| format!("{err:#}"))?;
            let run = async { body(Env::new(cluster, &namespace[..namespace.len().min(63)]).await?).await };
            crate::runtime().block_on(run).map_err(|err| format!("{err:#}").into())
        })
    });
    each.collect()
}
