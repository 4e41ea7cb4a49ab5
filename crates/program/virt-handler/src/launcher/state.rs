//! Translates the launcher's state for the state machine. Destructured field by field, so that a new field cannot be
//! missed.

use api::v1::{MigrationAbortStatus, MigrationMode};
use launcher_contract::{migration as rpc_migration, types as rpc};

pub(super) fn translate(state: rpc::LauncherState) -> vmstate::LauncherState {
    let rpc::LauncherState {
        seq: _,
        domain: said,
        guest_agent,
        marked_for_graceful_shutdown,
        shutdown_requested_at,
        last_error: _, // the failed command has already reported it
        migration: moving,
    } = state;
    vmstate::LauncherState {
        domain: said.map(domain),
        guest_agent: guest_agent.map(agent),
        marked_for_graceful_shutdown,
        shutdown_requested_at,
        migration: moving.map(migration),
    }
}

fn migration(migration: rpc_migration::MigrationState) -> vmstate::Migration {
    use rpc_migration::{AbortState, MigrationMode as Mode};
    let rpc_migration::MigrationState {
        uid,
        role: _, // the VMI says which side it is
        phase,
        mode,
        started_at,
        ended_at,
        progress: _, // informational only; nothing is decided by it
        failure,
        abort,
    } = migration;
    vmstate::Migration {
        uid,
        phase,
        mode: match mode {
            Mode::PreCopy => Some(MigrationMode::PreCopy),
            Mode::PostCopy => Some(MigrationMode::PostCopy),
            Mode::Paused => Some(MigrationMode::Paused),
            Mode::Unknown => None,
        },
        started_at,
        ended_at,
        failure,
        abort: match abort {
            AbortState::None | AbortState::Unknown => None,
            AbortState::Aborting => Some(MigrationAbortStatus::Aborting),
            AbortState::Succeeded => Some(MigrationAbortStatus::Succeeded),
            AbortState::Failed => Some(MigrationAbortStatus::Failed),
        },
    }
}

fn domain(domain: rpc::DomainState) -> vmstate::Domain {
    let rpc::DomainState {
        name: _,
        uid: _, // launchers of other VMIs are ignored
        status,
        reason,
        os_machine,
        domain_type,
        acpi,
        interfaces,
        disks,
        memory_bytes,
        agent_connected,
        started_at: _,
    } = domain;
    vmstate::Domain {
        status,
        reason,
        machine: os_machine,
        emulated: domain_type == rpc::DomainType::Qemu,
        acpi,
        interfaces: interfaces.into_iter().map(interface).collect(),
        disks: disks.into_iter().map(disk).collect(),
        memory_bytes,
        agent_connected,
    }
}

fn interface(interface: rpc::DomainInterface) -> vmstate::Interface {
    let rpc::DomainInterface { alias, mac, tap: _, queues, link_state } = interface;
    vmstate::Interface { name: alias, mac, queues, link_state }
}

fn disk(disk: rpc::DomainDisk) -> vmstate::Disk {
    let rpc::DomainDisk { alias, target, source } = disk;
    vmstate::Disk { name: alias, target, source }
}

fn agent(agent: rpc::GuestAgent) -> vmstate::GuestAgent {
    let rpc::GuestAgent { version: _, hostname: _, os, interfaces } = agent;
    vmstate::GuestAgent { os, interfaces: interfaces.into_iter().map(guest_interface).collect() }
}

fn guest_interface(interface: rpc::GuestInterface) -> vmstate::GuestInterface {
    let rpc::GuestInterface { name, mac, ips } = interface;
    vmstate::GuestInterface { name, mac, ips }
}
