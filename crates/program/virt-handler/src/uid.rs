//! UIDs that are used as file and directory names on the node.

pub(crate) use launcher_contract::{MigrationUid, VmiUid};
pub(crate) use machinery::uid::PodUid;
