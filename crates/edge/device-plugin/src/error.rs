use std::io;
use std::path::PathBuf;

/// Why a device plugin cannot be served or registered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the kubelet cannot reach device plugins in {dir}: the directory's path may have {room} bytes, because a socket's path is limited to 107; give the kubelet a shorter --root-dir"
    )]
    TooLong { dir: PathBuf, room: usize },
    #[error(transparent)]
    Socket(#[from] kubelet_sockets::Error),
    #[error("failed to listen on {path}")]
    Listen {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("failed to connect to the kubelet at {path}; is it running?")]
    Connect {
        path: PathBuf,
        #[source]
        err: tonic::transport::Error,
    },
    #[error("the kubelet at {path} refused to register {resource}: {}", .status.message())]
    Refused { path: PathBuf, resource: String, status: Box<tonic::Status> },
    #[error("the kubelet at {path} did not respond to the registration of {resource} within {seconds} s")]
    NoAnswer { path: PathBuf, resource: String, seconds: u64 },
}
