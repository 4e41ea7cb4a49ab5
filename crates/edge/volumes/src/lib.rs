//! A volume engine on local files: volumes, snapshots, clones, growth, and volumes at paths of Pods.
//!
//! [`Engine`] is synchronous and knows no gRPC: the embedded cluster calls it in process. [`csi`] serves it to Kubernetes.
//! What is decided is in `volumeplan`; here is what is done.
//!
//! ```text
//!   csi ─► Engine ─► volumeplan: exists, make, refuse
//!            ├── pool      records and content; a rename decides
//!            ├── copy      FICLONE, copy_file_range between holes, plain
//!            ├── loops     block devices for Pods
//!            ├── hold      content for imports, which are no Pods
//!            └── target    mounts below the kubelet's directory
//! ```
//!
//! A process may be killed at any point: the next one that opens the pool completes or undoes what was begun, and a
//! request that is repeated gets the answer of the first.

mod copy;
pub mod csi;
mod engine;
mod error;
mod hold;
mod lock;
mod loops;
mod node;
mod pool;
mod recovery;
mod steps;
mod target;
mod tree;

pub use engine::{Config, Engine, Grown, Listed, Usage};
pub use error::{Class, Error, Result};
pub use hold::Held;
pub use steps::{Steps, Unwatched};
