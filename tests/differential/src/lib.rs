//! Ourselves against KubeVirt: virtual machines and instances made from the schemas go through our admission and through
//! KubeVirt's, and what comes out has to be the same.
//!
//! ```text
//! seed ─► generate ─► case ─┬─► ours ──────────────────► verdict ─┐
//!                           └─► judge (KubeVirt, a process) ► verdict ─┴─► compare ─► differences
//! ```

pub mod clusters;
pub mod compare;
pub mod differences;
pub mod fields;
pub mod generate;
pub mod judge;
pub mod misnomers;
pub mod newer;
pub mod ours;
pub mod pods;
pub mod report;
pub mod shrink;
pub mod verdict;
