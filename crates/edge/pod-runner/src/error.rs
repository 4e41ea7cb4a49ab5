//! Errors of the runner.

use std::io;
use std::path::PathBuf;

pub(crate) use machinery::error::chain;

use crate::{addresses, network};

/// Why a step of running a Pod failed. All of these are transient; the step is retried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error(transparent)]
    Volumes(#[from] volumes::Error),
    #[error(transparent)]
    Address(#[from] addresses::Error),
    #[error(transparent)]
    Network(#[from] network::Error),
    #[error("failed to {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("the shim of Pod {uid} did not start: {log}")]
    NoShim { uid: String, log: String },
    #[error("processes of Pod {uid} cannot be killed; they hang in the kernel")]
    Unkillable { uid: String },
    #[error("Pod {uid} still has a shim")]
    ShimAlive { uid: String },
    #[error("failed to {doing}")]
    Api {
        doing: String,
        #[source]
        err: kube::Error,
    },
    #[error(transparent)]
    InvalidUid(#[from] crate::paths::InvalidUid),
    #[error("Pod {uid} has no container {container:?} that runs")]
    NotRunning { uid: String, container: String },
    #[error("a task of the Pod runner failed")]
    Task(#[from] tokio::task::JoinError),
}

impl Error {
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |err| Error::Io { doing, path, err }
    }
}

impl informer::Classify for Error {
    fn class(&self) -> informer::ErrorClass {
        match self {
            Error::Api { err: kube::Error::Api(status), .. } if status.code == 409 => informer::ErrorClass::Conflict,
            _ => informer::ErrorClass::Transient,
        }
    }
}
