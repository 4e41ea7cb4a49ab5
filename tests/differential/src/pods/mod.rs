//! Our Pods against KubeVirt's: instances that our admission let in are rendered by us and by KubeVirt's template service, and
//! the Pods have to be the same in all that matters.
//!
//! ```text
//! seed ─► generate ─► instance ─► our admission ─► case ─┬─► render ────────────────────► Pod ─► normal ─┐
//!                                                        └─► judge (KubeVirt, a process) ► Pod ─► normal ─┴─► differences
//! ```

pub mod clusters;
pub mod compare;
pub mod differences;
pub mod generate;
mod normal;
pub mod ours;
pub mod report;
mod shrink;

use std::fmt;

use serde_json::Value;

use clusters::Cluster;

/// The Pods that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The Pod that holds the guest.
    Launcher,
    /// The same without a guest, for claims that wait for their first consumer.
    FirstConsumer,
    /// The Pod that brings plugged volumes to the node.
    Attachment,
    /// The first consumer of one plugged claim.
    Trigger,
    /// The Pod a guest moves to.
    MigrationTarget,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::Launcher, Kind::FirstConsumer, Kind::Attachment, Kind::Trigger, Kind::MigrationTarget];

    /// What the judge calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Launcher => "launcher",
            Kind::FirstConsumer => "first-consumer",
            Kind::Attachment => "attachment",
            Kind::Trigger => "trigger",
            Kind::MigrationTarget => "migration-target",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One Pod to render.
#[derive(Clone)]
pub struct Case {
    /// Which Pod.
    pub kind: Kind,
    /// The instance, with all defaults.
    pub vmi: Value,
    /// The cluster.
    pub cluster: &'static Cluster,
    /// The plugged volumes to attach, or the one to trigger; all have claims.
    pub volumes: Vec<String>,
    /// The instance's Pod, where there is one already.
    pub launcher: Option<Value>,
}

/// What one side makes of a case: the Pod, or why there is none.
pub type Rendered = Result<Value, String>;
