//! libvirt's objects and enumerations, by libvirt's names.

use std::fmt;

use uuid::Uuid;

/// A domain as the daemon names it in replies and events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub name: String,
    pub uuid: Uuid,
    /// Set while the domain is active.
    pub id: Option<i32>,
}

/// The relevant part of `virDomainGetInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainInfo {
    /// Memory in use by the guest, after ballooning.
    pub memory_kib: u64,
    pub max_memory_kib: u64,
    pub vcpus: u32,
    pub cpu_time_ns: u64,
}

/// `virDomainBlockInfo`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// What the image takes on its storage.
    pub allocation: u64,
    /// What the guest sees.
    pub capacity: u64,
    /// The file's length, or the device's size.
    pub physical: u64,
}

/// `virDomainDiskErrorCode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskError {
    NoSpace,
    Other,
}

impl From<i32> for DiskError {
    fn from(code: i32) -> Self {
        if code == 2 { DiskError::NoSpace } else { DiskError::Other }
    }
}

/// `virDomainState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    NoState,
    Running,
    Blocked,
    Paused,
    /// The guest is powering off; QEMU still runs.
    Shutdown,
    Shutoff,
    Crashed,
    PmSuspended,
    /// A state unknown to this client.
    Other(i32),
}

impl From<i32> for State {
    fn from(code: i32) -> Self {
        match code {
            0 => State::NoState,
            1 => State::Running,
            2 => State::Blocked,
            3 => State::Paused,
            4 => State::Shutdown,
            5 => State::Shutoff,
            6 => State::Crashed,
            7 => State::PmSuspended,
            other => State::Other(other),
        }
    }
}

/// Why a domain is in its state. The codes overlap between states, so a reason is always created together with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    Unknown,
    Booted,
    Migrated,
    Restored,
    FromSnapshot,
    Unpaused,
    MigrationCanceled,
    SaveCanceled,
    Wakeup,
    Crashed,
    Postcopy,
    PostcopyFailed,
    User,
    Migration,
    Save,
    Dump,
    IoError,
    Watchdog,
    ShuttingDown,
    Snapshot,
    StartingUp,
    ApiError,
    Shutdown,
    Destroyed,
    Saved,
    Failed,
    Daemon,
    Panicked,
}

