//! The subresource API: start, stop, pause, unpause, console, VNC and port forwarding.
//!
//! ```text
//! request ─► (authentication and authorisation, a layer around the router) ─► route
//!              route: fetch the objects ─► decide (the crate `subresources`)
//!                       ─► patch the objects, or ask virt-handler, or join two streams
//! ```
//!
//! Requests reach the router authenticated and authorised: by the embedded API server, or on Kubernetes by a layer of
//! [`server`]. The routes do not check the user.

mod dial;
mod discovery;
mod handler;
mod hook;
mod portforward;
mod rights;
mod routes;
pub mod server;
mod stream;

use std::sync::Arc;

use serde::Serialize;
use tokio_util::sync::CancellationToken;

pub use dial::{Dialer, LocalDialer};
pub use discovery::subresources;
pub use hook::{Admission, PinImage, PinImages};
pub use rights::{program, program_on_kubernetes};
pub use stream::SUBPROTOCOL;

/// The current TLS configuration for connections to the virt-handler of a node; certificates may be replaced while we
/// run.
pub type HandlerTls = Arc<dyn Fn(&str) -> std::io::Result<Arc<rustls::ClientConfig>> + Send + Sync>;

/// One that never changes.
pub fn fixed(client: role_tls::NodeClient) -> HandlerTls {
    Arc::new(move |node| Ok(client.to(node)))
}

/// Dependencies of the router.
#[derive(Clone)]
pub struct State {
    /// The Kubernetes API client, with virt-api's own rights.
    pub client: kube::Client,
    /// Dials virt-handlers and guests.
    pub dialer: Arc<dyn Dialer>,
    /// Mutual TLS with virt-handler: this server authenticates as virt-api, the peer as the virt-handler
    /// of the node that is asked for.
    pub handler_tls: HandlerTls,
    /// The namespace the components run in.
    pub namespace: String,
    /// The response of `version`.
    pub version: Version,
    /// Closes open streams.
    pub shutdown: CancellationToken,
}

/// Build information, in the format `virtctl version` reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Version, like a tag of the repository.
    pub git_version: String,
    /// Commit the build was made from.
    pub git_commit: String,
    /// `clean` or `dirty`.
    pub git_tree_state: String,
    /// When it was built.
    pub build_date: String,
    /// The compiler's version; clients expect this field name.
    pub go_version: String,
    /// The compiler.
    pub compiler: String,
    /// Operating system and architecture, as in `linux/amd64`.
    pub platform: String,
}

impl Version {
    /// The version of this program.
    pub fn of_this_build() -> Version {
        Version {
            git_version: format!("v{}", env!("CARGO_PKG_VERSION")),
            compiler: "rustc".to_owned(),
            platform: "linux/amd64".to_owned(),
            ..Version::default()
        }
    }
}

/// The routes below `/apis/subresources.kubevirt.io`.
pub fn router(state: State) -> axum::Router {
    let handlers = handler::Handlers {
        client: state.client.clone(),
        dialer: state.dialer,
        tls: state.handler_tls,
        namespace: state.namespace.clone(),
    };
    routes::router(routes::Server {
        client: state.client,
        handlers,
        namespace: state.namespace,
        version: state.version,
        shutdown: state.shutdown,
    })
}
