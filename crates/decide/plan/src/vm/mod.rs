//! The VirtualMachine controller: when an instance should exist, made from which template, and what became of it.

mod action;
mod backoff;
mod decide;
mod printable;
mod revision;
mod start;
mod status;
mod strategy;
mod world;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use decide::decide;
pub use world::World;
