//! The live checks of this controller.

use std::fmt;

use api::v1::VirtualMachineInstanceMigration as Migration;

use super::world::World;
use crate::effect::{Deed, Doubt, Effect, Query};
use crate::meta;
use crate::object::{Kind, Object};

/// Every effect this controller can have.
pub type Action = Effect<Look>;

/// What is verified by a live read before a VMI is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// The migrations of both sides are unchanged since the cached version.
    CurrentMigrations,
}

/// The migrations that must not have changed.
fn seen(w: &World) -> impl Iterator<Item = &Migration> {
    w.peers.iter().map(|peer| peer.migration.as_ref()).chain([w.migration.as_ref()])
}

impl Deed for Look {}

impl Doubt<World> for Look {
    fn queries(&self, w: &World) -> Vec<Query> {
        let query =
            |seen: &Migration| Query::get(Kind::Migration, meta::namespace(&seen.metadata), meta::name(&seen.metadata));
        seen(w).map(query).collect()
    }

    fn holds(&self, w: &World, found: &[Object]) -> bool {
        seen(w).all(|seen| found.iter().any(|live| is_same(live, seen)))
    }
}

/// Whether a migration read live equals the cached one in everything that would rule out the write.
fn is_same(live: &Object, seen: &Migration) -> bool {
    let Object::Migration(live) = live else { return false };
    live.metadata.uid == seen.metadata.uid
        && live.metadata.deletion_timestamp == seen.metadata.deletion_timestamp
        && live.phase() == seen.phase()
}

impl fmt::Display for Look {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::CurrentMigrations = self;
        f.write_str("a live read shows both migrations unchanged")
    }
}
