//! Removes all Pods of a node, based only on the records on disk.

use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::paths::{PodPaths, pods_on_disk};
use crate::sandbox::{PodSandbox, remove_shared_groups};
use crate::storage::Storage;

/// Kills all Pods below `pods_dir` and removes their processes, cgroups, mounts, network and files. Only for when no
/// runner uses the directory any more. Idempotent; a Pod that cannot be removed does not block the others, and all
/// errors are returned.
pub fn destroy_all(pods_dir: &Path) -> Result<(), Vec<Error>> {
    let uids = pods_on_disk(pods_dir).map_err(|e| vec![Error::io("list", pods_dir)(e)])?;
    let paths: Vec<PodPaths> = uids.iter().map(|uid| PodPaths::new(pods_dir, uid)).collect();
    let mut errors = Vec::new();
    let storage = Storage::recorded(&paths).unwrap_or_else(|error| {
        errors.push(error);
        None
    });
    let storage = storage.map(Arc::new);
    let destroy = |uid| PodSandbox::new(pods_dir, uid).with_storage(storage.clone()).destroy();
    errors.extend(uids.into_iter().filter_map(|uid| destroy(uid).err()));
    errors.extend(remove_shared_groups().err());
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
