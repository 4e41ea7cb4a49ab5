//! DataVolumes of an embedded cluster: what becomes of each, its phase, progress and conditions, and what is asked of the
//! process that fills its claim.
//!
//! ```text
//!   DataVolume ─► admit ─► stored ─► decide ─► claim, transfer, status, events
//!   DataSource ─────────────────────► data_source::decide
//!   upload ─► token ─► upload::decide
//! ```
//!
//! Phases, conditions, annotations and messages are those of the Containerized Data Importer where it fills a claim itself,
//! without a populator: KubeVirt's controllers, virtctl and dashboards read them. `import-controller` looks and acts.

pub mod admit;
mod claim;
mod cluster;
pub mod data_source;
mod decide;
pub mod installation;
mod note;
mod size;
mod source;
mod status;
pub mod token;
mod transfer;
pub mod upload;
pub mod users;
pub mod words;

#[cfg(test)]
mod tests;

pub use cluster::Cluster;
pub use decide::{
    Action, ClaimPatch, Content, DRIVER, Decision, Task, World, claim_of_holder, claim_refused, decide, holder,
    is_reserved, over_quota,
};
pub use note::Note;
pub use size::required;
pub use source::{Import, Origin, OriginKind};
pub use transfer::{Failure, Transfer};
