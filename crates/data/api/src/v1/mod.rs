//! Version `v1` of the group `kubevirt.io`.
//!
//! The types mirror the wire format field by field, so an object that is read and written back loses nothing. Like Go's
//! decoder they read a missing field as its zero value: required fields are enforced by the schema ([`crate::schema`]),
//! not by a controller that must keep working.

mod access;
mod clock;
mod condition;
mod configuration;
mod cpu;
mod data_volume;
mod devices;
mod disks;
mod domain;
mod enums;
mod features;
mod firmware;
mod kinds;
mod kubevirt;
mod migration;
mod network;
mod preset;
mod probe;
mod replica_set;
mod status;
mod vm;
mod vmi;
mod vmi_spec;
mod vmi_status;
mod volumes;

pub use access::*;
pub use clock::*;
pub use condition::*;
pub use configuration::*;
pub use cpu::*;
pub use data_volume::*;
pub use devices::*;
pub use disks::*;
pub use domain::*;
pub use enums::*;
pub use features::*;
pub use firmware::*;
pub use kinds::*;
pub use kubevirt::*;
pub use migration::*;
pub use network::*;
pub use preset::*;
pub use probe::*;
pub use replica_set::*;
pub use status::*;
pub use vm::*;
pub use vmi::*;
pub use vmi_spec::*;
pub use vmi_status::*;
pub use volumes::*;

use serde::{Deserialize, Serialize};

/// The group all kinds of this module belong to.
pub const GROUP: &str = "kubevirt.io";
/// The version all kinds of this module are served in.
pub const VERSION: &str = "v1";
/// Group and version as `apiVersion` spells them.
pub const API_VERSION: &str = "kubevirt.io/v1";

/// A member that only says "this one": its presence is all it carries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}
