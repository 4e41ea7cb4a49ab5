use std::fmt;
use std::io;

/// An error with the affected link, route, setting or script.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to open a netlink socket")]
    Socket(#[source] io::Error),
    #[error("failed to {doing} {object}")]
    Request {
        doing: &'static str,
        object: String,
        #[source]
        err: KernelError,
    },
    #[error("there is no link {name}")]
    NoSuchLink { name: String },
    #[error("link {name} exists, but it is {found} and not {wanted}")]
    Mismatch { name: String, found: String, wanted: String },
    #[error("failed to create tap device {name}")]
    Tap {
        name: String,
        #[source]
        err: io::Error,
    },
    #[error("{key:?} is not a setting below /proc/sys/net")]
    BadSysctl { key: String },
    #[error("failed to set {key} to {value}")]
    Sysctl {
        key: String,
        value: String,
        #[source]
        err: io::Error,
    },
    #[error("failed to run nft; is it installed and in PATH?")]
    NftStart(#[source] io::Error),
    #[error("nft refused the rules: {message}")]
    Nft { message: String },
}

/// The kernel's error for a netlink request, or a failure of the socket.
#[derive(Debug)]
pub struct KernelError {
    pub io: io::Error,
    /// The kernel's message (extended ACK), if there is one.
    pub message: Option<String>,
}

impl KernelError {
    pub(crate) fn is(&self, errno: rustix::io::Errno) -> bool {
        self.io.raw_os_error() == Some(errno.raw_os_error())
    }
}

impl From<io::Error> for KernelError {
    fn from(io: io::Error) -> Self {
        KernelError { io, message: None }
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.message {
            Some(message) => write!(f, "{}: {message}", self.io),
            None => self.io.fmt(f),
        }
    }
}

impl std::error::Error for KernelError {}

/// All errors from applying a plan; never empty.
#[derive(Debug)]
pub struct Errors(pub Vec<Error>);

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            // The list ends the error chain, so each cause is written out here.
            f.write_str(&machinery::error::chain(error))?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
