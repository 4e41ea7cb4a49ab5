//! A world for the router: certificates, a node agent on the loopback, and a Kubernetes API of a few objects.

pub(crate) mod agent;
pub(crate) mod cluster;
pub(crate) mod pki;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::HeaderValue;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_util::sync::CancellationToken;
use virt_api::{Dialer, State, Version};

use agent::Agent;
use cluster::Cluster;

/// Whatever is waited for in a test comes within this time or not at all.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Remembers where a connection was wanted, and makes it to where the test's peer listens.
pub(crate) struct Redirect {
    peer: SocketAddr,
    pub(crate) wanted: Mutex<Vec<SocketAddr>>,
}

impl Redirect {
    pub(crate) fn to(peer: SocketAddr) -> Self {
        Redirect { peer, wanted: Mutex::default() }
    }
}

impl Dialer for Redirect {
    fn dial(&self, addr: SocketAddr) -> BoxFuture<'_, std::io::Result<TcpStream>> {
        self.wanted.lock().push(addr);
        Box::pin(TcpStream::connect(self.peer))
    }

    fn dial_udp(&self, addr: SocketAddr) -> BoxFuture<'_, std::io::Result<UdpSocket>> {
        self.wanted.lock().push(addr);
        Box::pin(async move {
            let socket = UdpSocket::bind("127.0.0.1:0").await?;
            socket.connect(self.peer).await?;
            Ok(socket)
        })
    }
}

/// The router, served on the loopback.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) dialer: Arc<Redirect>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) cluster: Arc<Cluster>,
}

impl Server {
    /// Serves with a node agent that has the right certificate.
    pub(crate) async fn with_agent(cluster: Cluster) -> (Server, Agent) {
        let pki = pki::Pki::new();
        let agent = Agent::start(&pki, role_tls::NODE_AGENT).await;
        (Server::start(cluster, &pki, agent.address).await, agent)
    }

    /// Serves with `peer` behind every address.
    pub(crate) async fn start(cluster: Cluster, pki: &pki::Pki, peer: SocketAddr) -> Server {
        let cluster = Arc::new(cluster);
        let dialer = Arc::new(Redirect::to(peer));
        let shutdown = CancellationToken::new();
        let router = virt_api::router(State {
            client: cluster.client(),
            dialer: dialer.clone(),
            handler_tls: virt_api::fixed(pki.handler_client()),
            namespace: "kubevirt".to_owned(),
            version: Version { git_version: "v1.2.3".to_owned(), ..Version::default() },
            shutdown: shutdown.clone(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        Server { address, dialer, shutdown, cluster }
    }

    /// A request without upgrade: code and body.
    pub(crate) async fn request(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::builder().method(method).uri(path).header("host", "test");
        let request = request.body(http_body_util::Full::new(bytes::Bytes::from(body.to_owned()))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        let code = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Opens a stream as KubeVirt's clients do. A refusal is the HTTP answer.
    pub(crate) async fn open(&self, path: &str) -> Result<WebSocketStream<TcpStream>, http::Response<Option<Vec<u8>>>> {
        let mut request = format!("ws://{}{path}", self.address).into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("sec-websocket-protocol", HeaderValue::from_static(virt_api::SUBPROTOCOL));
        let stream = TcpStream::connect(self.address).await.unwrap();
        match tokio_tungstenite::client_async(request, stream).await {
            Ok((stream, response)) => {
                assert_eq!(response.headers()["sec-websocket-protocol"], virt_api::SUBPROTOCOL);
                Ok(stream)
            }
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => Err(*response),
            Err(other) => panic!("the stream broke: {other}"),
        }
    }
}

/// Path of an operation on the test's virtual machine.
pub(crate) fn vm(operation: &str) -> String {
    format!("/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachines/vm/{operation}")
}

/// Path of an operation on the test's instance.
pub(crate) fn vmi(operation: &str) -> String {
    format!("/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/{operation}")
}
