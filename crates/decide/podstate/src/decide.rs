//! The lifecycle of a Pod on a node.
//!
//! ```text
//!                     Start                              containers end
//!   bound to us ──────────────► shim runs ──────────────────────────────────► ended
//!        │  ▲                    │                                              │ Release
//!        │  └─ blocked: say why, │ deletion: Stop, grace period, Kill           ▼
//!        │     try again later   └───────────────────────────────────────► released
//!        │                                                                      │ deleted: Delete the object
//!        │ object gone: Kill, Release, Purge                                    ▼
//!        └────────────────────────────────────────────────────────────────► purged
//! ```
//!
//! # Guarantees
//! - A Pod that is finished, or being deleted, is never started.
//! - An object is deleted only when nothing of the Pod runs and its IP address is free.
//! - Nothing is killed because an object is missing from the cache: [`Presence::Gone`] is the result of a live read.
//!
//! # Assumptions
//! The actions of one decision are executed in order; after an action that changes the state on disk, the Pod is
//! observed and decided again.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use machinery::pod::has_ended;

use crate::{
    Observed, PodAction, PodView, Presence, RestartPolicy, ShimState, Stage, check, containers, restart_policy, status,
};

/// How long a kill may take before it is repeated.
const KILL_PAUSE: Duration = Duration::from_secs(1);
/// How often a Pod checks for the image that it waits for.
const IMAGE_LOOK: Duration = Duration::from_secs(1);
const DEFAULT_GRACE_SECONDS: i64 = 30;

pub fn decide(view: &PodView<'_>) -> Vec<PodAction> {
    let pod = match view.pod {
        Presence::Known(pod) => pod,
        Presence::Gone => return clear_away(view),
    };
    if pod.metadata.deletion_timestamp.is_some() {
        return wind_down(view, pod, true);
    }
    if has_ended(pod) {
        return if view.disk.is_some() { wind_down(view, pod, false) } else { Vec::new() };
    }
    let spec = match check(pod) {
        Ok(spec) => spec,
        Err(unsupported) => return report(view, pod, status::refused(pod, &unsupported, view)),
    };
    let actions = run(view, spec);
    if actions == [PodAction::Start] {
        return actions; // the next pass has more to report
    }
    // Report the observed state first: a Pod that ended is reported even if releasing its resources takes time.
    let mut reported = report(view, pod, status::observed(pod, spec, view));
    reported.extend(actions);
    reported
}

fn run(view: &PodView<'_>, spec: &PodSpec) -> Vec<PodAction> {
    match view.disk {
        None => start(view),
        Some(disk) => match disk.shim {
            ShimState::NotStarted => start(view),
            ShimState::Alive => Vec::new(),
            ShimState::Gone if !is_complete(disk, spec) && restart_policy(spec) != RestartPolicy::Never => start(view),
            ShimState::Gone if !disk.released => vec![PodAction::Release],
            ShimState::Gone => Vec::new(),
        },
    }
}

fn start(view: &PodView<'_>) -> Vec<PodAction> {
    let Some(obstacle) = view.blocked else { return vec![PodAction::Start] };
    match obstacle.left(view.now) {
        // If the image is imported meanwhile, the Pod does not wait out the back-off.
        Some(_) if obstacle.is_pull() => vec![PodAction::Wake(IMAGE_LOOK)],
        Some(left) => vec![PodAction::Wake(until(left))],
        None => vec![PodAction::Start],
    }
}

/// Whether the shim exited because its work was done.
fn is_complete(disk: &Observed, spec: &PodSpec) -> bool {
    let policy = restart_policy(spec);
    let ended = |name: &str| match disk.containers.get(name).map(|r| &r.stage) {
        Some(Stage::Exited(exit)) => match policy {
            RestartPolicy::Never => true,
            RestartPolicy::OnFailure => exit.code == 0,
            RestartPolicy::Always => disk.stopping_since.is_some(),
        },
        _ => false,
    };
    let failed_init = spec.init_containers.iter().flatten().any(|c| {
        let exit = disk.containers.get(&c.name).and_then(|r| r.stage.exit());
        policy == RestartPolicy::Never && exit.is_some_and(|e| e.code != 0)
    });
    failed_init || containers(spec).all(|c| ended(&c.name))
}

/// The Pod has to end: its object is being deleted, or it was declared finished.
fn wind_down(view: &PodView<'_>, pod: &Pod, delete: bool) -> Vec<PodAction> {
    let Some(disk) = view.disk else { return vec![PodAction::Delete] };
    match disk.shim {
        ShimState::Alive => stop(view, disk, pod),
        _ if !disk.released => vec![PodAction::Release],
        _ => {
            let last = pod.spec.as_ref().filter(|_| disk.shim == ShimState::Gone);
            let mut actions = last.map_or_else(Vec::new, |spec| report(view, pod, status::observed(pod, spec, view)));
            if delete {
                actions.push(PodAction::Delete);
            }
            actions
        }
    }
}

fn stop(view: &PodView<'_>, disk: &Observed, pod: &Pod) -> Vec<PodAction> {
    let Some(since) = disk.stopping_since else {
        return vec![PodAction::Stop { because: "the Pod is to end" }];
    };
    // Counted on this machine from when the containers were asked to stop: after an outage of the node they still get
    // their full grace period.
    let own = pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds);
    let seconds = pod.metadata.deletion_grace_period_seconds.or(own).unwrap_or(DEFAULT_GRACE_SECONDS);
    let left = (since + SignedDuration::from_secs(seconds.max(0))).duration_since(view.now);
    let mut actions = if left <= SignedDuration::ZERO {
        vec![PodAction::Kill { because: "the grace period is over" }, PodAction::Wake(KILL_PAUSE)]
    } else {
        vec![PodAction::Wake(until(left))]
    };
    if let Some(spec) = &pod.spec {
        actions.extend(report(view, pod, status::observed(pod, spec, view)));
    }
    actions
}

/// The object is gone; what is left on the node is orphaned.
fn clear_away(view: &PodView<'_>) -> Vec<PodAction> {
    match view.disk {
        None => Vec::new(),
        Some(disk) if disk.shim == ShimState::Alive => {
            // The signal keeps a shim from restarting containers.
            let stop = disk.stopping_since.is_none().then_some(PodAction::Stop { because: "the Pod's object is gone" });
            let kill = [PodAction::Kill { because: "the Pod's object is gone" }, PodAction::Wake(KILL_PAUSE)];
            stop.into_iter().chain(kill).collect()
        }
        Some(disk) if !disk.released => vec![PodAction::Release],
        Some(_) => vec![PodAction::Purge],
    }
}

fn report(view: &PodView<'_>, pod: &Pod, mut status: k8s_openapi::api::core::v1::PodStatus) -> Vec<PodAction> {
    status::settle_conditions(pod, &mut status, view.now);
    if pod.status.as_ref() == Some(&status) { Vec::new() } else { vec![PodAction::ReportStatus(Box::new(status))] }
}

/// Rounded up: waking too early would take another pass.
fn until(left: SignedDuration) -> Duration {
    Duration::try_from(left).unwrap_or_default() + Duration::from_millis(5)
}
