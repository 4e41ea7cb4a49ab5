//! The store in a single redb file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ::redb::{Builder, Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::{Change, Engine, StoreError};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const REVISION: &str = "revision";

/// Reads happen only at startup; a page cache beyond the working set of one commit would waste memory.
const CACHE_BYTES: usize = 2 << 20;

/// Below this size compaction at startup is not worth its time.
const COMPACT_ABOVE: u64 = 32 << 20;

pub(crate) struct RedbEngine {
    path: PathBuf,
    /// `None` while a failed commit waits for [`Engine::reopen`]: redb rejects everything until then.
    database: Option<Database>,
}

impl RedbEngine {
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { path: path.to_owned(), database: Some(open_database(path)?) })
    }

    fn try_commit(&self, revision: u64, changes: &[Change]) -> Result<(), ::redb::Error> {
        let Some(database) = &self.database else { return Err(::redb::Error::DatabaseClosed) };
        let transaction = database.begin_write()?;
        {
            let mut objects = transaction.open_table(OBJECTS)?;
            for change in changes {
                match &change.value {
                    Some(bytes) => objects.insert(change.key.as_str(), bytes.as_slice())?,
                    None => objects.remove(change.key.as_str())?,
                };
            }
            transaction.open_table(META)?.insert(REVISION, revision)?;
        }
        Ok(transaction.commit()?)
    }

    fn try_load(&self, each: &mut dyn FnMut(&str, &[u8])) -> Result<u64, ::redb::Error> {
        let Some(database) = &self.database else { return Err(::redb::Error::DatabaseClosed) };
        let transaction = database.begin_read()?;
        for entry in transaction.open_table(OBJECTS)?.iter()? {
            let (key, value) = entry?;
            each(key.value(), value.value());
        }
        let meta = transaction.open_table(META)?;
        Ok(meta.get(REVISION)?.map_or(0, |found| found.value()))
    }
}

impl Engine for RedbEngine {
    fn load(&self, each: &mut dyn FnMut(&str, &[u8])) -> Result<u64, StoreError> {
        self.try_load(each).map_err(|err| StoreError::failed("read", &self.path, err))
    }

    fn commit(&mut self, revision: u64, changes: &[Change]) -> Result<(), StoreError> {
        self.try_commit(revision, changes).map_err(|err| StoreError::failed("write", &self.path, err))
    }

    fn reopen(&mut self) -> Result<u64, StoreError> {
        self.database = None; // releases the lock that the next line takes again
        self.database = Some(open_database(&self.path)?);
        self.load(&mut |_, _| {})
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        let size = std::fs::metadata(&self.path).map_or(0, |file| file.len());
        let Some(database) = &mut self.database else { return Ok(()) };
        if size < COMPACT_ABOVE {
            return Ok(());
        }
        let compacted = database.compact().map_err(::redb::Error::from);
        compacted.map(drop).map_err(|err| StoreError::failed("compact", &self.path, err))
    }
}

fn open_database(path: &Path) -> Result<Database, StoreError> {
    let file = open_file(path)?;
    let database = Builder::new().set_cache_size(CACHE_BYTES).create_file(file).map_err(|err| match err {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.to_owned() },
        other => StoreError::Open { path: path.to_owned(), source: Box::new(other) },
    })?;
    // Create the tables at once, so that loading an empty store is not a special case.
    create_tables(&database).map_err(|err| StoreError::failed("initialise", path, err))?;
    Ok(database)
}

fn create_tables(database: &Database) -> Result<(), ::redb::Error> {
    let reader = database.begin_read()?;
    if reader.open_table(OBJECTS).is_ok() && reader.open_table(META).is_ok() {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    transaction.open_table(OBJECTS)?;
    transaction.open_table(META)?;
    Ok(transaction.commit()?)
}

/// Only the owner may read the file, since it contains Secrets.
fn open_file(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(|err| StoreError::Open { path: path.to_owned(), source: Box::new(err) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> Change {
        Change { key: key.to_owned(), value: Some(value.as_bytes().to_vec()) }
    }

    fn contents(engine: &RedbEngine) -> (u64, Vec<(String, String)>) {
        let mut found = Vec::new();
        let revision = engine
            .load(&mut |key, value| found.push((key.to_owned(), String::from_utf8(value.to_vec()).unwrap())))
            .unwrap();
        (revision, found)
    }

    #[test]
    fn a_commit_survives_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let mut engine = RedbEngine::open(&path).unwrap();
        assert_eq!(contents(&engine), (0, vec![]));
        engine.commit(2, &[put("/a", "1"), put("/b", "2")]).unwrap();
        engine.commit(3, &[Change { key: "/a".into(), value: None }]).unwrap();
        assert_eq!(engine.reopen().unwrap(), 3);
        assert_eq!(contents(&engine), (3, vec![("/b".into(), "2".into())]));
    }

    #[test]
    fn compaction_gives_the_space_of_old_values_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let mut engine = RedbEngine::open(&path).unwrap();
        for revision in 1..=3 {
            let value = vec![b'x'; 16 << 20];
            engine.commit(revision, &[Change { key: "/a".into(), value: Some(value) }]).unwrap();
        }
        engine.commit(4, &[put("/a", "small")]).unwrap();
        let before = std::fs::metadata(&path).unwrap().len();
        engine.compact().unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < before / 4, "was {before}");
        assert_eq!(contents(&engine), (4, vec![("/a".into(), "small".into())]));
    }

    #[test]
    fn a_second_engine_on_the_same_file_is_told_who_is_in_the_way() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let _first = RedbEngine::open(&path).unwrap();
        let err = RedbEngine::open(&path).err().expect("the lock must hold");
        assert!(matches!(err, StoreError::InUse { .. }), "{err}");
    }

    #[test]
    fn the_file_is_readable_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.redb");
        let _engine = RedbEngine::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
