//! Runs Pods on one machine without a kubelet: a node of the embedded cluster.
//!
//! ```text
//! run(config)                      one per node: Node object, Pods bound to it, their status
//!   └─ podstate::decide(view)      what to do about one Pod
//!        └─ sandbox                files, volumes, network, control groups of one Pod
//!             └─ shim::main        one process per Pod: namespaces, containers, logs, exit codes
//! ```
//!
//! A Pod's state on disk is enough to take it over: the process in [`run`] may be killed at any point, and the next one
//! adopts the running shims and finishes interrupted steps. [`destroy_all`] removes everything from the same records.
//!
//! The program in a [`RunnerConfig`] must call [`shim::main`] for the argument [`shim::SUBCOMMAND`] and [`exec::main`]
//! for [`exec::SUBCOMMAND`], before it has a second thread.

mod addresses;
mod destroy;
mod error;
pub mod exec;
mod growth;
pub mod images;
mod network;
mod node;
mod ownership;
mod paths;
pub mod pulls;
mod record;
mod resolve;
mod rights;
mod runner;
mod sandbox;
pub mod shim;
mod storage;
mod watch;

pub use addresses::Error as AddressError;
pub use destroy::destroy_all;
pub use error::Error;
pub use exec::{exec_in_pod, logs};
pub use network::{Error as NetworkError, PodNetwork};
pub use node::Capacity;
pub use paths::{InvalidUid, PodPaths, PodUid};
pub use record::process_of;
pub use resolve::{Claim, Dns, Inputs, NodeFacts};
pub use rights::program;
pub use runner::{RunnerConfig, run};
pub use sandbox::{Host, PodSandbox, StartFailure};
pub use storage::Storage;
