//! Device plugins of a node: which resources it offers to launcher Pods, whether their devices work, and what a plugin
//! does next. The edge crate `device-plugin` looks at the node, asks here, and acts.
//!
//! ```text
//!   KubeVirt configuration ─► plugins ─► changes ─► start and stop plugins
//!   device nodes ─► judge ─► Health ┐
//!   sockets, kubelet's watch ───────┴► decide ─► report, serve, register
//!   the kubelet's Allocate ─► Plugin::allocate ─► device nodes for a container
//! ```
//!
//! Also whether a node has the launchers' seccomp profile, which is a file instead of a device.

mod allocate;
mod catalogue;
mod health;
mod seccomp;
mod step;

pub use allocate::Refused;
pub use catalogue::{Change, Check, MAX_DEVICES, Node, Plugin, changes, initialized, plugins};
pub use catalogue::{MOST_DEVICES, SOCKET_NAME_MAX};
pub use health::{Health, Identity, Judgement, Seen, Tried, judge};
pub use seccomp::has_seccomp_profile;
pub use step::{Action, Failed, Registered, Socket, Watch, World, decide};
