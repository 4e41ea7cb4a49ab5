//! Reads and changes a network namespace: links, addresses, routes (rtnetlink), tap devices (ioctl), sysctls
//! (`/proc/sys/net`) and nftables (the `nft` program).
//!
//! Everything here is synchronous and works in the network namespace of the **calling thread**; a caller that wants
//! another one enters it on a thread of its own first. rtnetlink's message builders are used, its asynchronous
//! connection is not: a blocking socket needs no runtime, so the functions can be called from any thread, a runtime's
//! worker or a process without a runtime alike, and it is plain in which namespace the socket was made.
//!
//! Every function can be repeated: what is already as asked is left alone.

pub mod blocking;

mod apply;
mod error;
mod nft;
mod socket;
mod sysctl;
mod tap;

pub use apply::{apply, observe};
pub use error::{Error, Errors, KernelError};
pub use nft::nft_apply;
pub use sysctl::sysctl;
