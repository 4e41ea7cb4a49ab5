//! What a network namespace has to look like, decided without touching one.
//!
//! The crate holds the data (links, addresses, routes, nftables rules, sysctls) and the pure functions that compose it
//! from a VMI and from what was seen in the Pod. The `netlink` crate observes and applies.

pub mod nft;

mod link_name;
mod mac;
mod observed;
mod plan;

pub use link_name::{InvalidLinkName, LinkName};
pub use mac::{InvalidMacAddr, MacAddr};
pub use observed::{Observed, ObservedLink};
pub use plan::{Link, LinkKind, NetPlan, Route, Sysctl, TapOptions};
