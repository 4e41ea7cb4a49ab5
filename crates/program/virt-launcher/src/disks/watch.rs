//! What libvirt says about disks only when it is asked: how large the guest sees them, and why the last request failed.
//!
//! The answers may take as long as a disk that hangs, so the rest of the state does not wait for them.

use std::time::{Duration, Instant};

use launcher_contract::types::{DiskError, DomainDisk, DomainReason, DomainState, DomainStatus};
use libvirt_io::Connection;

use crate::error::{Error, chain};
use crate::session::Session;
use crate::state::StateStore;

/// A block device that grows says nothing.
const ASK_AGAIN: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the state of the disks up to date for ever.
pub(crate) async fn watch(session: Session, state: StateStore) {
    let mut asked: Option<(Instant, Vec<String>)> = None;
    loop {
        let seen = state.get();
        if let Some(domain) = seen.domain.filter(|domain| !domain.is_down()) {
            let sources: Vec<String> = domain.disks.iter().map(|disk| disk.source.clone()).collect();
            let is_due = |(at, of): &(Instant, Vec<String>)| at.elapsed() >= ASK_AGAIN || *of != sources;
            let waits = is_paused_by_io(&domain) && domain.disks.iter().all(|disk| disk.error.is_none());
            let unknown = domain.disks.iter().any(|disk| disk.capacity == 0 && !disk.source.is_empty());
            if waits || unknown || asked.as_ref().is_none_or(is_due) {
                let outcome = tokio::time::timeout(PATIENCE, ask(&session, &state, &domain)).await;
                match outcome {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(error = chain(&error), "cannot ask for the state of the disks"),
                    Err(_) => tracing::warn!("libvirt does not say the state of the disks"),
                }
                asked = Some((Instant::now(), sources));
            }
        }
        state.changed(seen.seq, ASK_AGAIN).await;
    }
}

/// The size of a disk has changed; [`watch`] asks for the new one.
pub(crate) fn forget_size(state: &StateStore, disk: &DomainDisk) {
    state.update(|state| {
        let disks = state.domain.iter_mut().flat_map(|domain| &mut domain.disks);
        disks.filter(|known| known.target == disk.target).for_each(|known| known.capacity = 0);
    });
}

async fn ask(session: &Session, state: &StateStore, domain: &DomainState) -> Result<(), Error> {
    let connection = session.connection().await?;
    let found = connection.lookup_by_name(session.domain_name()).await.map_err(libvirt)?;
    let Some(found) = found else { return Ok(()) };
    let errors = match is_paused_by_io(domain) {
        true => connection.disk_errors(&found).await.map_err(libvirt)?,
        false => Vec::new(),
    };
    let mut sizes = Vec::new();
    for disk in domain.disks.iter().filter(|disk| !disk.source.is_empty()) {
        sizes.push((disk.clone(), size(&connection, &found, disk).await));
    }
    state.update(|state| {
        let Some(domain) = &mut state.domain else { return };
        let paused = is_paused_by_io(domain);
        for disk in &mut domain.disks {
            let size = sizes.iter().find(|(of, _)| (&of.target, &of.source) == (&disk.target, &disk.source));
            disk.capacity = size.and_then(|(_, size)| *size).unwrap_or(disk.capacity);
            let error = errors.iter().find(|(target, _)| *target == disk.target).filter(|_| paused);
            disk.error = error.map(|(_, why)| match why {
                libvirt_io::DiskError::NoSpace => DiskError::NoSpace,
                libvirt_io::DiskError::Other => DiskError::Other,
            });
        }
    });
    Ok(())
}

async fn size(connection: &Connection, domain: &libvirt_io::Domain, disk: &DomainDisk) -> Option<u64> {
    match connection.block_info(domain, &disk.target).await {
        Ok(info) => Some(info.capacity),
        Err(error) => {
            tracing::debug!(disk = disk.alias, error = chain(&error), "the size of a disk is not known");
            None
        }
    }
}

fn is_paused_by_io(domain: &DomainState) -> bool {
    domain.status == DomainStatus::Paused && domain.reason == DomainReason::PausedIOError
}

fn libvirt(source: libvirt_io::Error) -> Error {
    Error::Libvirt { action: "ask for the state of the disks", source }
}
