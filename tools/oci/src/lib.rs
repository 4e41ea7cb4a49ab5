//! OCI images without a container engine: written from files, byte for byte the same for the same files, and read back.
//!
//! ```text
//!   directory, entries ──► Tree ──► Layer (a blob on disk) ──► Image ──► archive or layout ──► unpack
//! ```
//!
//! An archive is an image layout in one tar, as `ctr images import` takes it. Owners are numbers, dates are the epoch,
//! entries are sorted and file capabilities are kept.

mod blob;
mod capability;
mod error;
mod image;
mod layer;
mod read;
mod tree;

pub use capability::Capability;
pub use error::Error;
pub use image::{Image, Run};
pub use layer::{Compression, Layer};
pub use read::{Unpacked, is_image, unpack, unpack_within};
pub use tree::{Content, Entry, Kind, Tree};
