//! Takes every Pod of a node away, from what is recorded on disk alone.

use std::path::Path;

use crate::error::Error;
use crate::paths::pods_on_disk;
use crate::sandbox::{PodSandbox, remove_shared_groups};

/// Ends all Pods below `pods_dir` at once: processes, control groups, mounts, network, files. For when no runner works
/// there any more. Harmless to repeat; a Pod that cannot be removed does not keep the others, and all failures are
/// returned.
pub fn destroy_all(pods_dir: &Path) -> Result<(), Vec<Error>> {
    let uids = pods_on_disk(pods_dir).map_err(|e| vec![Error::io("list", pods_dir)(e)])?;
    let mut errors: Vec<Error> =
        uids.into_iter().filter_map(|uid| PodSandbox::new(pods_dir, uid).destroy().err()).collect();
    errors.extend(remove_shared_groups().err());
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}
