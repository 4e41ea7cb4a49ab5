//! The connection to libvirt, re-established when it breaks, and the launcher's view of the domain, kept up to date.

use std::time::Duration;

use jiff::Timestamp;
use launcher_contract::types::{
    DomainDisk, DomainInterface, DomainReason, DomainState, DomainStatus, DomainType, LauncherState,
};
use libvirt_io::{CloseReason, Connection, Event, Keepalive, Reason, State};
use tokio::sync::watch;

use crate::error::{Error, chain};
use crate::libvirtd::{Dirs, Libvirtd};
use crate::state::StateStore;

pub(crate) const URI: &str = "qemu:///session";
/// A daemon that is silent for this long hangs; nothing it does blocks its event loop for that long.
const KEEPALIVE: Keepalive = Keepalive { interval: Duration::from_secs(5), count: 3 };
const RETRY: Duration = Duration::from_millis(100);
/// How long a request waits for a restarting daemon.
const PATIENCE: Duration = Duration::from_secs(15);
/// Changes of the balloon emit no event, so the domain is also polled.
const REFRESH: Duration = Duration::from_secs(10);

/// Provides the current connection.
#[derive(Clone)]
pub(crate) struct Session {
    connection: watch::Receiver<Option<Connection>>,
    domain_name: String,
    uid: String,
    state: StateStore,
}

impl Session {
    /// Connects in the background and reconnects for ever.
    pub(crate) fn start(dirs: Dirs, libvirtd: Libvirtd, domain_name: String, uid: String, state: StateStore) -> Self {
        let (sender, connection) = watch::channel(None);
        let session = Session { connection, domain_name, uid, state };
        tokio::spawn(session.clone().keep_connected(dirs, libvirtd, sender));
        session
    }

    /// The domain's name in libvirt.
    pub(crate) fn domain_name(&self) -> &str {
        &self.domain_name
    }

    /// Waits for the connection.
    pub(crate) async fn connection(&self) -> Result<Connection, Error> {
        let mut connection = self.connection.clone();
        let open = tokio::time::timeout(PATIENCE, connection.wait_for(Option::is_some)).await;
        match open {
            Ok(Ok(connection)) => connection.clone().ok_or(Error::LibvirtDown),
            Ok(Err(_)) | Err(_) => Err(Error::LibvirtDown),
        }
    }

