//! Kubernetes' machinery against what Kubernetes itself answers.

mod duration;
mod int_or_string;
mod names;
mod patch;
mod quantity;
mod recorded;
mod selector;
mod status;
