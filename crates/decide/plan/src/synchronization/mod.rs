//! Carries the two sides of a migration between instances over to each other.
//!
//! ```text
//!   sender's instance                         receiver's instance
//!   sourceState, method, transport  ────────► sourceState …
//!   startTimestamp, mode            ────────► startTimestamp, mode
//!   failed, abortStatus             ────────► failed, abortStatus      (the guest is certain to have stayed)
//!   targetState, address, ports     ◄──────── targetState …            (from the receiver's hand-off on)
//!   endTimestamp, completed, failed ◄──────── endTimestamp …           (the guest runs there, or certainly does not)
//! ```
//!
//! Each migration fetches what the other side has told and writes it to its own instance, so every pass writes in one
//! namespace only. The two find each other by the `migrationID`, and after that by their UIDs.
//!
//! # Guarantees
//!
//! - Nothing is written for a migration that has ended, to an instance that belongs to another one, or after `completed`.
//! - Before an instance is written to, both migrations are looked at live: one that was given up meanwhile must not begin.
//! - `failed` never follows `endTimestamp`: a guest that has arrived stays where it is.
//! - If one of the migrations is deleted, fails or disappears, the other one is deleted, which gives it up.
//! - A receiver whose sender cannot tell any more is told so ([`MIGRATION_SOURCE_GONE`]); its node then says what
//!   became of the guest, as it does when the source of a local migration dies.
//! - Every wait and every mistake shows in the condition `DecentralizedLiveMigrationFailure`.
//!
//! [`MIGRATION_SOURCE_GONE`]: api::annotations::MIGRATION_SOURCE_GONE

mod action;
mod copy;
mod decide;
mod world;

#[cfg(test)]
mod tests;

pub use action::{Action, Look};
pub use decide::decide;
pub use world::{Peer, World, exchange};
