//! Every kind of the API as plain types, with shared constants: labels, annotations, conditions, reasons.
//!
//! Nothing here does I/O, reads a clock or depends on a client.

pub mod annotations;
pub mod backup;
pub mod cdi;
pub mod clone;
pub mod conditions;
pub mod config;
mod crds;
pub mod events;
pub mod export;
pub mod finalizers;
pub mod gates;
pub mod instances;
pub mod instancetype;
mod kind;
pub mod labels;
pub mod migrations;
pub mod nad;
pub mod plugin;
pub mod pool;
pub mod reasons;
pub mod resources;
pub mod schema;
pub mod snapshot;
pub mod users;
pub mod v1;
pub mod volumesnapshot;

pub use crds::crds;
pub use machinery::rights;
