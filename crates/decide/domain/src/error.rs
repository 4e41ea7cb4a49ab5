//! Errors of the conversion.

/// Retrying helps with none of these, except for [`Error::MissingFact`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The field requests something that this build does not support.
    #[error("{field}: {detail}")]
    Unsupported { field: String, detail: String },
    /// The field's value is invalid.
    #[error("{field}: {detail}")]
    Invalid { field: String, detail: String },
    #[error(
        "KVM is not usable on this node and emulation is not allowed: \
         set spec.configuration.developerConfiguration.useEmulation of the KubeVirt object, or use a node with KVM"
    )]
    KvmMissing,
    /// The launcher has not determined it, or it does not exist yet.
    #[error("{what} of {of} is not known")]
    MissingFact { what: &'static str, of: String },
    #[error("the domain cannot be written as XML: {0}")]
    Xml(String),
}

impl Error {
    pub(crate) fn unsupported(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Error::Unsupported { field: field.into(), detail: detail.into() }
    }

    pub(crate) fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Error::Invalid { field: field.into(), detail: detail.into() }
    }
}
