use std::io;
use std::path::{Path, PathBuf};

use volumeplan::{Code, Refusal};

/// Why the engine has not done what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request, or the state of what it asks for.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("the pool {path} belongs to {found}, not to {expected}; {remedy}")]
    OtherPool { path: PathBuf, found: String, expected: String, remedy: &'static str },
    #[error("the pool {path} was made by a newer version (format {found}); update this driver")]
    Newer { path: PathBuf, found: u32 },
    #[error("the record {path} names another object; restore it from a backup, or remove its directory")]
    WrongRecord { path: PathBuf },
    #[error("the tree at {path} cannot be copied: {why}")]
    Tree { path: PathBuf, why: &'static str },
    #[error(
        "{path} was written to while it was copied, and the pool's file system cannot copy it at one instant; freeze the \
         guest (KubeVirt does with its guest agent), stop it, or put the pool on a file system with reflinks (XFS, btrfs)"
    )]
    Changed { path: PathBuf },
}

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a request is answered as it is: CSI's codes, and `Internal` for what is nobody's mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    Refused(Code),
    Internal,
}

impl Error {
    pub fn class(&self) -> Class {
        let errno = match self {
            Error::Refused(refusal) => return Class::Refused(refusal.code),
            Error::Changed { .. } => return Class::Refused(Code::FailedPrecondition),
            Error::Host(error) => error.errno(),
            Error::Io { err, .. } => err.raw_os_error(),
            Error::OtherPool { .. } | Error::Newer { .. } | Error::WrongRecord { .. } | Error::Tree { .. } => None,
        };
        match errno {
            Some(libc::ENOSPC | libc::EDQUOT) => Class::Refused(Code::ResourceExhausted),
            Some(libc::EFBIG) => Class::Refused(Code::OutOfRange),
            _ => Class::Internal,
        }
    }

    /// Another request for the same object is being carried out.
    pub(crate) fn busy(what: &'static str, id: &str) -> Error {
        Refusal::new(Code::Aborted, format!("another request for {what} {id} is in progress; try again later")).into()
    }
}

/// Adds the operation and its object to an error of the kernel.
pub(crate) trait Context<T> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn doing(self, doing: &'static str, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|err| Error::Io { doing, path: path.as_ref().to_owned(), err: err.into() })
    }
}
