//! The embedded API server with its real admission and RBAC, the scheduler that comes with it, and the volume controller.

use std::sync::Arc;

use api::config::DEFAULT_INSTALL_NAMESPACE;
use api::rights::{Identity, Program, Right, Verb};
use api::v1::VirtualMachineInstance;
use kube::{Client, Config};
use test_server::TestServer;
use volumeplan::{NodeName, Reach};
use volumes::Engine;

/// Stands in for virt-handler.
fn agent() -> Program {
    let rights = vec![Right::watch::<VirtualMachineInstance>(), Right::on::<VirtualMachineInstance>(&[Verb::Update])];
    Program { name: "kubevirt-handler", identity: Identity::Account, rights }
}

/// A pool that is there, and has no volumes: those of these tests are made by hand.
fn pool(server: &TestServer) -> Arc<Engine> {
    let pool = server.dir().join("pool");
    std::fs::create_dir(&pool).expect("the server's folder is ours");
    let node = NodeName::parse("supervisor").expect("it is a name");
    let config = volumes::Config { reach: Reach::Shared, ..volumes::Config::local(pool, node) };
    Arc::new(Engine::open(config).expect("the pool is new"))
}

/// Everything ends with it.
pub(crate) struct Embedded {
    pub(super) admin: Client,
    server: Option<TestServer>,
}

impl Embedded {
    pub(crate) async fn start() -> Self {
        let admission = Arc::<virt_api::Admission>::default();
        // Its usual nodes cannot run all that the controllers can decide about; these here pretend anyway.
        admission.accept_unsupported();
        let programs = [virt_controller::program(virt_controller::ALL), agent(), volume_controller::program()];
        let server = TestServer::start(vec![admission], &programs).await;
        let scheduler = server.client("system:kube-scheduler", &["system:authenticated"]).await;
        tokio::spawn(embedded::scheduler::run(scheduler, server.stopping.clone()));
        let account = volume_controller::program().user(DEFAULT_INSTALL_NAMESPACE);
        let client = server.client(&account, &["system:serviceaccounts"]).await;
        let config = volume_controller::Config { client, engine: pool(&server) };
        tokio::spawn(volume_controller::run(config, server.stopping.clone()));
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
