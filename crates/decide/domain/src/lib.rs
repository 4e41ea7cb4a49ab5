//! From a VirtualMachineInstance and facts about its host to libvirt's domain XML, and back from the XML of a live domain
//! to what the node reports of it.
//!
//! Nothing is opened here. What the launcher found out (is KVM usable, which format has an image, which tap belongs to
//! which interface) comes in as [`HostFacts`]; the same call therefore serves the launcher, the command line and the tests.
//! What this build cannot honour is refused with the field's path.

mod convert;
mod error;
mod facts;
mod observed;
mod paths;
pub mod xml;

pub use convert::{convert, guest_uuid};
pub use error::Error;
pub use facts::{BackingImage, DiskFacts, HostFacts, ImageFormat, InterfaceFacts};
pub use observed::{Observed, ObservedDisk, ObservedInterface};
pub use paths::Paths;
pub use xml::Domain;