impl Reason {
    /// The reason for `code` in `state`; codes unknown to this client are `Unknown`, as in libvirt's own clients.
    pub fn of(state: State, code: i32) -> Reason {
        use Reason::*;
        const RUNNING: [Reason; 12] = [
            Unknown,
            Booted,
            Migrated,
            Restored,
            FromSnapshot,
            Unpaused,
            MigrationCanceled,
            SaveCanceled,
            Wakeup,
            Crashed,
            Postcopy,
            PostcopyFailed,
        ];
        const PAUSED: [Reason; 15] = [
            Unknown,
            User,
            Migration,
            Save,
            Dump,
            IoError,
            Watchdog,
            FromSnapshot,
            ShuttingDown,
            Snapshot,
            Crashed,
            StartingUp,
            Postcopy,
            PostcopyFailed,
            ApiError,
        ];
        const SHUTOFF: [Reason; 9] =
            [Unknown, Shutdown, Destroyed, Crashed, Migrated, Saved, Failed, FromSnapshot, Daemon];
        let table: &[Reason] = match state {
            State::Running => &RUNNING,
            State::Paused => &PAUSED,
            State::Shutdown => &[Unknown, User],
            State::Shutoff => &SHUTOFF,
            State::Crashed => &[Unknown, Panicked],
            State::NoState | State::Blocked | State::PmSuspended | State::Other(_) => &[Unknown],
        };
        usize::try_from(code).ok().and_then(|index| table.get(index)).copied().unwrap_or(Unknown)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Flags of the calls, by their names in libvirt's headers.
pub mod flags {
    /// `virDomainCreateFlags`
    pub const START_PAUSED: u32 = 1;
    /// `virDomainShutdownFlagValues`
    pub const SHUTDOWN_DEFAULT: u32 = 0;
    pub const SHUTDOWN_ACPI_POWER_BTN: u32 = 1;
    /// `virDomainRebootFlagValues`
    pub const REBOOT_ACPI_POWER_BTN: u32 = 1;
    pub const REBOOT_GUEST_AGENT: u32 = 2;
    /// `virDomainDestroyFlagsValues`: SIGTERM first, and an error instead of SIGKILL if QEMU does not exit.
    pub const DESTROY_GRACEFUL: u32 = 1;
    /// `virDomainUndefineFlagsValues`
    pub const UNDEFINE_KEEP_NVRAM: u32 = 8;
    pub const UNDEFINE_CHECKPOINTS_METADATA: u32 = 16;
    /// `virDomainBlockResizeFlags`: the size is in bytes.
    pub const BLOCK_RESIZE_BYTES: u32 = 1;
    /// `virDomainCoreDumpFlags`: only the guest's memory, as an ELF file.
    pub const DUMP_MEMORY_ONLY: u32 = 1 << 4;
    /// `virDomainXMLFlags`
    pub const XML_INACTIVE: u32 = 2;
    pub const XML_MIGRATABLE: u32 = 8;
    /// `virDomainDefineFlags`: check the XML against the schema.
    pub const DEFINE_VALIDATE: u32 = 1;
    /// `virDomainDeviceModifyFlags`
    pub const DEVICE_MODIFY_LIVE: u32 = 1;
    pub const DEVICE_MODIFY_CONFIG: u32 = 2;
    pub const DEVICE_MODIFY_FORCE: u32 = 4;
    /// `virDomainMigrateFlags`
    pub const MIGRATE_LIVE: u32 = 1 << 0;
    pub const MIGRATE_PERSIST_DEST: u32 = 1 << 3;
    pub const MIGRATE_PAUSED: u32 = 1 << 5;
    /// Copies the top image of each disk; its backing file must already exist at the target.
    pub const MIGRATE_NON_SHARED_INC: u32 = 1 << 7;
    pub const MIGRATE_CHANGE_PROTECTION: u32 = 1 << 8;
    pub const MIGRATE_UNSAFE: u32 = 1 << 9;
    pub const MIGRATE_COMPRESSED: u32 = 1 << 11;
    pub const MIGRATE_AUTO_CONVERGE: u32 = 1 << 13;
    pub const MIGRATE_POSTCOPY: u32 = 1 << 15;
    pub const MIGRATE_PARALLEL: u32 = 1 << 17;
    pub const MIGRATE_POSTCOPY_RESUME: u32 = 1 << 19;
    /// `virDomainGetJobStatsFlags`
    pub const JOB_STATS_COMPLETED: u32 = 1 << 0;
    pub const JOB_STATS_KEEP_COMPLETED: u32 = 1 << 1;
    /// `virDomainAbortJobFlagsValues`: abort a migration in post-copy by breaking its connection.
    pub const ABORT_JOB_POSTCOPY: u32 = 1 << 0;
    /// `virDomainSetTimeFlags`: take the time from the domain's own clock.
    pub const SET_TIME_SYNC: u32 = 1 << 0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_code_means_different_things_in_different_states() {
        assert_eq!(Reason::of(State::Running, 1), Reason::Booted);
        assert_eq!(Reason::of(State::Paused, 1), Reason::User);
        assert_eq!(Reason::of(State::Shutoff, 1), Reason::Shutdown);
        assert_eq!(Reason::of(State::Shutoff, 3), Reason::Crashed);
        assert_eq!(Reason::of(State::Crashed, 1), Reason::Panicked);
    }

    #[test]
    fn codes_from_the_future_are_unknown() {
        assert_eq!(Reason::of(State::Paused, 99), Reason::Unknown);
        assert_eq!(Reason::of(State::Shutoff, -1), Reason::Unknown);
        assert_eq!(State::from(42), State::Other(42));
    }
}
