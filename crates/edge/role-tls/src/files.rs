//! A program's identity, which may be in files that are replaced while it runs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use crate::serving::written_at;
use crate::{Error, Identity};

/// Where a program's certificate and the CAs it trusts are.
#[derive(Clone, Debug)]
pub struct IdentityFiles {
    /// The CAs: the current one and those that are still valid.
    pub ca: PathBuf,
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// Where a program's identity comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// It stays the same.
    Fixed(Arc<Identity>),
    /// Files, looked at in every handshake.
    Files(IdentityFiles),
}

impl From<Identity> for Source {
    fn from(identity: Identity) -> Source {
        Source::Fixed(Arc::new(identity))
    }
}

impl From<IdentityFiles> for Source {
    fn from(files: IdentityFiles) -> Source {
        Source::Files(files)
    }
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    #[error("failed to read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Tls(#[from] Error),
}

type Make<T> = Box<dyn Fn(&Identity) -> Result<T, Error> + Send + Sync>;

/// Something made of an identity, made anew when the files change.
pub struct Renewed<T> {
    source: Source,
    make: Make<T>,
    current: Mutex<Option<(Written, Arc<T>)>>,
}

/// When the files were written; `None` for an identity without files.
type Written = Option<[SystemTime; 3]>;

impl<T> Renewed<T> {
    pub fn new(
        source: impl Into<Source>,
        make: impl Fn(&Identity) -> Result<T, Error> + Send + Sync + 'static,
    ) -> Renewed<T> {
        Renewed { source: source.into(), make: Box::new(make), current: Mutex::new(None) }
    }

    /// Made of the files as they are now, or as they were last valid.
    pub fn current(&self) -> Result<Arc<T>, FilesError> {
        let mut current = self.current.lock();
        let written = self.written();
        if let Some((at, made)) = &*current
            && (written.is_none() || written == *at)
        {
            return Ok(made.clone());
        }
        match (self.load(), &*current) {
            (Ok(made), _) => {
                let made = Arc::new(made);
                *current = Some((written, made.clone()));
                Ok(made)
            }
            // Between the writes of several files they do not fit; the next caller looks again.
            (Err(error), Some((_, made))) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "keeping the old certificate");
                Ok(made.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn written(&self) -> Written {
        match &self.source {
            Source::Fixed(_) => None,
            Source::Files(IdentityFiles { ca, cert, key }) => written_at([ca, cert, key]),
        }
    }

    fn load(&self) -> Result<T, FilesError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|source| FilesError::Read { path: path.clone(), source })
        };
        match &self.source {
            Source::Fixed(identity) => Ok((self.make)(identity)?),
            Source::Files(IdentityFiles { ca, cert, key }) => {
                let identity = Identity::from_pem(&read(ca)?, &read(cert)?, &read(key)?)?;
                Ok((self.make)(&identity)?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use test_support::pki::{self, Authority};

    use super::*;

    #[test]
    fn what_is_made_follows_the_files_and_survives_bad_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let files = IdentityFiles { ca: path("ca"), cert: path("crt"), key: path("key") };
        let renewed = Renewed::new(files.clone(), |identity| Ok(identity.chain[0].clone()));
        let missing = renewed.current().unwrap_err();
        assert!(missing.to_string().contains(files.ca.to_str().unwrap()), "{missing}");

        let mut age = SystemTime::UNIX_EPOCH;
        let mut write = |authority: &Authority, pair: &pki::Pair| {
            for (path, text) in [(&files.ca, authority.pem()), (&files.cert, &pair.cert), (&files.key, &pair.key)] {
                std::fs::write(path, text).unwrap();
                age += std::time::Duration::from_secs(1);
                std::fs::File::options().write(true).open(path).unwrap().set_modified(age).unwrap();
            }
        };
        let authority = Authority::new();
        write(&authority, &authority.sign(pki::named("a", &[])));
        let first = renewed.current().unwrap();
        assert!(Arc::ptr_eq(&first, &renewed.current().unwrap()), "unchanged files are not read again");
        write(&authority, &authority.sign(pki::named("b", &[])));
        let second = renewed.current().unwrap();
        assert_ne!(first, second);
        let broken = pki::Pair { cert: "no certificate".to_owned(), key: "no key".to_owned() };
        write(&authority, &broken);
        assert_eq!(renewed.current().unwrap(), second);
    }
}
