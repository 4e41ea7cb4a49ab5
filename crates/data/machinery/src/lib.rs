//! What every Kubernetes-shaped program needs and no VM needs in particular: quantities, durations, ages, selectors,
//! field paths, patches, status answers, watch events, names, metadata, rights and causes of errors.
//!
//! All of it is data and functions over data.

pub mod age;
pub mod duration;
pub mod error;
pub mod field;
pub mod int_or_string;
pub mod meta;
pub mod names;
pub mod patch;
pub mod quantity;
pub mod rights;
pub mod selector;
pub mod status;
pub mod strategic;
pub mod watch;
