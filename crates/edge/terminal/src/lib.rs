//! Terminal interaction of a program: output, progress, logs and signals.

pub mod log;
pub mod output;
mod progress;
pub mod signals;

pub use progress::Progress;
