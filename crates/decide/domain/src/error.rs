//! Why a VMI cannot become a domain.

/// None of these goes away by trying again, except [`Error::MissingFact`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The field asks for something this build does not do.
    #[error("{field}: {detail}")]
    Unsupported { field: String, detail: String },
    /// The field's value makes no sense.
    #[error("{field}: {detail}")]
    Invalid { field: String, detail: String },
    #[error(
        "KVM is not usable on this node and emulation is not allowed: \
         set spec.configuration.developerConfiguration.useEmulation of the KubeVirt object, or use a node with KVM"
    )]
    KvmMissing,
    /// The launcher has not looked, or what it looked for is not there yet.
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
