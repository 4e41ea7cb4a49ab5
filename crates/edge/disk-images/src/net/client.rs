//! One GET at a time, each on a connection of its own.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, LOCATION, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Url;

use super::Trust;

const CONNECT_LIMIT: Duration = Duration::from_secs(30);
const RESPONSE_LIMIT: Duration = Duration::from_secs(60);
const REDIRECTS_MAX: usize = 10;
const HEADERS_MAX: usize = 64 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}")]
    Url(String),
    /// Nobody is there, or what is there does not speak HTTP.
    #[error("{0}")]
    Connect(String),
    #[error("the server redirects more than {REDIRECTS_MAX} times")]
    Redirects,
    #[error("{0}")]
    Body(String),
}

pub(crate) struct Client {
    tls: Arc<ClientConfig>,
}

/// What to ask for.
#[derive(Clone)]
pub(crate) struct Get {
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    /// Only for the server of the URL: not for others to which it redirects.
    pub(crate) secrets: HeaderMap,
}

impl Get {
    pub(crate) fn new(url: Url) -> Self {
        Get { url, headers: HeaderMap::new(), secrets: HeaderMap::new() }
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Client {
    pub(crate) fn new(trust: &Trust) -> Result<Self, String> {
        Ok(Client { tls: trust.config()? })
    }

    /// Follows redirects. What comes back may have any status.
    pub(crate) async fn get(&self, get: &Get) -> Result<Response<Incoming>, Error> {
        let mut url = get.url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let mut headers = get.headers.clone();
            if url.origin() == get.url.origin() {
                headers.extend(get.secrets.clone());
            }
            let response = self.once(&url, headers).await?;
            let moved = matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308);
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            match location.filter(|_| moved) {
                None => return Ok(response),
                Some(location) => {
                    let next = url.join(location).map_err(|err| Error::Url(format!("a redirect to nowhere: {err}")))?;
                    if url.scheme() == "https" && next.scheme() != "https" {
                        return Err(Error::Url("the server redirects from https to http".to_owned()));
                    }
                    url = next;
                }
            }
        }
        Err(Error::Redirects)
    }

    /// Gets a document of at most this size.
    pub(crate) async fn document(&self, get: &Get, max: usize) -> Result<(StatusCode, HeaderMap, Bytes), Error> {
        let (parts, body) = self.get(get).await?.into_parts();
        let collected = timeout(RESPONSE_LIMIT, Limited::new(body, max).collect()).await;
        let body = collected
            .map_err(|_| Error::Body("the server does not end its answer".to_owned()))?
            .map_err(|err| Error::Body(format!("the server's answer cannot be read: {err}")))?;
        Ok((parts.status, parts.headers, body.to_bytes()))
    }

    async fn once(&self, url: &Url, headers: HeaderMap) -> Result<Response<Incoming>, Error> {
        let failed = |err: String| Error::Connect(format!("Get {:?}: {err}", shown(url)));
        let host = url.host_str().ok_or_else(|| Error::Url("the URL has no host".to_owned()))?;
        let port = url.port_or_known_default().unwrap_or(80);
        let stream = timeout(CONNECT_LIMIT, self.connect(url, host, port)).await;
        let stream = stream.map_err(|_| failed("it does not answer".to_owned()))?.map_err(failed)?;
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEADERS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|err| failed(err.to_string()))?;
        // It ends with the response's body.
        tokio::spawn(connection);

        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        let mut request = Request::get(path)
            .body(Empty::<Bytes>::new())
            .map_err(|err| Error::Url(format!("the URL cannot be asked for: {err}")))?;
        let authority = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let authority = HeaderValue::from_str(authority).map_err(|err| Error::Url(format!("the URL's host: {err}")))?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, authority);
        request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static("ferrovirt-importer"));
        let response = timeout(RESPONSE_LIMIT, sender.send_request(request)).await;
        response.map_err(|_| failed("it does not answer".to_owned()))?.map_err(|err| failed(chain(&err)))
    }

    async fn connect(&self, url: &Url, host: &str, port: u16) -> Result<Box<dyn Stream>, String> {
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let found = tokio::net::lookup_host((name, port)).await.map_err(|err| format!("{host}: {err}"))?;
        let addresses: Vec<SocketAddr> = found.collect();
        let allowed: Vec<_> = addresses.into_iter().filter(|address| !is_link_local(address.ip())).collect();
        if allowed.is_empty() {
            return Err(format!("{host} has no address that can be used; those of the link are not"));
        }
        let stream = TcpStream::connect(allowed.as_slice()).await.map_err(|err| err.to_string())?;
        let _ = stream.set_nodelay(true);
        match url.scheme() {
            "http" => Ok(Box::new(stream)),
            "https" => {
                let name = ServerName::try_from(name.to_owned()).map_err(|err| err.to_string())?;
                let stream = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
                Ok(Box::new(stream.map_err(|err| format!("tls: {err}"))?))
            }
            other => Err(format!("unsupported protocol scheme {other:?}")),
        }
    }
}

/// Where clouds tell machines their secrets: a tenant's URL must not lead there.
fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.is_link_local(),
            None => address.is_unicast_link_local() || address.octets().starts_with(&[0xfd, 0x00, 0x0e, 0xc2]),
        },
    }
}

/// Without what is secret in it.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut source = err.source();
    while let Some(err) = source {
        text = format!("{text}: {err}");
        source = err.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_link_are_not_asked() {
        for address in ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1", "fd00:ec2::254"] {
            assert!(is_link_local(address.parse().unwrap()), "{address}");
        }
        for address in ["127.0.0.1", "10.0.0.1", "8.8.8.8", "::1", "fd00::1", "2001:db8::1"] {
            assert!(!is_link_local(address.parse().unwrap()), "{address}");
        }
    }
}
