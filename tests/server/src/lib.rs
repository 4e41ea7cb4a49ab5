//! An embedded API server for one test, on a port of the loopback and in a directory of its own.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::rights::Program;
use embedded::{Config, Server, System};
use kube::Client;
use review::Hook;
use tempfile::TempDir;
use test_support::pki::{Authority, MASTERS, Pair};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A server that serves. Serving ends when this is dropped; [`stop`](Self::stop) also closes the store.
pub struct TestServer {
    pub server: Server,
    /// Signs the certificates of its users.
    pub authority: Authority,
    /// Cancelled when serving ends.
    pub stopping: CancellationToken,
    port: u16,
    dir: TempDir,
    task: JoinHandle<()>,
    _stop: DropGuard,
}

impl TestServer {
    /// Starts a server that asks these hooks about writes and gives these programs the rights they declare.
    pub async fn start(hooks: Vec<Arc<dyn Hook>>, programs: &[Program]) -> Self {
        Self::start_at(tempfile::tempdir().unwrap(), Authority::new(), 0, hooks, programs).await
    }

    /// The same on a directory that may hold a store already, with a known authority and port; 0 for any port.
    pub async fn start_at(
        dir: TempDir,
        authority: Authority,
        port: u16,
        hooks: Vec<Arc<dyn Hook>>,
        programs: &[Program],
    ) -> Self {
        let server = Server::open(config(&authority, dir.path(), hooks)).await.unwrap();
        server.bootstrap().await.unwrap();
        server.grant(programs).await.unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stopping = CancellationToken::new();
        let (serving, stop) = (server.clone(), stopping.clone());
        let task = tokio::spawn(async move { serving.serve(listener, stop).await.unwrap() });
        let _stop = stopping.clone().drop_guard();
        Self { server, authority, stopping, port, dir, task, _stop }
    }

    /// A directory that goes with the server. The store is in it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A client of the administrator.
    pub async fn admin(&self) -> Client {
        self.client("kubernetes-admin", &[MASTERS]).await
    }

    /// A client of a user in these groups.
    pub async fn client(&self, name: &str, groups: &[&str]) -> Client {
        self.authority.client(&self.url(), name, groups).await
    }

    /// Writes a kubeconfig of a user into the server's directory.
    pub fn write_kubeconfig(&self, file: &str, name: &str, groups: &[&str]) -> PathBuf {
        let path = self.dir().join(file);
        let document = self.authority.kubeconfig(&self.url(), Some(&self.authority.issue(name, groups)));
        std::fs::write(&path, document.to_string()).unwrap();
        path
    }

    /// Ends serving, closes the store, and gives back what another server can be started with.
    pub async fn stop(self) -> (TempDir, Authority) {
        self.stopping.cancel();
        self.task.await.unwrap();
        self.server.close().await;
        (self.dir, self.authority)
    }
}

/// The configuration of a server with its store in this directory.
pub fn config(authority: &Authority, dir: &Path, hooks: Vec<Arc<dyn Hook>>) -> Config {
    let Pair { cert, key } = authority.issue("apiserver", &[]);
    let store_path = dir.join("store.redb");
    let system = System {
        namespace: api::config::DEFAULT_INSTALL_NAMESPACE.to_owned(),
        priority_classes: vec![],
        roles: api::users::roles(),
        bindings: api::users::bindings(),
    };
    Config { store_path, client_ca_pem: authority.pem().to_owned(), cert_pem: cert, key_pem: key, hooks, system }
}