    async fn keep_connected(self, dirs: Dirs, libvirtd: Libvirtd, sender: watch::Sender<Option<Connection>>) {
        let mut complained = false;
        loop {
            match Connection::connect(&dirs.socket(), URI, KEEPALIVE).await {
                Ok(connection) => {
                    complained = false;
                    tracing::info!("connected to libvirt");
                    sender.send_replace(Some(connection.clone()));
                    let reason = self.follow(&connection).await;
                    sender.send_replace(None);
                    tracing::warn!(%reason, "the connection to libvirt is closed");
                    end_if_hung(&libvirtd, &reason);
                }
                // Not listening yet, as after every start and restart of the daemon.
                Err(libvirt_io::Error::Connect { .. }) => {}
                Err(libvirt_io::Error::Closed { source, .. }) => end_if_hung(&libvirtd, &source),
                Err(error) if !complained => {
                    complained = true;
                    tracing::warn!(error = chain(&error), "cannot open libvirt");
                }
                Err(_) => {}
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Refreshes the state on every event until the connection closes.
    async fn follow(&self, connection: &Connection) -> CloseReason {
        // Subscribe before the first read, so that no event is missed.
        let mut events = connection.events();
        loop {
            if let Err(error) = self.refresh_with(connection).await
                && !error.is_closed()
            {
                tracing::warn!(error = chain(&error), "cannot read the domain's state");
            }
            match tokio::time::timeout(REFRESH, events.recv()).await {
                Ok(Some(event)) => log_event(&event),
                Ok(None) => return connection.closed().await,
                Err(_) => {}
            }
        }
    }

    /// Refreshes the state now, for a command that has just changed something.
    pub(crate) async fn refresh(&self) -> Result<(), Error> {
        let connection = self.connection().await?;
        self.refresh_with(&connection)
            .await
            .map_err(|source| Error::Libvirt { action: "read the domain's state", source })
    }

    async fn refresh_with(&self, connection: &Connection) -> Result<(), libvirt_io::Error> {
        let seen = self.look(connection).await?;
        let now = Timestamp::now();
        self.state.update(|state| remember(state, seen, now));
        Ok(())
    }

    async fn look(&self, connection: &Connection) -> Result<Option<DomainState>, libvirt_io::Error> {
        let Some(domain) = connection.lookup_by_name(&self.domain_name).await? else { return Ok(None) };
        let (state, reason) = connection.state(&domain).await?;
        let info = connection.info(&domain).await?;
        let xml = connection.xml_desc(&domain, 0).await?;
        let observed = match domain::Observed::parse(&xml) {
            Ok(observed) => observed,
            Err(error) => {
                tracing::warn!(%error, "cannot parse the domain XML");
                domain::Observed::default()
            }
        };
        let (status, reason) = (status(state), self::reason(state, reason));
        Ok(Some(DomainState {
            name: domain.name,
            uid: self.uid.clone(),
            status,
            reason,
            os_machine: observed.machine,
            domain_type: if observed.type_ == "qemu" { DomainType::Qemu } else { DomainType::Kvm },
            acpi: observed.acpi,
            interfaces: observed.interfaces.into_iter().map(interface).collect(),
            disks: observed.disks.into_iter().map(disk).collect(),
            // An emulated guest has slightly more memory than libvirt's balloon; do not report that (see
            // `domain::convert`).
            memory_bytes: info.memory_kib.min(info.max_memory_kib) << 10,
            agent_connected: observed.agent_connected,
            started_at: None,
        }))
    }
}

fn end_if_hung(libvirtd: &Libvirtd, reason: &CloseReason) {
    if matches!(reason, CloseReason::KeepaliveTimeout { .. }) {
        tracing::error!("libvirtd hangs; killing it");
        libvirtd.kill();
    }
}

/// Merges the observed domain into the state. Keeps what libvirt does not know: the start time and, after a restart of
/// the daemon, why the guest ended.
fn remember(state: &mut LauncherState, seen: Option<DomainState>, now: Timestamp) {
    let before = state.domain.take();
    state.domain = seen.map(|mut domain| {
        let runs = domain.status == DomainStatus::Running;
        domain.started_at = before.as_ref().and_then(|b| b.started_at).or_else(|| runs.then_some(now));
        keep_disks(before.as_ref(), &mut domain);
        if let Some(before) = before.filter(DomainState::is_down)
            && domain.is_down()
            && domain.reason == DomainReason::Unknown
        {
            domain.reason = before.reason;
        }
        domain
    });
    if !state.domain.as_ref().is_some_and(|domain| domain.agent_connected) {
        state.guest_agent = None;
    }
}

/// What [`disks::watch`](crate::disks::watch) found out stays until it looks again; an error is over when the guest goes
/// on.
fn keep_disks(before: Option<&DomainState>, domain: &mut DomainState) {
    let paused = domain.status == DomainStatus::Paused;
    let known = before.map(|before| before.disks.as_slice()).unwrap_or_default();
    for disk in &mut domain.disks {
        let same = |old: &&DomainDisk| (&old.target, &old.source) == (&disk.target, &disk.source);
        if let Some(old) = known.iter().find(same) {
            (disk.capacity, disk.error) = (old.capacity, old.error.filter(|_| paused));
        }
    }
}

fn log_event(event: &Event) {
    match event {
        Event::Lifecycle { domain, event, detail } => tracing::info!(%domain, ?event, detail, "domain event"),
        Event::AgentLifecycle { domain, state } => tracing::info!(%domain, ?state, "guest agent"),
        Event::DeviceRemoved { domain, alias } => tracing::info!(%domain, alias, "the guest released a device"),
        Event::DeviceRemovalFailed { domain, alias } => {
            tracing::warn!(%domain, alias, "the guest does not release a device");
        }
        Event::Missed => tracing::warn!("missed events; reading the state again"),
    }
}

fn interface(seen: domain::ObservedInterface) -> DomainInterface {
    DomainInterface {
        alias: seen.name,
        mac: seen.mac,
        tap: seen.tap,
        queues: seen.queues,
        link_state: if seen.link_up { "up" } else { "down" }.to_owned(),
    }
}

fn disk(seen: domain::ObservedDisk) -> DomainDisk {
    DomainDisk { alias: seen.name, target: seen.target, source: seen.source, capacity: 0, error: None }
}

/// Maps libvirt's state and reason to KubeVirt's.
pub(crate) fn domain(state: State, because: Reason) -> (DomainStatus, DomainReason) {
    (status(state), reason(state, because))
}

fn status(state: State) -> DomainStatus {
    match state {
        State::NoState => DomainStatus::NoState,
        State::Running => DomainStatus::Running,
        State::Blocked => DomainStatus::Blocked,
        State::Paused => DomainStatus::Paused,
        State::Shutdown => DomainStatus::Shutdown,
        State::Shutoff => DomainStatus::Shutoff,
        State::Crashed => DomainStatus::Crashed,
        State::PmSuspended => DomainStatus::PMSuspended,
        State::Other(_) => DomainStatus::Unknown,
    }
}

fn reason(state: State, reason: Reason) -> DomainReason {
    let paused = matches!(state, State::Paused);
    match reason {
        Reason::Unknown | Reason::ApiError => DomainReason::Unknown,
        Reason::Booted => DomainReason::Booted,
        Reason::Migrated => DomainReason::Migrated,
        Reason::Restored => DomainReason::Restored,
        Reason::FromSnapshot if paused => DomainReason::PausedFromSnapshot,
        Reason::FromSnapshot => DomainReason::FromSnapshot,
        Reason::Unpaused => DomainReason::Unpaused,
        Reason::MigrationCanceled => DomainReason::MigrationCanceled,
        Reason::SaveCanceled => DomainReason::SaveCanceled,
        Reason::Wakeup => DomainReason::Wakeup,
        Reason::Crashed if paused => DomainReason::PausedCrashed,
        Reason::Crashed => DomainReason::Crashed,
        Reason::Postcopy if paused => DomainReason::PausedPostcopy,
        Reason::Postcopy => DomainReason::Postcopy,
        Reason::PostcopyFailed if paused => DomainReason::PausedPostcopyFailed,
        Reason::PostcopyFailed => DomainReason::PostcopyFailed,
        Reason::User if paused => DomainReason::PausedUser,
        Reason::User => DomainReason::User,
        Reason::Migration => DomainReason::PausedMigration,
        Reason::Save => DomainReason::PausedSave,
        Reason::Dump => DomainReason::PausedDump,
        Reason::IoError => DomainReason::PausedIOError,
        Reason::Watchdog => DomainReason::PausedWatchdog,
        Reason::ShuttingDown => DomainReason::PausedShuttingDown,
        Reason::Snapshot => DomainReason::PausedSnapshot,
        Reason::StartingUp => DomainReason::PausedStartingUp,
        Reason::Shutdown => DomainReason::Shutdown,
        Reason::Destroyed => DomainReason::Destroyed,
        Reason::Saved => DomainReason::Saved,
        Reason::Failed => DomainReason::Failed,
        Reason::Daemon => DomainReason::Daemon,
        Reason::Panicked => DomainReason::Panicked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: DomainStatus, agent_connected: bool) -> Option<DomainState> {
        Some(DomainState { status, agent_connected, ..Default::default() })
    }

    #[test]
    fn the_start_time_is_the_first_time_the_guest_ran_and_stays() {
        let mut state = LauncherState::default();
        let times: Vec<Timestamp> = (0..4).map(|s| Timestamp::from_second(s).unwrap()).collect();
        remember(&mut state, seen(DomainStatus::Shutoff, false), times[0]);
        assert_eq!(state.domain.as_ref().unwrap().started_at, None);
        for (status, at) in [(DomainStatus::Running, 1), (DomainStatus::Paused, 2), (DomainStatus::Shutoff, 3)] {
            remember(&mut state, seen(status, false), times[at]);
            assert_eq!(state.domain.as_ref().unwrap().started_at, Some(times[1]), "{status:?}");
        }
        remember(&mut state, None, times[3]);
        assert_eq!(state.domain, None);
    }

    #[test]
    fn a_new_daemon_does_not_make_us_forget_how_the_guest_ended() {
        let mut state = LauncherState::default();
        let mut ended = seen(DomainStatus::Shutoff, false);
        ended.as_mut().unwrap().reason = DomainReason::Crashed;
        remember(&mut state, ended, Timestamp::UNIX_EPOCH);
        remember(&mut state, seen(DomainStatus::Shutoff, false), Timestamp::UNIX_EPOCH);
        assert_eq!(state.domain.unwrap().reason, DomainReason::Crashed);
    }

    #[test]
    fn what_an_agent_said_is_forgotten_when_it_leaves() {
        let mut state = LauncherState { guest_agent: Some(Default::default()), ..Default::default() };
        remember(&mut state, seen(DomainStatus::Running, true), Timestamp::UNIX_EPOCH);
        assert!(state.guest_agent.is_some());
        remember(&mut state, seen(DomainStatus::Running, false), Timestamp::UNIX_EPOCH);
        assert!(state.guest_agent.is_none());
    }

    #[test]
    fn reasons_of_the_paused_state_carry_its_name() {
        assert_eq!(reason(State::Paused, Reason::User), DomainReason::PausedUser);
        assert_eq!(reason(State::Paused, Reason::Crashed), DomainReason::PausedCrashed);
        assert_eq!(reason(State::Shutoff, Reason::Crashed), DomainReason::Crashed);
        assert_eq!(reason(State::Shutdown, Reason::User), DomainReason::User);
    }
}
