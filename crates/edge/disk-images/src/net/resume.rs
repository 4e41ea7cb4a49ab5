//! A transfer that goes on where the connection broke.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::client::{Client, Error, Get};

/// A connection on which nothing comes for so long is given up.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Attempts without any progress between them.
const ATTEMPTS: u32 = 6;
/// Attempts in all: a server that breaks every connection after a few bytes ends, too.
const ATTEMPTS_EVER: u32 = 200;
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// The content of a URL as it comes.
pub(crate) struct Transfer {
    client: Arc<Client>,
    get: Get,
    body: Incoming,
    /// Bytes that have been handed out.
    done: u64,
    /// Bytes that a server sends again and that were handed out already.
    skip: u64,
    total: Option<u64>,
    version: Option<HeaderValue>,
    attempts_ever: u32,
}

impl Transfer {
    /// Starts a transfer. The error has the words of CDI where a server refuses.
    pub(crate) async fn start(client: Arc<Client>, mut get: Get) -> Result<Self, Error> {
        // Ranges of an encoded content would be ranges of something else.
        get.headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let response = client.get(&get).await.map_err(|err| match err {
            Error::Connect(text) => Error::Connect(format!("HTTP request errored: {text}")),
            other => other,
        })?;
        if response.status() != StatusCode::OK {
            return Err(Error::Connect(refusal(response.status())));
        }
        let headers = response.headers();
        let total = number(headers.get(CONTENT_LENGTH));
        let version = version(headers);
        Ok(Transfer { client, get, body: response.into_body(), done: 0, skip: 0, total, version, attempts_ever: 0 })
    }

    /// How long the content is, if the server says so.
    pub(crate) fn total(&self) -> Option<u64> {
        self.total
    }

    /// The next piece; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let mut failures = 0;
        loop {
            let broken = match timeout(SILENCE_LIMIT, self.body.frame()).await {
                Ok(Some(Ok(frame))) => match frame.into_data().ok().and_then(|data| self.fresh(data)) {
                    Some(data) => return Ok(Some(data)),
                    None => continue,
                },
                Ok(Some(Err(err))) => err.to_string(),
                Ok(None) if self.total.is_none_or(|total| self.done >= total) => return Ok(None),
                Ok(None) => "the connection ended early".to_owned(),
                Err(_) => format!("nothing came for {} s", SILENCE_LIMIT.as_secs()),
            };
            loop {
                failures += 1;
                self.attempts_ever += 1;
                if failures > ATTEMPTS || self.attempts_ever > ATTEMPTS_EVER {
                    let of = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
                    return Err(Error::Body(format!("the transfer broke after {}{of} bytes: {broken}", self.done)));
                }
                tokio::time::sleep(FIRST_PAUSE * 2u32.pow(failures - 1)).await;
                match self.again().await {
                    Ok(()) => break,
                    Err(Error::Connect(why)) => tracing::info!(why, "the server cannot be reached; trying again"),
                    Err(other) => return Err(other),
                }
            }
        }
    }

    /// What has not been handed out of a piece.
    fn fresh(&mut self, mut data: Bytes) -> Option<Bytes> {
        let known = self.skip.min(data.len() as u64);
        self.skip -= known;
        let data = data.split_off(known as usize);
        self.done += data.len() as u64;
        (!data.is_empty()).then_some(data)
    }

    /// Asks for the rest.
    async fn again(&mut self) -> Result<(), Error> {
        let mut get = self.get.clone();
        if self.done > 0 {
            let range = HeaderValue::from_str(&format!("bytes={}-", self.done));
            get.headers.insert(RANGE, range.map_err(|err| Error::Body(err.to_string()))?);
            if let Some(version) = &self.version {
                get.headers.insert(IF_RANGE, version.clone());
            }
        }
        let response = self.client.get(&get).await?;
        self.skip = self.place(&response)?;
        self.body = response.into_body();
        Ok(())
    }

    /// How much of this response is known.
    fn place(&self, response: &Response<Incoming>) -> Result<u64, Error> {
        let changed = || Error::Body("the content changed while it was transferred".to_owned());
        let headers = response.headers();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let range = headers.get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
                let (range, total) =
                    range.strip_prefix("bytes ").and_then(|r| r.split_once('/')).ok_or_else(changed)?;
                let start: u64 = range.split('-').next().and_then(|n| n.parse().ok()).ok_or_else(changed)?;
                let same = self.total.is_none_or(|known| total == "*" || total.parse() == Ok(known));
                if start <= self.done && same { Ok(self.done - start) } else { Err(changed()) }
            }
            // It has no ranges, or another content by now.
            StatusCode::OK => {
                let same = version(headers) == self.version && number(headers.get(CONTENT_LENGTH)) == self.total;
                if same { Ok(self.done) } else { Err(changed()) }
            }
            // Worth another attempt.
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(Error::Connect(refusal(status)))
            }
            status => Err(Error::Body(refusal(status))),
        }
    }
}

fn refusal(status: StatusCode) -> String {
    let name = status.canonical_reason().map(|name| format!(" {name}")).unwrap_or_default();
    format!("expected status code 200, got {}. Status: {}{name}", status.as_u16(), status.as_u16())
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.trim().parse().ok()
}

/// What tells one version of the content from another; weak tags do not.
fn version(headers: &HeaderMap) -> Option<HeaderValue> {
    let strong = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    strong.or_else(|| headers.get(LAST_MODIFIED)).cloned()
}
