//! What a program says to a person at a terminal and hears from one: output, progress, log lines, signals.

pub mod log;
pub mod output;
mod progress;
pub mod signals;

pub use progress::Progress;
