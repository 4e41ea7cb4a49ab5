//! A real Kubernetes cluster of several nodes on one machine, for tests and for people (`make kube-up`).
//!
//! ```text
//! the machine          owner (a test, or `make kube-up`): holds the namespaces, forwards 127.0.0.1:PORT
//! namespace `hub`      etcd, kube-apiserver 10.77.0.1:PORT, controller manager, scheduler; bridges `nodes` and `second`
//! node nK              eth0 10.77.0.1K on `nodes`; Pods 10.78.K.0/24 on cni0; br1 on `second`, for further networks
//!                      its own processes, mounts, host name, control groups and disk: containerd, kubelet, kube-proxy
//! Services             10.97.0.0/16; the API server is 10.97.0.1, DNS 10.97.0.10
//! ```
//!
//! Nothing is left behind, however the owner ends. Namespaces have no names: they, and the mounts and links in them, go with
//! the last process, and all processes go with the owner. Control groups and the directory stay; a small process outlives the
//! owner to remove them (`scripts/sweep.sh`). Addresses are the same in every cluster, since clusters never meet.

mod address;
mod cluster;
mod control_plane;
pub mod document;
mod forward;
mod home;
pub mod images;
mod network;
mod node;
mod options;
mod pki;
mod run;
mod store;

pub use cluster::Cluster;
pub use options::{Options, programs_or_skip};
pub use peers::NodePrograms;
