//! A small web server on loopback that behaves as a test wants it to.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A request: its path, and its headers in lower case.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn range(&self) -> Option<u64> {
        self.header("range")?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Say how long the body is; otherwise it ends with the connection.
    pub(crate) sized: bool,
    /// Close the connection after so many bytes.
    pub(crate) breaks_after: Option<usize>,
    /// Send a byte at a time, with a pause between them.
    pub(crate) drips: Option<Duration>,
}

impl Answer {
    pub(crate) fn of(body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Answer { status: 200, headers: Vec::new(), body, sized: true, breaks_after: None, drips: None }
    }

    pub(crate) fn status(status: u16) -> Self {
        Answer { status, ..Answer::of("") }
    }

    pub(crate) fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The part that was asked for.
    pub(crate) fn ranged(self, asked: &Asked) -> Self {
        let total = self.body.len() as u64;
        match asked.range().filter(|start| *start < total) {
            Some(start) => {
                let range = format!("bytes {start}-{}/{total}", total - 1);
                let body = self.body[start as usize..].to_vec();
                Answer { status: 206, body, ..self }.with("Content-Range", range)
            }
            None => self,
        }
    }
}

type Handler = dyn Fn(&Asked) -> Answer + Send + Sync;

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    tls: bool,
    asked: Arc<Mutex<Vec<Asked>>>,
    stopped: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(None, Arc::new(handler))
    }

    pub(crate) fn start_tls(config: ServerConfig, handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        Self::serve(Some(Arc::new(config)), Arc::new(handler))
    }

    fn serve(tls: Option<Arc<ServerConfig>>, handler: Arc<Handler>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, stopped) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let server = Server { address, tls: tls.is_some(), asked: asked.clone(), stopped: stopped.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let (tls, handler, asked) = (tls.clone(), handler.clone(), asked.clone());
                // A client that goes away is no failure of the server.
                std::thread::spawn(move || drop(answer_all(stream, tls, &*handler, &asked)));
            }
        });
        server
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let host = if self.tls { format!("localhost:{}", self.address.port()) } else { self.address.to_string() };
        format!("{scheme}://{host}{path}")
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

fn answer_all(
    stream: TcpStream,
    tls: Option<Arc<ServerConfig>>,
    handler: &Handler,
    asked: &Mutex<Vec<Asked>>,
) -> io::Result<()> {
    match tls {
        None => answer(stream, handler, asked),
        Some(config) => {
            let connection = ServerConnection::new(config).map_err(io::Error::other)?;
            answer(StreamOwned::new(connection, stream), handler, asked)
        }
    }
}

/// One request on a connection.
fn answer(mut stream: impl Read + Write, handler: &Handler, asked: &Mutex<Vec<Asked>>) -> io::Result<()> {
    let mut lines = BufReader::new(&mut stream).lines();
    let first = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    for line in lines {
        let line = line?;
        match line.split_once(':') {
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => break,
        }
    }
    let request = Asked { path, headers };
    asked.lock().push(request.clone());
    let answer = handler(&request);
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        head += &format!("{name}: {value}\r\n");
    }
    if answer.sized {
        head += &format!("Content-Length: {}\r\n", answer.body.len());
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    let body = &answer.body[..answer.breaks_after.unwrap_or(answer.body.len()).min(answer.body.len())];
    match answer.drips {
        None => stream.write_all(body)?,
        Some(pause) => {
            for byte in body {
                stream.write_all(&[*byte])?;
                stream.flush()?;
                std::thread::sleep(pause);
            }
        }
    }
    stream.flush()
}
