//! HTTP from servers that are not trusted: bounded redirects, time limits, and transfers that continue after a broken connection.

mod client;
mod resume;
mod tls;

pub(crate) use client::{Client, Error, Get};
pub(crate) use resume::Transfer;
pub(crate) use tls::Trust;
