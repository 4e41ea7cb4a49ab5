//! The embedded API server with its real admission and RBAC, and the scheduler that comes with it.

use std::net::TcpListener;

use anyhow::Result;
use api::config::DEFAULT_INSTALL_NAMESPACE;
use api::rights::{Identity, Program, Right, Verb};
use api::v1::VirtualMachineInstance;
use kube::{Client, Config};
use test_support::pki::{Authority, MASTERS, Pair};
use tokio_util::sync::CancellationToken;

/// Stands in for virt-handler.
fn agent() -> Program {
    let rights = vec![Right::watch::<VirtualMachineInstance>(), Right::on::<VirtualMachineInstance>(&[Verb::Update])];
    Program { name: "kubevirt-handler", identity: Identity::Account, rights }
}

/// Everything ends with it.
pub(crate) struct Embedded {
    pub(super) admin: Client,
    authority: Authority,
    url: String,
    stop: CancellationToken,
    server: embedded::Server,
    _dir: tempfile::TempDir,
}

impl Embedded {
    pub(crate) async fn start() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let authority = Authority::new();
        let Pair { cert, key } = authority.issue("apiserver", &[]);
        let admission = std::sync::Arc::<virt_api::Admission>::default();
        // Its usual nodes cannot run all that the controllers can decide about; these here pretend anyway.
        admission.accept_unsupported();
        let config = embedded::Config {
            store_path: dir.path().join("store.redb"),
            client_ca_pem: authority.pem().to_owned(),
            cert_pem: cert,
            key_pem: key,
            hooks: vec![admission],
        };
        let server = embedded::Server::open(config).await?;
        server.bootstrap().await?;
        server.grant(&[virt_controller::program(virt_controller::ALL), agent()]).await?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("https://{}", listener.local_addr()?);
        let stop = CancellationToken::new();
        tokio::spawn({
            let (server, stop) = (server.clone(), stop.clone());
            async move { server.serve(listener, stop).await.unwrap() }
        });
        let scheduler = authority.client(&url, "system:kube-scheduler", &["system:authenticated"]).await;
        tokio::spawn(embedded::scheduler::run(scheduler, stop.clone()));
        let admin = authority.client(&url, "kubernetes-admin", &[MASTERS]).await;
        Ok(Self { admin, authority, url, stop, server, _dir: dir })
    }

    pub(super) async fn controller(&self) -> Config {
        let account = virt_controller::program(virt_controller::ALL).user(DEFAULT_INSTALL_NAMESPACE);
        let pair = self.authority.issue(&account, &["system:serviceaccounts"]);
        self.authority.client_config(&self.url, Some(&pair)).await
    }

    pub(super) async fn agent(&self, node: &str) -> Client {
        let group = format!("ferrovirt:node:{node}");
        self.authority.client(&self.url, "system:serviceaccount:kubevirt:kubevirt-handler", &[&group]).await
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop.cancel();
        // The store is closed before its folder goes.
        let server = self.server.clone();
        tokio::task::block_in_place(|| crate::runtime().block_on(server.close()));
    }
}
