//! Label and field selectors.

mod fields;
mod labels;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{Labels, Selector};

/// Why a selector is invalid, with Kubernetes' messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
