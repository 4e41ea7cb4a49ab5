//! Converts a VirtualMachineInstance and facts about its host to libvirt's domain XML, and parses the XML of a live
//! domain for what virt-handler reports about it.
//!
//! There is no I/O here. What the launcher has determined (whether KVM is usable, the format of an image, the tap of an
//! interface) is passed in as [`HostFacts`], so the launcher, the command line and the tests all use the same function.
//! Fields that this build does not support are rejected with their path.

pub mod claims;
mod convert;
mod error;
mod facts;
mod migrate;
mod observed;
mod paths;
mod plug;
pub mod xml;

pub use convert::{convert, disk, guest_uuid};
pub use error::Error;
pub use facts::{BackingImage, DiskFacts, HostFacts, ImageFormat, InterfaceFacts, Location, Storage};
pub use migrate::{Readdress, relocated, with_recovery_monitor};
pub use observed::{Observed, ObservedDisk, ObservedInterface};
pub use paths::Paths;
pub use plug::{DiskChange, disk_changes};
pub use xml::Domain;
