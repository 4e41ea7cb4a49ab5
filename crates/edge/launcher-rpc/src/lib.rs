//! virt-handler's client of virt-launcher: JSON over HTTP/1.1 on the launcher's Unix socket.
//!
//! Requests, documents and their rules are in [`launcher_contract`]; the server side is virt-launcher's `server`.

mod client;

pub use client::{Client, Error};
