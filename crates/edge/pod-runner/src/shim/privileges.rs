//! Switches to the container's user, with its capabilities only. For a single-threaded process right before exec.

use std::io;

use rustix::process::{Gid, Resource, Rlimit, Uid, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, configure_capability_in_ambient_set,
    remove_capability_from_bounding_set, set_capabilities, set_keep_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::record::Credentials;

pub(crate) fn assume(credentials: &Credentials) -> io::Result<()> {
    let bounding = CapabilitySet::from_bits_retain(credentials.bounding);
    let ambient = CapabilitySet::from_bits_retain(credentials.ambient);
    narrow_bounding_set(bounding)?;

    let groups: Vec<Gid> = credentials.groups.iter().map(|g| Gid::from_raw(*g)).collect();
    set_thread_groups(&groups)?;
    let (uid, gid) = (Uid::from_raw(credentials.uid), Gid::from_raw(credentials.gid));
    set_thread_res_gid(gid, gid, gid)?;
    // Otherwise the change of user would clear the capabilities that are to become ambient.
    set_keep_capabilities(true)?;
    set_thread_res_uid(uid, uid, uid)?;

    let own = if uid.is_root() { bounding } else { ambient };
    // Root's inheritable set stays empty: programs with inheritable file capabilities would gain from it.
    set_capabilities(None, CapabilitySets { effective: own, permitted: own, inheritable: ambient })?;
    clear_ambient_capability_set()?;
    for capability in ambient.iter() {
        configure_capability_in_ambient_set(capability, true)?;
    }
    set_keep_capabilities(false)?;
    if credentials.no_new_privileges {
        set_no_new_privs(true)?;
    }
    Ok(())
}

fn narrow_bounding_set(keep: CapabilitySet) -> io::Result<()> {
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if keep.contains(capability) {
            continue;
        }
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // One past the last capability of this kernel.
            Err(rustix::io::Errno::INVAL) => break,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Limits of a container's processes: the node's own limit of open files, and no core dumps of guest memory on the
/// node's disk.
pub(super) fn set_limits() -> io::Result<()> {
    const FILES: u64 = 1 << 20;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(maximum.unwrap_or(FILES).min(FILES)), maximum })?;
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    Ok(())
}
