use informer::{Classify, ErrorClass};

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {doing} {object}")]
    Api {
        doing: &'static str,
        object: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("the volume engine failed to {doing} {object}")]
    Engine {
        doing: &'static str,
        object: String,
        #[source]
        source: Box<volumes::Error>,
    },
    /// An object with a derived name is somebody else's.
    #[error("{object} exists already and belongs to something else; remove it")]
    Taken { object: String },
    #[error("a request to the volume engine panicked")]
    Panicked,
}

impl Error {
    pub(crate) fn api(doing: &'static str, object: impl std::fmt::Display, source: kube::Error) -> Self {
        Self::Api { doing, object: object.to_string(), source: Box::new(source) }
    }

    pub(crate) fn engine(doing: &'static str, object: impl std::fmt::Display, source: volumes::Error) -> Self {
        Self::Engine { doing, object: object.to_string(), source: Box::new(source) }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            // It has changed or gone since we saw it.
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) if matches!(status.code, 404 | 409) => ErrorClass::Conflict,
                _ => ErrorClass::Transient,
            },
            Self::Engine { .. } | Self::Taken { .. } | Self::Panicked => ErrorClass::Transient,
        }
    }
}
