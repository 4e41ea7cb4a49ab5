//! The points at which a crash is tested.

use std::sync::Arc;

/// Told before every change of what outlives the process: files, renames, mounts, loop devices. The engine's tests kill
/// the process at each of them in turn; what an engine finds when it opens the pool must then make sense.
pub trait Steps: Send + Sync {
    fn before(&self, step: &'static str);
}

/// What runs outside of tests.
#[derive(Clone, Copy, Debug)]
pub struct Unwatched;

impl Steps for Unwatched {
    fn before(&self, _: &'static str) {}
}

/// Shared by the parts of an engine.
pub(crate) type Watched = Arc<dyn Steps>;
