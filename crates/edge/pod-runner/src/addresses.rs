//! Addresses of Pods: one file per allocated address, containing the UID of its Pod.
//!
//! A file is created atomically with its content, and only if it does not exist, so two Pods never get the same
//! address, whichever process dies when. A Pod that asks again gets the same address.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;

use crate::paths::{PodUid, digest};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("all addresses of {network} are taken by Pods")]
    Exhausted { network: Ipv4Net },
    #[error("failed to {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    dir: PathBuf,
}

impl Addresses {
    /// The address files next to a Pod directory.
    pub(crate) fn of(pods_dir: &Path) -> Addresses {
        Addresses { dir: pods_dir.with_file_name("addresses") }
    }

    /// The address allocated to this Pod.
    pub(crate) fn held_by(&self, uid: &PodUid) -> Result<Option<Ipv4Addr>, Error> {
        Ok(self.taken()?.into_iter().find(|(_, holder)| holder == uid.as_str()).map(|(address, _)| address))
    }

    /// Allocates an address for the Pod. The search starts at a position derived from its UID: a recently released
    /// address, which peers may still remember, is unlikely to be reused next.
    pub(crate) fn take(&self, uid: &PodUid, network: Ipv4Net) -> Result<Ipv4Addr, Error> {
        if let Some(address) = self.held_by(uid)?
            && network.contains(&address)
        {
            return Ok(address);
        }
        fs::create_dir_all(&self.dir).map_err(failed("make", &self.dir))?;
        let draft = self.dir.join(format!("{}{}", draft_prefix(uid), std::process::id()));
        fs::write(&draft, uid.as_str()).map_err(failed("write", &draft))?;
        let result = self.take_first_free(&draft, uid, network);
        let _ = fs::remove_file(&draft);
        result
    }

    fn take_first_free(&self, draft: &Path, uid: &PodUid, network: Ipv4Net) -> Result<Ipv4Addr, Error> {
        // Skip the network address, the bridge's and the broadcast address.
        let first = u64::from(u32::from(network.network())) + 2;
        let usable = u64::from(u32::from(network.broadcast())).saturating_sub(first);
        for n in 0..usable {
            let number = first + (digest(uid) + n) % usable;
            let address = Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX));
            let path = self.dir.join(address.to_string());
            match fs::hard_link(draft, &path) {
                Ok(()) => return Ok(address),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(err) => return Err(failed("take", &path)(err)),
            }
        }
        Err(Error::Exhausted { network })
    }

    /// Releases the Pod's address, if any, and temporary files left by a process that was killed during allocation.
    pub(crate) fn give_back(&self, uid: &PodUid) -> Result<(), Error> {
        for (address, holder) in self.taken()? {
            if holder == uid.as_str() {
                let path = self.dir.join(address.to_string());
                fs::remove_file(&path).map_err(failed("give back", &path))?;
            }
        }
        for entry in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&draft_prefix(uid)) {
                fs::remove_file(entry.path()).map_err(failed("remove", &entry.path()))?;
            }
        }
        Ok(())
    }

    /// Releases addresses of Pods without state on disk.
    pub(crate) fn reclaim(&self, known: &[PodUid]) -> Result<(), Error> {
        for (address, holder) in self.taken()? {
            if !known.iter().any(|uid| uid.as_str() == holder) {
                let path = self.dir.join(address.to_string());
                fs::remove_file(&path).map_err(failed("give back", &path))?;
            }
        }
        Ok(())
    }

    fn taken(&self) -> Result<Vec<(Ipv4Addr, String)>, Error> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(err) => return Err(failed("list", &self.dir)(err)),
        };
        let mut taken = Vec::new();
        for entry in entries.flatten() {
            let Some(address) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
            match fs::read_to_string(entry.path()) {
                Ok(holder) => taken.push((address, holder)),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {} // released meanwhile
                Err(err) => return Err(failed("read", &entry.path())(err)),
            }
        }
        Ok(taken)
    }
}

/// Prefix of temporary files.
fn draft_prefix(uid: &PodUid) -> String {
    format!(".{uid}.")
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
    move |err| Error::Io { doing, path: path.to_owned(), err }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn uid(n: usize) -> PodUid {
        format!("pod-{n}").parse().unwrap()
    }

    #[test]
    fn every_pod_gets_its_own_address_until_none_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::of(&dir.path().join("pods"));
        let network: Ipv4Net = "10.244.3.0/29".parse().unwrap();
        let given: BTreeSet<_> = (0..5).map(|n| addresses.take(&uid(n), network).unwrap()).collect();
        let all: BTreeSet<Ipv4Addr> = (2..7).map(|n| Ipv4Addr::new(10, 244, 3, n)).collect();
        assert_eq!(given, all);
        assert_eq!(addresses.take(&uid(1), network).unwrap(), addresses.held_by(&uid(1)).unwrap().unwrap());
        let error = addresses.take(&uid(9), network).unwrap_err();
        assert_eq!(error.to_string(), "all addresses of 10.244.3.0/29 are taken by Pods");

        addresses.give_back(&uid(2)).unwrap();
        addresses.give_back(&uid(2)).unwrap();
        addresses.take(&uid(9), network).unwrap();
        addresses.reclaim(&[uid(0), uid(9)]).unwrap();
        assert_eq!(addresses.taken().unwrap().len(), 2);
    }

    #[test]
    fn pods_that_ask_at_the_same_time_never_share() {
        let dir = tempfile::tempdir().unwrap();
        let addresses = Addresses::of(&dir.path().join("pods"));
        let network: Ipv4Net = "10.244.3.0/24".parse().unwrap();
        let given: Vec<Ipv4Addr> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..100)
                .map(|n| {
                    s.spawn({
                        let a = addresses.clone();
                        move || a.take(&uid(n), network).unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert_eq!(given.iter().collect::<BTreeSet<_>>().len(), 100);
    }
}
