//! Computes the desired state of a network namespace, without touching one.
//!
//! The crate contains the data (links, addresses, routes, nftables rules, sysctls) and the pure functions that derive
//! it from a VMI and from the observed state of the Pod. The `netlink` crate observes and applies.
//!
//! A guest is connected to the Pod's networks in two steps, by two programs that must agree:
//!
//! ```text
//! virt-handler, privileged, in the Pod's namespace     launcher, unprivileged
//!   observe ─► phase1 ─► NetPlan ─► apply                domain_interfaces ─► tap, MAC and MTU in the domain
//!           └► discover ─► addresses for the status      dhcp::config      ─► what the guest is told
//! ```
//!
//! The Pod network is masqueraded; a secondary network of Multus is bridged.
//!
//! ```text
//!            Pod                              guest
//!  eth0 ── NAT ── k6t-eth0 ══ tap0 ══════════ 10.0.2.2
//!  Pod IP         10.0.2.1
//!
//!  HASH-nic ═════ k6t-HASH ══ tapHASH ═══════ the MAC and the addresses that the Pod was given
//!  podHASH        (has the same MAC and addresses, and no ports, for whoever looks for them in the Pod)
//! ```

pub mod dhcp;
pub mod names;
pub mod nft;

mod binding;
mod bridge;
mod cidr;
mod discovery;
mod error;
mod link_name;
mod mac;
mod masquerade;
mod observed;
mod phase1;
mod plan;

pub use binding::{DomainInterface, PodLink, PodNet, domain_interfaces, pod_links};
pub use discovery::{PodInterface, discover};
pub use error::PlanError;
pub use link_name::{InvalidLinkName, LinkName};
pub use mac::{InvalidMacAddr, MacAddr};
pub use observed::{Observed, ObservedLink, ObservedRoute};
pub use phase1::phase1;
pub use plan::{Link, LinkKind, NetPlan, Rename, Route, Sysctl, TapOptions};

/// User and group that QEMU runs as; they own the files that QEMU opens.
pub const QEMU_UID: u32 = launcher_contract::USER;
