use netplan::{Link, LinkKind, NetPlan, Observed, Rename, Sysctl};

use crate::blocking::Links;
use crate::{Error, Errors, nft_apply, sysctl};

/// Observes everything that a plan depends on, in the calling thread's netns.
pub fn observe() -> Result<Observed, Error> {
    let mut kernel = Links::new()?;
    Ok(Observed { links: kernel.list()?, routes: kernel.routes()? })
}

/// Applies the plan to the calling thread's netns. Continues after a failure, so that all errors are reported.
/// Idempotent.
pub fn apply(plan: &NetPlan) -> Result<(), Errors> {
    let NetPlan { renames, links, routes, sysctls, nft } = plan;
    let mut kernel = Links::new().map_err(|err| Errors(vec![err]))?;
    let mut results = Vec::new();
    results.extend(renames.iter().map(|Rename { from, to }| kernel.rename(from, to)));
    results.extend(links.iter().map(|link| apply_link(&mut kernel, link)));
    results.extend(routes.iter().map(|route| kernel.add_route(route)));
    results.extend(sysctls.iter().map(|Sysctl { key, value }| sysctl(key, value)));
    if !nft.is_empty() {
        results.push(nft_apply(&netplan::nft::script(nft)));
    }
    let errors: Vec<Error> = results.into_iter().filter_map(Result::err).collect();
    if errors.is_empty() { Ok(()) } else { Err(Errors(errors)) }
}

fn apply_link(kernel: &mut Links, link: &Link) -> Result<(), Error> {
    let Link { name, kind, mac, mtu, master, addresses } = link;
    match kind {
        LinkKind::Bridge => kernel.create_bridge(name)?,
        LinkKind::Port => {}
        LinkKind::Tap(options) => kernel.create_tap(name, options)?,
    }
    let found = kernel.get(name)?.ok_or_else(|| Error::NoSuchLink { name: name.to_string() })?;
    // First of all: a plan can tell by it which links were completed before this one.
    if let Some(master) = master {
        kernel.set_master(name, Some(master))?;
    }
    if let Some(mac) = mac.filter(|mac| found.mac != Some(*mac)) {
        kernel.set_mac(name, mac)?;
    }
    if let Some(mtu) = mtu.filter(|mtu| found.mtu != *mtu) {
        kernel.set_mtu(name, mtu)?;
    }
    if *kind == LinkKind::Port {
        kernel.stop_learning(name)?;
    }
    kernel.replace_addresses(name, addresses)?;
    kernel.set_up(name)
}
