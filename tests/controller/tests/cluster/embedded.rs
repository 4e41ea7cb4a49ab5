//! The embedded API server with its real admission and RBAC, and the scheduler that comes with it.

use api::config::DEFAULT_INSTALL_NAMESPACE;
use api::rights::{Identity, Program, Right, Verb};
use api::v1::VirtualMachineInstance;
use kube::{Client, Config};
use test_server::TestServer;

/// Stands in for virt-handler.
fn agent() -> Program {
    let rights = vec![Right::watch::<VirtualMachineInstance>(), Right::on::<VirtualMachineInstance>(&[Verb::Update])];
    Program { name: "kubevirt-handler", identity: Identity::Account, rights }
}

/// Everything ends with it.
pub(crate) struct Embedded {
    pub(super) admin: Client,
    server: Option<TestServer>,
}

impl Embedded {
    pub(crate) async fn start() -> Self {
        let admission = std::sync::Arc::<virt_api::Admission>::default();
        // Its usual nodes cannot run all that the controllers can decide about; these here pretend anyway.
        admission.accept_unsupported();
        let programs = [virt_controller::program(virt_controller::ALL), agent()];
        let server = TestServer::start(vec![admission], &programs).await;
        let scheduler = server.client("system:kube-scheduler", &["system:authenticated"]).await;
        tokio::spawn(embedded::scheduler::run(scheduler, server.stopping.clone()));
        let admin = server.admin().await;
        Self { admin, server: Some(server) }
    }

    fn server(&self) -> &TestServer {
        self.server.as_ref().expect("the server goes last")
    }

    pub(super) async fn controller(&self) -> Config {
        let account = virt_controller::program(virt_controller::ALL).user(DEFAULT_INSTALL_NAMESPACE);
        let authority = &self.server().authority;
        let pair = authority.issue(&account, &["system:serviceaccounts"]);
        authority.client_config(&self.server().url(), Some(&pair)).await
    }

    pub(super) async fn agent(&self, node: &str) -> Client {
        let group = format!("ferrovirt:node:{node}");
        self.server().client("system:serviceaccount:kubevirt:kubevirt-handler", &[&group]).await
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // The store is closed before its folder goes.
        if let Some(server) = self.server.take() {
            tokio::task::block_in_place(|| crate::runtime().block_on(server.stop()));
        }
    }
}
