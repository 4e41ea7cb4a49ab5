//! Somebody is killed, or a node is cut off, while a VM starts and while it stops.

mod components;
mod points;
mod supervisor;

pub(crate) use components::trials as struck;
pub(crate) use supervisor::trials;
