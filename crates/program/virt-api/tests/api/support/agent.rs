//! A node agent: TLS on the loopback, ordinary answers, and streams that echo.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::{SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::pki::Pki;

/// What a stream sends before anything was asked, in the same write as the end of the handshake.
pub(crate) const BANNER: &[u8] = b"login: ";

pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    /// Request lines, in order.
    pub(crate) seen: Arc<Mutex<Vec<String>>>,
    /// Answers to requests without upgrade, by last path segment.
    pub(crate) answers: Arc<Mutex<BTreeMap<String, (u16, String)>>>,
}

impl Agent {
    /// The agent of node `n1`.
    pub(crate) async fn start(pki: &Pki, common_name: &str) -> Agent {
        Agent::start_on(pki, common_name, "n1").await
    }

    pub(crate) async fn start_on(pki: &Pki, common_name: &str, node: &str) -> Agent {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tls = TlsAcceptor::from(Arc::new(pki.agent_config(common_name, node)));
        let agent = Agent { address, seen: Arc::default(), answers: Arc::default() };
        let (seen, answers) = (agent.seen.clone(), agent.answers.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, seen, answers) = (tls.clone(), seen.clone(), answers.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, &seen, &answers).await;
                    }
                });
            }
        });
        agent
    }

    pub(crate) fn seen(&self) -> Vec<String> {
        self.seen.lock().clone()
    }
}

async fn serve(
    mut stream: TlsStream<TcpStream>,
    seen: &Mutex<Vec<String>>,
    answers: &Mutex<BTreeMap<String, (u16, String)>>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    seen.lock().push(line.clone());
    let operation = line.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
    let answer = answers.lock().get(&operation).cloned();
    let header = |name: &str| {
        let mut headers = head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    match (answer, header("sec-websocket-key")) {
        (None, Some(key)) => {
            assert_eq!(header("sec-websocket-protocol").as_deref(), Some("plain.kubevirt.io"));
            echo(stream, &key).await;
        }
        (answer, _) => {
            let (code, body) = answer.unwrap_or((202, String::new()));
            let length = body.len();
            let text = format!("HTTP/1.1 {code} Answer\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
        }
    }
}

/// Ends the handshake and sends the banner in one go, then sends back every binary frame. `quit` ends the stream.
async fn echo(mut stream: TlsStream<TcpStream>, key: &str) {
    let accept = derive_accept_key(key.as_bytes());
    let mut hello = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {accept}\r\nsec-websocket-protocol: plain.kubevirt.io\r\n\r\n"
    )
    .into_bytes();
    hello.extend([0x82, BANNER.len() as u8]);
    hello.extend(BANNER);
    stream.write_all(&hello).await.unwrap();
    stream.flush().await.unwrap();
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Binary(bytes) if bytes.as_ref() == b"quit" => return drop(socket.close(None).await),
            Message::Binary(bytes) => socket.send(Message::Binary(bytes)).await.unwrap(),
            Message::Close(_) => return,
            _ => {}
        }
    }
}
