//! virt-controller: the controllers of VirtualMachines, VirtualMachineInstances, their migrations, and nodes.
//!
//! ```text
//! one watch per kind ──► stores ──► queues ──► observe ──► plan::{vm,vmi,…}::decide ──► execute ──► API
//! ```
//!
//! This crate makes no decisions: `observe` builds a `World` from the stores and `execute` executes the effects. The
//! decisions are in `plan`.
//!
//! A controller is a value ([`Controller`]) in a list ([`ALL`]). [`run`] is the program. [`Controllers`] can also be
//! driven by hand, over other caches and another implementation of the API.

pub mod api;
mod budget;
mod config;
mod context;
pub mod controller;
mod controllers;
pub mod docs;
mod endpoints;
mod error;
mod evacuation;
mod execute;
mod memory;
mod migration;
mod moves;
mod node;
mod owned;
mod prune;
pub mod reconcile;
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
pub use crate::context::{Context, Shared};
pub use crate::controller::Controller;
pub use crate::controllers::{ALL, Controllers, Running, Settings};
pub use crate::endpoints::{Endpoints, EndpointsError};
pub use crate::error::Error;
pub use crate::memory::Memory;
pub use crate::rights::program;
pub use crate::run::{Config, LEASE, OnConfiguration, run};
pub use crate::status::Status;
pub use crate::stores::{Feeds, Stores};
pub use crate::writer::WriteCounter;
pub use plan::vmi::Settings as InstanceSettings;
