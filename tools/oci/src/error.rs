use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("{0:?} is not the name of an image: use one such as registry.example/disk:1, with a tag")]
    Name(String),
    #[error("{path:?} cannot be part of an image: {reason}")]
    Entry { path: PathBuf, reason: &'static str },
    #[error("{path} is not an image that can be read: {reason}; make it again")]
    Image { path: PathBuf, reason: String },
}

impl Error {
    pub(crate) fn io<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
        move |err| Error::Io { doing, path: path.to_owned(), err }
    }

    pub(crate) fn image(path: &Path, reason: impl Into<String>) -> Error {
        Error::Image { path: path.to_owned(), reason: reason.into() }
    }
}
