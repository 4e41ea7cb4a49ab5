//! A real control plane for tests: etcd and kube-apiserver on loopback, in a temporary directory, ready in seconds.
//!
//! Nothing is left behind. Both processes end with the [`ControlPlane`], and with the process that started it, however
//! that ends. The directory goes with the `ControlPlane` too; one whose test was killed is removed by the next test that
//! starts a control plane.

mod control_plane;
mod keeper;
mod pki;
mod workdir;

pub use control_plane::ControlPlane;
