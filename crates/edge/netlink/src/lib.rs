//! Reads and changes a netns: links, addresses, routes (rtnetlink), tap devices (ioctl), sysctls (`/proc/sys/net`) and
//! nftables (the `nft` program).
//!
//! Everything here is synchronous and works in the netns of the **calling thread**; to work in another one, enter it on
//! a dedicated thread first. rtnetlink's message builders are used, but not its asynchronous connection: a blocking
//! socket needs no runtime, so the functions can be called from any thread, with or without a runtime, and it is clear
//! in which netns the socket was created.
//!
//! Every function is idempotent.

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
