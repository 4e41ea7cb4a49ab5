//! The node's side of a live migration: two launchers of one VMI on two nodes, each with a state machine of its own.
//!
//! The two coordinate through `status.migrationState` and two labels; each field has one writer at a time:
//!
//! ```text
//!  controller          target's node                            source's node
//!  ──────────          ─────────────                            ─────────────
//!  hands off ────────► network, PrepareTarget, proxy
//!                      address and ports ─────────────────────► proxy, Migrate
//!                                                               startTimestamp, mode
//!                      guest runs here:
//!                      nodeName, endTimestamp ────────────────► (not the owner any more)
//!                      FinalizeTarget, completed                launcher ends
//!                                                               or: failed, with the reason
//! ```
//!
//! # Who may run the guest
//!
//! - **The VMI's node owns it.** The label `kubevirt.io/nodeName` changes in one write, made by the target node after
//!   the guest runs there. Until then the source is the owner, and the guest is the source's whatever fails.
//! - **The source resumes the guest only if the target says so.** Its launcher pauses the guest for the switch-over and
//!   resumes it when the target reports that it does not run there. While this is unknown
//!   ([`MigrationPhase::Undecided`]) the guest stays paused.
//! - **The target writes first.** Its node either takes over the VMI, or writes `failed` after its QEMU has ended. The
//!   source node passes what it reads there to its launcher: moved means that QEMU ends here, failed that the guest
//!   resumes. The loser is fenced before the winner is declared, in both directions.
//! - **A guest is the target's once its node has written so, not when it runs there.** If QEMU dies on the target
//!   before that, its node writes `failed`, and a source that still has the guest resumes it.
//! - **If the source dies after the switch-over, the target decides.** A source whose launcher is gone says so in an
//!   annotation and declares nothing. The target takes over the VMI if the guest runs there, and writes `failed` if it
//!   does not; only then has the guest ended.
//! - Images of disks that both nodes use are locked by the QEMU that runs the guest, where their file system has locks.
//!
//! # Between two VMIs
//!
//! A guest may also be sent to another VMI, whose annotation marks it as a receiver. Each side has a migration and a
//! `migrationState` of its own, and virt-controller synchronizes them. The same rules hold; only the changes of
//! ownership differ: the receiver's VMI belongs to its node from the start and has the guest from the write of
//! `endTimestamp` on, and the sender's VMI ends as `Succeeded` when it reads there that the guest has been taken over.
//!
//! `failed` is final: a target that still has anything running when it reads it stops it, whoever wrote it.

mod condition;
mod options;
mod peer;
pub(crate) mod source;
mod storage;
pub(crate) mod target;

pub(crate) use condition::{live_migratable, storage_live_migratable};
pub use options::options;
pub use peer::{destination, sender_uid};

use std::collections::BTreeMap;
use std::time::Duration;

use api::labels;
use api::v1::{
    Between, MigrationAbortStatus, MigrationMode, VirtualMachineInstance, VirtualMachineInstanceMigrationState,
};
use jiff::Timestamp;
use launcher_contract::migration::MigrationPhase;

use crate::launcher::{Verdict, since};
use crate::status::time;
use crate::{Action, World};

/// Set to the migration's UID by a source whose launcher is gone: the target has to report the fate of the guest.
pub const SOURCE_GONE: &str = api::annotations::MIGRATION_SOURCE_GONE;

/// A migration as its launcher sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    pub uid: String,
    pub phase: MigrationPhase,
    pub mode: Option<MigrationMode>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub failure: Option<String>,
    pub abort: Option<MigrationAbortStatus>,
}

/// Where the target of a migration can be reached: an address, and the channel behind each port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoint {
    pub address: String,
    pub ports: BTreeMap<String, i64>,
}

/// The proxies that are open for this launcher.
#[derive(Debug, Clone, Copy, Default)]
pub struct Proxy<'a> {
    /// As a target: where the source node can connect.
    pub listening: Option<&'a Endpoint>,
    /// As a source: the target that the launcher's sockets are connected to.
    pub dialling: Option<&'a Endpoint>,
}

