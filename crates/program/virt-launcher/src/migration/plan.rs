//! Flags and parameters for libvirt, derived from the migration options and the current domain. They are libvirt's own, so
//! they are not decided in [`transfer`], which knows no libvirt.

use std::os::unix::fs::MetadataExt;

use domain::{Observed, ObservedDisk};
use launcher_contract::Channel;
use launcher_contract::migration::MigrationOptions;
use launcher_contract::types::DomainStatus;
use libvirt_io::{Params, Value, flags};

use super::Sockets;

/// Unit of a file's allocated blocks, independent of its block size.
const SPACE_UNIT: u64 = 512;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) flags: u32,
    pub(super) params: Params,
    /// Lower bound of the amount of data to send.
    pub(super) bytes: u64,
    /// The guest was paused before and stays paused.
    pub(super) paused: bool,
}

/// The domain just before the migration starts.
pub(super) struct Current<'a> {
    pub(super) name: &'a str,
    pub(super) status: DomainStatus,
    pub(super) memory_bytes: u64,
    pub(super) observed: &'a Observed,
}

impl Plan {
    pub(super) fn new(options: &MigrationOptions, current: &Current<'_>, sockets: &Sockets) -> Plan {
        let is_shared = |disk: &&ObservedDisk| options.shared_volumes.contains(&disk.name);
        let (shared, disks): (Vec<_>, Vec<_>) =
            current.observed.disks.iter().filter(|disk| disk.writable).partition(is_shared);
        // libvirt takes only some file systems for shared; what is, was decided from the claims. It still refuses disks
        // whose writes this node caches.
        let vouched = !shared.is_empty() && shared.iter().all(|disk| disk.uncached);
        let paused = current.status == DomainStatus::Paused;
        // QEMU does not support post-copy with multiple connections.
        let parallel = options.parallel_connections > 1 && !options.allow_post_copy;
        let compression = options.compression.as_ref().filter(|_| parallel);
        let mut flags = flags::MIGRATE_LIVE | flags::MIGRATE_PERSIST_DEST | flags::MIGRATE_CHANGE_PROTECTION;
        for (wanted, flag) in [
            (!disks.is_empty(), flags::MIGRATE_NON_SHARED_INC),
            (options.allow_unsafe || vouched, flags::MIGRATE_UNSAFE),
            (options.allow_auto_converge, flags::MIGRATE_AUTO_CONVERGE),
            (options.allow_post_copy, flags::MIGRATE_POSTCOPY),
            (paused, flags::MIGRATE_PAUSED),
            (parallel, flags::MIGRATE_PARALLEL),
            (compression.is_some(), flags::MIGRATE_COMPRESSED),
        ] {
            flags |= if wanted { flag } else { 0 };
        }
        let text = |text: &str| Value::String(text.to_owned());
        let mut params = Params::default()
            .with("destination_name", text(current.name))
            .with("migrate_uri", Value::String(sockets.uri(Channel::Memory)));
        if options.bandwidth_mib > 0 {
            params = params.with("bandwidth", Value::ULLong(options.bandwidth_mib));
        }
        if !disks.is_empty() {
            params = params.with("disks_uri", Value::String(sockets.uri(Channel::Disks)));
        }
        for disk in &disks {
            params = params.with("migrate_disks", text(&disk.target));
        }
        if parallel {
            let connections = i32::try_from(options.parallel_connections).unwrap_or(i32::MAX);
            params = params.with("parallel.connections", Value::Int(connections));
        }
        if let Some(method) = compression {
            params = params.with("compression", text(method));
        }
        let on_disk = disks.iter().map(|disk| space(&disk.source)).fold(0, u64::saturating_add);
        Plan { flags, params, bytes: current.memory_bytes.saturating_add(on_disk), paused }
    }

    /// The subset of the flags that is passed to the target; the rest concerns the source only.
    pub(super) fn at_target(flags: u32) -> u32 {
        flags & !(flags::MIGRATE_CHANGE_PROTECTION | flags::MIGRATE_AUTO_CONVERGE)
    }
}

