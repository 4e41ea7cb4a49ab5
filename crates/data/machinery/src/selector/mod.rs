//! Selectors over labels and fields.

mod fields;
mod labels;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{Labels, Selector};

/// Why a selector cannot be read, in the words of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