impl Proxy<'_> {
    fn is_open(&self) -> bool {
        self.listening.is_some() || self.dialling.is_some()
    }
}

/// How long the source may still query the target after the guest has moved.
const QUESTIONS: Duration = Duration::from_secs(30);

/// Closes the target proxy, once the source has had the time to learn that the guest has arrived.
pub(crate) fn close_entrance(w: &World<'_>, vmi: &VirtualMachineInstance) -> Option<Action> {
    w.proxy.listening?;
    let end = state_of(vmi).and_then(|state| state.end_timestamp.as_ref());
    let left = end.and_then(|end| QUESTIONS.checked_sub(since(end.0, w.now))).filter(|left| !left.is_zero());
    let because = "the source of the migration may still ask for the guest's state";
    Some(left.map_or(Action::CloseProxies, |delay| Action::RequeueAfter { delay, because }))
}

pub(crate) fn state_of(vmi: &VirtualMachineInstance) -> Option<&VirtualMachineInstanceMigrationState> {
    vmi.status.as_ref()?.migration_state.as_ref().filter(|state| state.migration_uid.is_some())
}

pub(crate) fn uid_of(state: &VirtualMachineInstanceMigrationState) -> &str {
    state.migration_uid.as_deref().unwrap_or_default()
}

pub(crate) fn has_failed(state: &VirtualMachineInstanceMigrationState) -> bool {
    state.failed == Some(true)
}

/// A label that says which node or Pod owns the VMI.
pub(crate) fn label<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a str> {
    vmi.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn annotation<'a>(vmi: &'a VirtualMachineInstance, name: &str) -> Option<&'a str> {
    vmi.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether this launcher is the target of a migration.
pub(crate) fn is_target(w: &World<'_>, vmi: &VirtualMachineInstance) -> bool {
    let Some(state) = state_of(vmi) else { return false };
    label(vmi, labels::MIGRATION_TARGET_NODE_NAME) == Some(w.node_name)
        && state.target_node.as_deref() == Some(w.node_name)
        && w.pod_name.is_some()
        && state.target_pod.as_deref() == w.pod_name
}

/// Whether the guest of this launcher now belongs to another VMI, whose node has reported that it runs there.
pub(crate) fn was_sent(w: &World<'_>, vmi: &VirtualMachineInstance) -> bool {
    let Some(state) = state_of(vmi).filter(|state| state.between() == Some(Between::Sends)) else { return false };
    let here = state.source_node.as_deref() == Some(w.node_name);
    let this = w.pod_name.is_none() || state.source_pod.as_deref() == w.pod_name;
    here && this && !has_failed(state) && state.end_timestamp.is_some()
}

/// Whether the guest has left this launcher, or has since moved on: the VMI may even be back on this node, in another
/// Pod, and about to leave that one.
pub(crate) fn has_left(w: &World<'_>, vmi: &VirtualMachineInstance) -> bool {
    let Some(state) = state_of(vmi) else { return false };
    let moved = !has_failed(state) && state.end_timestamp.is_some();
    let (node, pod) =
        if moved { (&state.target_node, &state.target_pod) } else { (&state.source_node, &state.source_pod) };
    let here = node.as_deref() == Some(w.node_name);
    let other = match w.pod_name {
        Some(own) => pod.as_deref() != Some(own),
        // A launcher that took part in a migration has reported it: this one was gone before.
        None => matches!(w.launcher.verdict(w.now), Verdict::Gone),
    };
    here && pod.is_some() && other
}

/// Records that a migration has failed.
fn fail(state: &mut VirtualMachineInstanceMigrationState, why: &str, now: Timestamp) {
    state.fail();
    state.start_timestamp.get_or_insert_with(|| time(now));
    state.end_timestamp.get_or_insert_with(|| time(now));
    state.failure_reason.get_or_insert_with(|| why.to_owned());
}
