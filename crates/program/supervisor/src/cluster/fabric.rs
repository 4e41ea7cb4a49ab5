//! The network between the nodes: a bridge in a separate netns, one veth pair per node, and one bridge per node for its
//! Pods. A second bridge and a second veth pair per node are for migrations, if the cluster configuration uses them.
//!
//! The host's own network, firewall and routes are not touched. Every step is idempotent.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use anyhow::{Context, Result};
use ipnet::Ipv4Net;
use netlink::blocking::Links;
use netplan::Route;

use super::layout::Layout;
use super::record::{FABRIC_ADDRESS, NodeRecord, PREFIX};

/// The netns that holds the bridge between the nodes.
pub const FABRIC: &str = "fabric";
const FABRIC_BRIDGE: &str = "fabric0";
/// The bridge of a node's Pods, in the node's netns.
pub const POD_BRIDGE: &str = "cni0";
const NODE_LINK: &str = "eth0";
const MIGRATION_BRIDGE: &str = "migration0";

/// Creates what is missing and returns the fabric's netns.
pub fn ensure(layout: &Layout, nodes: &[NodeRecord]) -> Result<OwnedFd> {
    let fabric = namespace(layout, FABRIC)?;
    inside(&fabric, FABRIC, fabric_bridge)?;
    for node in nodes {
        let netns = namespace(layout, &node.name)?;
        inside(&fabric, FABRIC, || node_links(&node.name, netns.as_fd()))?;
        inside(&netns, &node.name, || node_side(node, nodes))?;
    }
    inside(&fabric, FABRIC, || routes(nodes, None))?;
    Ok(fabric)
}

/// A netns of the cluster, created on first use. A node's process is started in its own netns.
pub fn namespace(layout: &Layout, name: &str) -> Result<OwnedFd> {
    let path = layout.netns(name);
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    hostfs::ns::create_netns(&path).with_context(|| format!("cannot make the network namespace of {name}"))
}

fn inside(netns: &OwnedFd, name: &str, work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    hostfs::ns::run_in_netns(netns, work)
        .with_context(|| format!("cannot enter the network namespace of {name}"))?
        .with_context(|| format!("cannot set up the network of {name}"))
}

fn fabric_bridge() -> Result<()> {
    let mut links = Links::new()?;
    links.set_up("lo")?;
    links.create_bridge(FABRIC_BRIDGE)?;
    links.add_address(FABRIC_BRIDGE, Ipv4Net::new(FABRIC_ADDRESS, PREFIX)?.into())?;
    links.set_up(FABRIC_BRIDGE)?;
    links.create_bridge(MIGRATION_BRIDGE)?;
    links.set_up(MIGRATION_BRIDGE)?;
    Ok(())
}

/// Veth pairs: the ends on the fabric's bridges are named after the node, the others are its `eth0` and `migration0`.
fn node_links(name: &str, netns: BorrowedFd<'_>) -> Result<()> {
    let mut links = Links::new()?;
    for (outside, inside, bridge) in [
        (name.to_owned(), NODE_LINK, FABRIC_BRIDGE),
        (format!("{name}-migration"), virt_handler::MIGRATION_LINK, MIGRATION_BRIDGE),
    ] {
        links.create_veth(&outside, inside, Some(netns))?;
        links.set_master(&outside, Some(bridge))?;
        links.set_up(&outside)?;
    }
    Ok(())
}

fn node_side(node: &NodeRecord, all: &[NodeRecord]) -> Result<()> {
    let mut links = Links::new()?;
    links.set_up("lo")?;
    links.add_address(NODE_LINK, Ipv4Net::new(node.address(), PREFIX)?.into())?;
    links.set_up(NODE_LINK)?;
    links.add_address(virt_handler::MIGRATION_LINK, Ipv4Net::new(node.migration_address(), PREFIX)?.into())?;
    links.set_up(virt_handler::MIGRATION_LINK)?;
    links.create_bridge(POD_BRIDGE)?;
    links.add_address(POD_BRIDGE, Ipv4Net::new(node.pod_gateway(), PREFIX)?.into())?;
    links.set_up(POD_BRIDGE)?;
    netlink::sysctl("net/ipv4/ip_forward", "1")?;
    routes(all, Some(node))
}

/// Routes to the Pods of every node but `own`.
fn routes(nodes: &[NodeRecord], own: Option<&NodeRecord>) -> Result<()> {
    let mut links = Links::new()?;
    for node in nodes.iter().filter(|node| Some(node.index) != own.map(|own| own.index)) {
        let destination = Ipv4Net::new(node.pod_network(), PREFIX)?.into();
        links.add_route(&Route { destination, gateway: Some(node.address().into()), link: None })?;
    }
    Ok(())
}

/// Removes the namespaces, and with them their links.
pub fn remove(layout: &Layout, nodes: &[NodeRecord]) -> Result<()> {
    for name in nodes.iter().map(|node| node.name.as_str()).chain([FABRIC]) {
        let path = layout.netns(name);
        hostfs::ns::remove_netns(&path).with_context(|| format!("cannot remove the namespace {}", path.display()))?;
    }
    Ok(())
}
