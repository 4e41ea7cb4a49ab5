//! Dumps of the guest's memory to a plugged volume: an ELF core, one per volume.
//!
//! A dump takes as long as writing all of the guest's memory. It goes on when the client disconnects; its beginning and its
//! end are in the state. A second request for the same file changes nothing.

use std::fs;
use std::io;
use std::path::Path;

use hostfs::beneath::Root;
use jiff::Timestamp;
use launcher_contract::types::MemoryDump;
use libvirt_io::{Connection, Domain};

use crate::error::{Error, chain};
use crate::state::StateStore;

/// What the names of dumps have in common.
const MARK: &str = "memory.dump";

/// Whether this dump is the current or last one; an error if another one is being written.
pub(crate) fn is_known(state: &StateStore, volume: &str, file: &str) -> Result<bool, Error> {
    match state.get().memory_dump {
        Some(dump) if (dump.volume.as_str(), dump.file.as_str()) == (volume, file) => Ok(true),
        Some(dump) if dump.ended_at.is_none() => Err(Error::WrongState(format!(
            "the memory dump to {} on volume {} is not complete",
            dump.file, dump.volume
        ))),
        _ => Ok(false),
    }
}

/// Begins a dump to a file in the directory where plugged volumes are.
pub(crate) fn begin(
    state: &StateStore,
    connection: Connection,
    domain: Domain,
    plugged: &str,
    volume: String,
    file: String,
) -> Result<(), Error> {
    let is_name = |name: &str| !name.is_empty() && !name.contains('/') && name != "." && name != "..";
    if !is_name(&volume) || !is_name(&file) || !file.contains(MARK) {
        return Err(Error::WrongState(format!("{volume:?} and {file:?} do not name a memory dump")));
    }
    let directory = format!("{plugged}/{volume}");
    remove_older(&directory)
        .map_err(|source| Error::System { action: format!("make space in {directory}"), source })?;
    let (path, started_at) = (format!("{directory}/{file}"), Timestamp::now());
    let begun = MemoryDump { volume, file, started_at, ended_at: None, failure: None };
    state.update(|state| state.memory_dump = Some(begun));
    let state = state.clone();
    tokio::spawn(async move {
        let dumped = connection.dump_memory(&domain, &path).await;
        let failure = dumped.as_ref().err().map(|error| chain(error));
        match &failure {
            None => tracing::info!(path, "the guest's memory is dumped"),
            Some(error) => tracing::warn!(path, error, "the guest's memory was not dumped"),
        }
        if failure.is_some() {
            let _ = fs::remove_file(&path); // what there is of it is of no use
        }
        state.update(|state| {
            if let Some(dump) = &mut state.memory_dump {
                (dump.ended_at, dump.failure) = (Some(Timestamp::now()), failure);
            }
        });
    });
    Ok(())
}

/// A volume holds one dump: an earlier one gives its space to the new one.
fn remove_older(directory: &str) -> io::Result<()> {
    let root = Root::open(directory).map_err(io::Error::other)?;
    for entry in fs::read_dir(Path::new(directory))? {
        let name = entry?.file_name();
        if name.to_string_lossy().contains(MARK) {
            root.remove(&name).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_earlier_dumps_leave() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["vm-dump-20260101-000000.memory.dump", "other", "lost+found"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        remove_older(dir.path().to_str().unwrap()).unwrap();
        let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["lost+found", "other"]);
    }

    #[test]
    fn one_dump_at_a_time_and_each_once() {
        let state = StateStore::new();
        let dump = |ended: bool| MemoryDump {
            volume: "v".into(),
            file: "a.memory.dump".into(),
            started_at: Timestamp::UNIX_EPOCH,
            ended_at: ended.then_some(Timestamp::UNIX_EPOCH),
            failure: None,
        };
        assert!(!is_known(&state, "v", "a.memory.dump").unwrap());
        state.update(|state| state.memory_dump = Some(dump(false)));
        assert!(is_known(&state, "v", "a.memory.dump").unwrap());
        assert!(is_known(&state, "v", "b.memory.dump").is_err());
        state.update(|state| state.memory_dump = Some(dump(true)));
        assert!(!is_known(&state, "v", "b.memory.dump").unwrap());
    }
}
