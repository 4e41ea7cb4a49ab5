//! virt-controller: the controllers of VirtualMachines, VirtualMachineInstances, their migrations, and nodes.
//!
//! ```text
//! one watch per kind ──► stores ──► queues ──► observe ──► plan::{vm,vmi,…}::decide ──► execute ──► API
//! ```
//!
//! Nothing in here judges: `observe` gathers a `World` from the stores, `execute` carries `Action`s out. What is right
//! for a VM is written in `plan`.
//!
//! [`run`] is the program. [`Controllers`] are its working parts, which can also be driven by hand over caches and an API
//! of one's own.

pub mod api;
mod budget;
mod config;
mod context;
mod controllers;
mod endpoints;
mod error;
mod evacuation;
mod migration;
mod moves;
mod node;
mod owned;
mod prune;
mod reconcile;
mod rights;
mod run;
mod status;
pub mod stores;
mod synchronization;
mod topology;
mod vm;
mod vmi;
mod volumes;
mod workload;
mod writer;

pub use crate::api::{Api, KubeApi, Notes};
pub use crate::config::LiveConfig;
pub use crate::controllers::{Controllers, Reconciler, Settings};
pub use crate::endpoints::{Certificate, Endpoints, EndpointsError};
pub use crate::error::Error;
pub use crate::rights::program;
pub use crate::run::{Config, LEASE, OnConfiguration, run};
pub use crate::status::Status;
pub use crate::stores::{Feeds, Stores};
pub use crate::writer::WriteCounter;
pub use plan::vmi::Settings as InstanceSettings;
