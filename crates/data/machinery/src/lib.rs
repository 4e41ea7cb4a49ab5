//! What every Kubernetes-shaped program needs and no VM needs in particular: quantities, selectors, field paths,
//! patches, status answers, watch events, names and metadata.
//!
//! All of it is data and functions over data.

pub mod field;
pub mod meta;
pub mod names;
pub mod patch;
pub mod quantity;
pub mod selector;
pub mod status;
pub mod strategic;
pub mod watch;
