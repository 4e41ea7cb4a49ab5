use std::io;
use std::path::PathBuf;

pub(crate) use machinery::error::chain;

/// Why virt-handler cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to use virt-handler's listening socket")]
    Listen(#[source] io::Error),
    #[error("failed to make directory {path}")]
    Directory {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error("failed to serve device plugins")]
    DevicePlugins(#[from] device_plugin::Error),
    #[error("failed to probe KVM")]
    Probe(#[source] tokio::task::JoinError),
}
