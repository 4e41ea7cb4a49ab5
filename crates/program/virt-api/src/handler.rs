//! Requests to virt-handler.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::annotations::HANDLER_ADDRESS;
use api::labels;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams};
use launcher_contract::HANDLER_PORT;
use rustls::pki_types::ServerName;
use subresources::Refusal;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::handshake::{client::generate_key, derive_accept_key};

use crate::HandlerTls;
use crate::dial::Dialer;
use crate::stream::{Raw, SUBPROTOCOL};

/// Timeout for connecting, and for an ordinary request as a whole.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response. The largest real one is the list of the guest's file systems.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Finds and calls virt-handlers.
#[derive(Clone)]
pub(crate) struct Handlers {
    pub(crate) client: kube::Client,
    pub(crate) dialer: Arc<dyn Dialer>,
    pub(crate) tls: HandlerTls,
    /// The namespace of the virt-handler Pods.
    pub(crate) namespace: String,
}

/// The virt-handler of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeAgent {
    node: String,
    address: SocketAddr,
}

/// Why a request to virt-handler failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandlerError {
    #[error("failed to connect to virt-handler at {0}")]
    Connect(SocketAddr, #[source] std::io::Error),
    #[error("virt-handler at {0} did not respond within {TIMEOUT:?}")]
    Timeout(SocketAddr),
    #[error("connection to virt-handler at {0} broke")]
    Http(SocketAddr, #[source] hyper::Error),
    #[error("failed to build a request for virt-handler")]
    Request(#[source] http::Error),
    #[error("failed to read virt-handler's response")]
    Answer(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("virt-handler refused: {message}")]
    Refused { code: StatusCode, message: String },
    #[error("virt-handler at {0} uses a different stream protocol")]
    Handshake(SocketAddr),
}

impl From<HandlerError> for Refusal {
    /// Uses virt-handler's message if there is one; connection details go to the log.
    fn from(error: HandlerError) -> Self {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        tracing::warn!(%error, cause, "request to virt-handler failed");
        match error {
            HandlerError::Refused { message, .. } => Refusal::internal(message),
            other => Refusal::internal(other),
        }
    }
}

impl Handlers {
    /// A node's virt-handler.
    pub(crate) async fn of_node(&self, node: &str) -> Result<NodeAgent, Refusal> {
        Ok(NodeAgent { node: node.to_owned(), address: self.address(node).await? })
    }

    /// Address of a node's virt-handler: its Pod on that node, or the node's annotation.
    async fn address(&self, node: &str) -> Result<SocketAddr, Refusal> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let selector = ListParams::default().labels(&format!("{}=virt-handler", labels::APP));
        let pods = pods.list(&selector).await.map_err(|error| lookup_failed(node, &error))?;
        let on_node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let addresses: Vec<Option<String>> =
            pods.items.into_iter().filter(on_node).map(|pod| pod.status.and_then(|status| status.pod_ip)).collect();
        match addresses.as_slice() {
            [] => self.address_on_node(node).await,
            [Some(ip)] => match ip.parse() {
                Ok(ip) => Ok(SocketAddr::new(ip, HANDLER_PORT)),
                Err(_) => Err(Refusal::bad_request(format!("virt-handler's Pod on node {node:?} has no valid IP"))),
            },
            [None] => Err(Refusal::bad_request(format!("virt-handler's Pod on node {node:?} has no IP yet"))),
            // Old and new Pods overlap during a DaemonSet rollout; it is unknown which one owns the guest.
            _ => Err(Refusal::bad_request(format!("node {node:?} has more than one virt-handler Pod; retry shortly"))),
        }
    }

    async fn address_on_node(&self, node: &str) -> Result<SocketAddr, Refusal> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let found = nodes.get_opt(node).await.map_err(|error| lookup_failed(node, &error))?;
        let annotations = found.and_then(|node| node.metadata.annotations).unwrap_or_default();
        match annotations.get(HANDLER_ADDRESS).map(|address| address.parse()) {
            Some(Ok(address)) => Ok(address),
            _ => Err(Refusal::bad_request(format!("virt-handler is not running on node {node:?}"))),
        }
    }

    /// Sends an ordinary request; returns the response body on success.
    pub(crate) async fn request(
        &self,
        agent: &NodeAgent,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Bytes, HandlerError> {
        let address = agent.address;
        let call = async {
            let request = Request::builder().method(method).uri(path);
            let request =
                request.header(header::HOST, address.to_string()).header(header::CONTENT_TYPE, "application/json");
            let request = request.body(Full::new(body)).map_err(HandlerError::Request)?;
            let response = self.send(agent, request).await?;
            let code = response.status();
            let body = read(response).await?;
            if code.is_success() {
                return Ok(body);
            }
            Err(HandlerError::Refused { code, message: words(code, &body) })
        };
        tokio::time::timeout(TIMEOUT, call).await.unwrap_or(Err(HandlerError::Timeout(address)))
    }

    /// Opens a stream: performs a WebSocket handshake and returns the connection.
    pub(crate) async fn stream(&self, agent: &NodeAgent, path: &str) -> Result<Raw, HandlerError> {
        let address = agent.address;
        let call = async {
            let key = generate_key();
            let request = Request::get(path)
                .header(header::HOST, address.to_string())
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_VERSION, "13")
                .header(header::SEC_WEBSOCKET_KEY, &key)
                .header(header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL)
                .body(Full::new(Bytes::new()))
                .map_err(HandlerError::Request)?;
            let response = self.send(agent, request).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                let code = response.status();
                let body = read(response).await?;
                return Err(HandlerError::Refused { code, message: words(code, &body) });
            }
            let headers = response.headers();
            let accepted =
                headers.get(header::SEC_WEBSOCKET_ACCEPT).is_some_and(|v| v == &derive_accept_key(key.as_bytes()));
            let plain = headers.get(header::SEC_WEBSOCKET_PROTOCOL).is_some_and(|v| v == SUBPROTOCOL);
            if !accepted || !plain || headers.contains_key(header::SEC_WEBSOCKET_EXTENSIONS) {
                return Err(HandlerError::Handshake(address));
            }
            let upgraded = hyper::upgrade::on(response).await.map_err(|err| HandlerError::Http(address, err))?;
            Ok(TokioIo::new(upgraded))
        };
        tokio::time::timeout(TIMEOUT, call).await.unwrap_or(Err(HandlerError::Timeout(address)))
    }

    async fn send(&self, agent: &NodeAgent, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, HandlerError> {
        let address = agent.address;
        let tcp = self.dialer.dial(address).await.map_err(|err| HandlerError::Connect(address, err))?;
        // Console keystrokes are single bytes; Nagle's algorithm would add noticeable latency.
        tcp.set_nodelay(true).map_err(|err| HandlerError::Connect(address, err))?;
        let name = ServerName::IpAddress(address.ip().into());
        let config = (self.tls)(&agent.node).map_err(|err| HandlerError::Connect(address, err))?;
        let tls =
            TlsConnector::from(config).connect(name, tcp).await.map_err(|err| HandlerError::Connect(address, err))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(tls)).await.map_err(|err| HandlerError::Http(address, err))?;
        tokio::spawn(async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection to virt-handler ended");
            }
        });
        sender.send_request(request).await.map_err(|err| HandlerError::Http(address, err))
    }
}

fn lookup_failed(node: &str, error: &kube::Error) -> Refusal {
    tracing::warn!(node, %error, "failed to find virt-handler of the node");
    Refusal::internal(format!("failed to find virt-handler of node {node:?}"))
}

async fn read(response: Response<Incoming>) -> Result<Bytes, HandlerError> {
    let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(HandlerError::Answer)?;
    Ok(body.to_bytes())
}

/// The message of a refusal: the `message` of a Status, or else the body, or else the status code.
fn words(code: StatusCode, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body).trim().to_owned();
    let status: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let message = status.as_ref().and_then(|status| status.get("message")?.as_str());
    match message {
        Some(message) => message.to_owned(),
        None if text.is_empty() => code.to_string(),
        None => text,
    }
}
