//! Synchronizes the two sides of a decentralized migration.
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
//! Each migration reads the other side's state and writes it to its own VMI, so every pass writes in one namespace
//! only. The two sides find each other by the `migrationID`, and after that by their UIDs.
//!
//! # Guarantees
//!
//! - Nothing is written for a finished migration, to a VMI that belongs to another one, or after `completed`. One
//!   exception: a sender that failed just as it was handed off still reads what became of the guest.
//! - A sender that is being deleted is not handed off any more.
//! - Before a VMI is written, both migrations are read live: one that was aborted meanwhile must not start.
//! - `failed` never follows `endTimestamp`: a guest that has arrived stays where it is.
//! - If one of the migrations is deleted, fails or disappears, the other one is deleted, which aborts it.
//! - If the sender can no longer report, the receiver is marked accordingly ([`MIGRATION_SOURCE_GONE`]); its
//!   virt-handler then reports the fate of the guest, as it does when the source of a local migration dies.
//! - Every wait and every mistake is reported by the condition `DecentralizedLiveMigrationFailure`.
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
