//! virt-operator: installs, repairs, updates and removes Ferrovirt on Kubernetes. [`operate`] decides; this crate observes and
//! executes.
//!
//! ```text
//! every replica:  mirror of all managed objects ─► serving certificate ─► /healthz, /metrics, webhooks of the KubeVirt object
//! the leader:     a change, or time ─► observe ─► operate::decide ─► execute
//!                 CertificateSigningRequest of a node ─► operate::requests::judge ─► approve and sign, or deny
//! ```

mod error;
mod execute;
mod kinds;
mod mirror;
mod observe;
pub mod pki;
mod run;
mod serve;
mod signer;

pub use error::Error;
pub use kinds::{Kind, of_clusters, of_kind};
pub use observe::is_ours;
pub use run::{Config, LEASE, run};
