use informer::{Classify, ErrorClass};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {doing}")]
    Api {
        doing: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("failed to set up TLS for uploads")]
    Tls(#[source] rustls::Error),
    #[error("failed to read the certificate for uploads")]
    Certificate(#[source] rustls_pki_types::pem::Error),
    #[error("failed to listen for uploads")]
    Listen(#[source] std::io::Error),
    #[error("failed to use the key of upload tokens at {path}")]
    Key {
        path: std::path::PathBuf,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    #[error("{0} ended unexpectedly")]
    Ended(&'static str),
    #[error("a part of the importer panicked")]
    Panicked(#[source] tokio::task::JoinError),
    #[error("failed to clear the directory for images that are being converted")]
    Scratch(#[source] std::io::Error),
}

impl Error {
    pub(crate) fn api(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Self {
        let doing = doing.into();
        |source| Self::Api { doing, source: Box::new(source) }
    }

    fn status(&self) -> Option<&kube::core::Status> {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        }
    }

    /// The server's words, if it is the namespace's quota that forbids.
    pub(crate) fn over_quota(&self) -> Option<&str> {
        self.status()
            .filter(|status| status.code == 403 && status.message.contains("exceeded quota"))
            .map(|status| &*status.message)
    }

    /// The server's words, if another attempt would be refused the same way.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.status().filter(|status| matches!(status.code, 400 | 403 | 422)).map(|status| &*status.message)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.status().is_some_and(|status| status.code == 404)
    }

    pub(crate) fn exists(&self) -> bool {
        self.status().is_some_and(kube::core::Status::is_already_exists)
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self.status().map(|status| status.code) {
            Some(404 | 409) => ErrorClass::Conflict,
            _ => ErrorClass::Transient,
        }
    }
}
