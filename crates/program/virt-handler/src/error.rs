use std::io;
use std::path::PathBuf;

/// Why the node agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to use the listening socket of the node agent")]
    Listen(#[source] io::Error),
    #[error("failed to make directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error("failed to set up TLS for the node agent")]
    Tls(#[source] role_tls::Error),
    #[error("failed to find out whether KVM works")]
    Probe(#[source] tokio::task::JoinError),
}

/// An error with all its causes, for people.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(err) = cause {
        text.push_str(": ");
        text.push_str(&err.to_string());
        cause = err.source();
    }
    text
}
