//! Unix sockets between the kubelet and its plugins: made and found beneath a directory, open to root and ourselves
//! alone, at paths that the kubelet can connect to.

mod directory;
mod incoming;
mod peer;

use std::io;
use std::path::PathBuf;

pub use directory::{Directory, Holds, Made};
pub use incoming::connections;
pub use peer::check;

/// The kernel's limit for the path in a socket address, without the final zero. We listen at any depth; who connects by
/// path cannot.
pub const PATH_MAX: usize = 107;

/// Why a socket cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error("failed to {doing} {path}")]
    Socket {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}
