//! Label and field selectors.

mod fields;
mod labels;
mod nodes;

pub use fields::{FieldSelector, FieldTerm};
pub use labels::{Labels, Selector};
pub use nodes::selects_node;

/// Why a selector is invalid, with Kubernetes' messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(String);
