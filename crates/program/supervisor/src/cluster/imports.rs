//! The cluster's importer: DataVolumes, and uploads on the host's loopback.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use import_controller::{Config, PARALLEL, Proxy, Tokens};
use volumes::Engine;

use super::identities;
use super::layout::Layout;
use super::pki::Pki;

/// This program, even if its file has been replaced: the importer and its workers have to be of one version.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// The key of upload tokens.
pub(super) fn tokens(layout: &Layout) -> Result<Tokens> {
    Tokens::open(&layout.pki().join("upload-tokens.key")).context("cannot use the key of upload tokens")
}

/// The socket for uploads: on the recorded port if that is free, else on any.
pub(super) fn listen(recorded: u16) -> Result<TcpListener> {
    let bind = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    bind(recorded).or_else(|_| bind(0)).context("cannot listen on 127.0.0.1 for uploads")
}

/// The importer's configuration.
pub(super) fn config(
    layout: &Layout,
    pki: &Pki,
    client: kube::Client,
    engine: Arc<Engine>,
    tokens: Tokens,
    listener: TcpListener,
) -> Result<Config> {
    let pair = pki.pair("upload-proxy", &identities::UPLOAD_PROXY)?;
    let address = listener.local_addr().context("cannot read the address of the socket for uploads")?;
    Ok(Config {
        client,
        engine,
        worker: PathBuf::from(THIS_PROGRAM),
        scratch: layout.imports(),
        parallel: PARALLEL,
        proxy: Proxy { listener, cert_pem: pair.cert, key_pem: pair.key, url: format!("https://{address}"), tokens },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_for_uploads_is_kept_where_it_can_be() {
        let first = listen(0).unwrap();
        let port = first.local_addr().unwrap().port();
        let other = listen(port).unwrap().local_addr().unwrap().port();
        assert_ne!(other, port, "somebody else has it");
        drop(first);
        assert_eq!(listen(port).unwrap().local_addr().unwrap().port(), port);
    }
}
