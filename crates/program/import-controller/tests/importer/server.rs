//! A web server for images, on the loopback.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use test_support::Pair;
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, Infallible>;

#[derive(Clone, Default)]
pub(crate) struct Images {
    files: Arc<Mutex<HashMap<String, Bytes>>>,
    pub(crate) requests: Arc<AtomicUsize>,
}

impl Images {
    /// Serves plain HTTP; returns the address.
    pub(crate) async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let images = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(images.clone().converse(stream));
            }
        });
        url
    }

    /// The same over TLS.
    pub(crate) async fn serve_tls(&self, pair: &Pair) -> String {
        let chain = CertificateDer::pem_slice_iter(pair.cert.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = rustls::ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let images = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (images, acceptor) = (images.clone(), acceptor.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        images.converse(stream).await;
                    }
                });
            }
        });
        url
    }

    /// Puts a file at a path. One whose path begins with `/slow/` takes ten seconds for each MiB.
    pub(crate) fn put(&self, path: &str, content: impl Into<Bytes>) {
        self.files.lock().insert(path.to_owned(), content.into());
    }

    pub(crate) fn speed_up(&self, path: &str) {
        let content = self.files.lock().get(path).cloned().unwrap();
        self.files.lock().insert(format!("fast:{path}"), content);
    }

    async fn converse(self, stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static) {
        let answer = service_fn(|request| {
            let images = self.clone();
            async move { Ok::<_, Infallible>(images.answer(&request)) }
        });
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path();
        let (found, fast) = {
            let files = self.files.lock();
            (files.get(path).cloned(), files.contains_key(&format!("fast:{path}")))
        };
        let Some(content) = found else {
            let mut response = Response::new(Full::new(Bytes::from("nothing here")).boxed());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let length = content.len();
        let body = match *request.method() {
            Method::HEAD => Full::new(Bytes::new()).boxed(),
            _ if path.starts_with("/slow/") && !fast => trickle(content),
            _ => Full::new(content).boxed(),
        };
        let response = Response::builder().header("content-length", length).header("accept-ranges", "none");
        response.body(body).unwrap()
    }
}

fn trickle(content: Bytes) -> Body {
    let pieces: Vec<Bytes> = content.chunks(32 * 1024).map(Bytes::copy_from_slice).collect();
    let stream = futures::stream::iter(pieces).then(|piece| async {
        tokio::time::sleep(Duration::from_millis(310)).await;
        Ok::<_, Infallible>(Frame::data(piece))
    });
    BodyExt::boxed(StreamBody::new(stream))
}
