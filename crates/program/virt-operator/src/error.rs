//! Why virt-operator stops, or a pass fails.

use informer::{Classify, ErrorClass};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An effect could not be carried out.
    #[error("failed to {doing}")]
    Api {
        doing: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to create the certificate {name}")]
    Certificate {
        name: String,
        #[source]
        source: rcgen::Error,
    },
    #[error("there is no CA to sign with yet")]
    NoAuthority,
    #[error("no API is known for {0}")]
    UnknownKind(String),
    #[error("failed to set up TLS")]
    Tls(#[source] rustls::Error),
    #[error("lost the lease: not renewed in time, or taken over by another replica")]
    LeaseLost,
}

impl Error {
    pub(crate) fn api(doing: impl Into<String>, source: kube::Error) -> Self {
        Self::Api { doing: doing.into(), source: Box::new(source) }
    }

    /// The error with its causes, on one line, for conditions.
    pub(crate) fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        text
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Api { source, .. } => match &**source {
                kube::Error::Api(status) if status.code == 409 => ErrorClass::Conflict,
                _ => ErrorClass::Transient,
            },
            _ => ErrorClass::Transient,
        }
    }
}
