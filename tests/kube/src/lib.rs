//! A real control plane for tests: etcd and kube-apiserver on loopback, in a temporary directory, ready in seconds; on
//! demand kube-scheduler, kube-controller-manager and fake nodes.
//!
//! Nothing is left behind. All processes end with the [`ControlPlane`], and with the process that started it, however
//! that ends. The directory goes with the `ControlPlane` too; one whose test was killed is removed by the next test that
//! starts a control plane.

pub mod audit;
mod control_plane;
mod fake_nodes;
pub mod installed;
mod keeper;
mod pki;
pub mod rights;
mod workdir;

pub use control_plane::ControlPlane;
pub use fake_nodes::{FakeNodes, Fate, NodeShape};
pub use keeper::Process;
pub use pki::{CONTROLLER, Pair, Pki};
