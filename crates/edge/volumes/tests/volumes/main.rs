//! The volume engine on real files, mounts and loop devices, killed at every step, and its CSI face.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

mod contents;
mod crashes;
mod driver;
mod held;
mod home;
mod published;
mod wire;