/// Allocated size of a file; zero if unknown, which only reduces the time budget.
fn space(file: &str) -> u64 {
    std::fs::metadata(file).map(|metadata| metadata.blocks().saturating_mul(SPACE_UNIT)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn plan(options: &MigrationOptions, disks: &[(&str, bool)], status: DomainStatus) -> Plan {
        let disk = |(target, writable): &(&str, bool)| ObservedDisk {
            name: (*target).into(),
            target: (*target).into(),
            source: "/nowhere".into(),
            writable: *writable,
            uncached: true,
        };
        let observed = Observed { disks: disks.iter().map(disk).collect(), ..Default::default() };
        let current = Current { name: "ns_vm", status, memory_bytes: 7, observed: &observed };
        Plan::new(options, &current, &Sockets::new(Path::new("/s"), "u"))
    }

    #[test]
    fn each_option_has_its_flag() {
        use DomainStatus::{Paused, Running};
        let base = flags::MIGRATE_LIVE | flags::MIGRATE_PERSIST_DEST | flags::MIGRATE_CHANGE_PROTECTION;
        let options = |change: fn(&mut MigrationOptions)| {
            let mut options = MigrationOptions::default();
            change(&mut options);
            options
        };
        for (name, options, disks, status, extra) in [
            ("nothing", options(|_| {}), &[][..], Running, 0),
            ("a CD-ROM", options(|_| {}), &[("sda", false)][..], Running, 0),
            ("a disk", options(|_| {}), &[("vda", true)][..], Running, flags::MIGRATE_NON_SHARED_INC),
            ("a paused guest", options(|_| {}), &[][..], Paused, flags::MIGRATE_PAUSED),
            (
                "auto-converge",
                options(|o| o.allow_auto_converge = true),
                &[][..],
                Running,
                flags::MIGRATE_AUTO_CONVERGE,
            ),
            ("unsafe", options(|o| o.allow_unsafe = true), &[][..], Running, flags::MIGRATE_UNSAFE),
            ("connections", options(|o| o.parallel_connections = 2), &[][..], Running, flags::MIGRATE_PARALLEL),
            (
                "connections and post-copy, which exclude each other",
                options(|o| (o.parallel_connections, o.allow_post_copy) = (2, true)),
                &[][..],
                Running,
                flags::MIGRATE_POSTCOPY,
            ),
            ("compression over one connection", options(|o| o.compression = Some("zstd".into())), &[][..], Running, 0),
        ] {
            assert_eq!(plan(&options, disks, status).flags, base | extra, "{name}");
        }
    }

    #[test]
    fn only_what_the_guest_can_write_to_is_copied() {
        let options = MigrationOptions { bandwidth_mib: 20, ..Default::default() };
        let plan = plan(&options, &[("vda", true), ("sda", false)], DomainStatus::Running);
        let text = |text: &str| Value::String(text.to_owned());
        let expected = Params::default()
            .with("destination_name", text("ns_vm"))
            .with("migrate_uri", text("unix:///s/migrationproxy/u-49152-source.sock"))
            .with("bandwidth", Value::ULLong(20))
            .with("disks_uri", text("unix:///s/migrationproxy/u-49153-source.sock"))
            .with("migrate_disks", text("vda"));
        assert_eq!((plan.params, plan.bytes), (expected, 7));
    }

    #[test]
    fn what_both_sides_use_is_not_copied_and_must_not_be_cached() {
        let of = |uncached: bool, shared: &[&str]| {
            let disk = |name: &str| ObservedDisk {
                name: name.into(),
                target: name.into(),
                source: "/nowhere".into(),
                writable: true,
                uncached,
            };
            let observed = Observed { disks: vec![disk("vda"), disk("vdb")], ..Default::default() };
            let current =
                Current { name: "ns_vm", status: DomainStatus::Running, memory_bytes: 7, observed: &observed };
            let shared_volumes = shared.iter().map(|&name| name.to_owned()).collect();
            let options = MigrationOptions { shared_volumes, ..Default::default() };
            let plan = Plan::new(&options, &current, &Sockets::new(Path::new("/s"), "u"));
            let copied = format!("{:?}", plan.params).matches("migrate_disks").count();
            let is = |flag: u32| plan.flags & flag != 0;
            (copied, is(flags::MIGRATE_NON_SHARED_INC), is(flags::MIGRATE_UNSAFE))
        };
        assert_eq!(of(true, &[]), (2, true, false));
        assert_eq!(of(true, &["vda"]), (1, true, true));
        assert_eq!(of(true, &["vda", "vdb"]), (0, false, true));
        assert_eq!(of(false, &["vda"]), (1, true, false), "libvirt refuses it");
    }

    #[test]
    fn the_target_does_not_hear_of_what_the_source_does() {
        let flags = flags::MIGRATE_LIVE | flags::MIGRATE_AUTO_CONVERGE | flags::MIGRATE_CHANGE_PROTECTION;
        assert_eq!(Plan::at_target(flags), flags::MIGRATE_LIVE);
    }
}
