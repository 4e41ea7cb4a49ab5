//! virt-handler's client of virt-launcher: JSON over HTTP/1.1 on the launcher's Unix socket.
//!
//! Requests, documents and the rules they follow are in [`launcher_contract`]; the launcher's side of the socket is
//! virt-launcher's `server`.

mod client;

pub use client::{Client, Error};
