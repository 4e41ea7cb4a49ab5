//! The client side, used by virt-handler.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::v1::VirtualMachineInstance;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use launcher_contract::migration::{
    Destination, MigrateRequest, MigrationOptions, MigrationRequest, PrepareTargetRequest, SettleRequest,
};
use launcher_contract::routes;
use launcher_contract::types::{
    AgentReply, AgentRequest, Command, CommandRequest, Info, LauncherState, MemoryDumpRequest, Refusal, RefusalCode,
    SyncOptions, SyncRequest,
};
use launcher_contract::{MigrationUid, VmiUid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;

/// Timeout of requests that the launcher answers from memory.
const SHORT: Duration = Duration::from_secs(5);
/// Timeout of commands that wait for libvirt.
const LONG: Duration = Duration::from_secs(20);
/// Timeout of a sync, which creates disks and starts QEMU, possibly on a busy node.
const SYNC: Duration = Duration::from_secs(90);
/// Large enough for a guest agent reply, the largest response.
const ANSWER_MAX: usize = 8 << 20;

type Connect = dyn Fn() -> BoxFuture<'static, io::Result<UnixStream>> + Send + Sync;

/// Talks to one launcher. Every request has its own connection, so a long poll never blocks a command.
#[derive(Clone)]
pub struct Client {
    connect: Arc<Connect>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody is listening: the launcher is not ready yet, or gone.
    #[error("cannot connect to the launcher")]
    Connect(#[source] io::Error),
    /// The connection broke before the response. For a command that ends the guest this is as good as success.
    #[error("the launcher hung up during {request}")]
    Disconnected { request: &'static str, source: hyper::Error },
    #[error("the launcher did not answer {request} within {} s", limit.as_secs())]
    Timeout { request: &'static str, limit: Duration },
    #[error("the launcher refused {request}: {}", refusal.message)]
    Refused { request: &'static str, refusal: Refusal },
    #[error("the launcher's answer to {request} is not understood: {detail}")]
    Garbled { request: &'static str, detail: String },
}

impl Error {
    /// Whether the launcher is not there yet, or no longer.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Error::Connect(_) | Error::Disconnected { .. })
    }

    pub fn refusal(&self) -> Option<RefusalCode> {
        match self {
            Error::Refused { refusal, .. } => Some(refusal.code),
            _ => None,
        }
    }
}

impl Client {
    /// A client that connects to its launcher through `connect`, for example beneath a directory descriptor.
    pub fn new<F>(connect: F) -> Client
    where
        F: Fn() -> BoxFuture<'static, io::Result<UnixStream>> + Send + Sync + 'static,
    {
        Client { connect: Arc::new(connect) }
    }

    pub async fn info(&self) -> Result<Info, Error> {
        self.get("info", routes::INFO.to_owned(), SHORT).await
    }

    /// Returns the launcher's state: at once if its sequence number differs from `after`, otherwise on the next change
    /// or after `wait`.
    pub async fn state(&self, after: Option<u64>, wait: Duration) -> Result<LauncherState, Error> {
        let path = match after {
            Some(after) => format!("{}?after={after}&wait={}", routes::STATE, wait.as_secs()),
            None => routes::STATE.to_owned(),
        };
        self.get("state", path, SHORT + wait).await
    }

    /// Syncs the domain with the VMI: defines and starts it if it is missing, resumes it if no user paused it.
    pub async fn sync(&self, vmi: &VirtualMachineInstance, options: &SyncOptions) -> Result<(), Error> {
        let body = SyncRequest { vmi: vmi.clone(), options: options.clone() };
        self.put("sync", routes::SYNC, &body, SYNC).await
    }

    pub async fn command(&self, command: Command, vmi_uid: &VmiUid) -> Result<(), Error> {
        let body = CommandRequest { vmi_uid: vmi_uid.clone() };
        let path = command.path();
        let name = path.trim_start_matches("/v1/");
        self.put(name, path, &body, LONG).await
    }

    /// Prepares the launcher to receive the guest.
    pub async fn prepare_target(
        &self,
        vmi: &VirtualMachineInstance,
        migration_uid: &MigrationUid,
        options: &SyncOptions,
    ) -> Result<(), Error> {
        let (vmi, migration_uid, options) = (vmi.clone(), migration_uid.clone(), options.clone());
        let body = PrepareTargetRequest { vmi, migration_uid, options };
        self.put("prepare-target", routes::PREPARE_TARGET, &body, SYNC).await
    }

    /// Starts the migration; its progress is in the state.
    pub async fn migrate(
        &self,
        vmi_uid: &VmiUid,
        migration_uid: &MigrationUid,
        options: &MigrationOptions,
        destination: Option<Destination>,
    ) -> Result<(), Error> {
        let (vmi_uid, migration_uid, options) = (vmi_uid.clone(), migration_uid.clone(), options.clone());
        let body = MigrateRequest { vmi_uid, migration_uid, options, destination };
        self.put("migrate", routes::MIGRATE, &body, LONG).await
    }

    pub async fn abort_migration(&self, vmi_uid: &VmiUid, migration_uid: &MigrationUid) -> Result<(), Error> {
        let body = MigrationRequest { vmi_uid: vmi_uid.clone(), migration_uid: migration_uid.clone() };
        self.put("abort-migration", routes::ABORT_MIGRATION, &body, LONG).await
    }

    /// Starts a dump of the guest's memory; how it ends is in the state.
    pub async fn dump_memory(&self, vmi_uid: &VmiUid, volume: &str, file: &str) -> Result<(), Error> {
        let body = MemoryDumpRequest { vmi_uid: vmi_uid.clone(), volume: volume.to_owned(), file: file.to_owned() };
        self.put("memory-dump", routes::MEMORY_DUMP, &body, LONG).await
    }

    /// Finishes a migration at the target.
    pub async fn finalize_target(&self, vmi_uid: &VmiUid, migration_uid: &MigrationUid) -> Result<(), Error> {
        let body = MigrationRequest { vmi_uid: vmi_uid.clone(), migration_uid: migration_uid.clone() };
        self.put("finalize-target", routes::FINALIZE_TARGET, &body, LONG).await
    }

    /// Tells the source how a switch-over ended whose outcome it could not observe.
    pub async fn settle_migration(
        &self,
        vmi_uid: &VmiUid,
        migration_uid: &MigrationUid,
        target_runs: bool,
    ) -> Result<(), Error> {
        let (vmi_uid, migration_uid) = (vmi_uid.clone(), migration_uid.clone());
        let body = SettleRequest { vmi_uid, migration_uid, target_runs };
        self.put("settle-migration", routes::SETTLE_MIGRATION, &body, LONG).await
    }

    async fn put(&self, name: &'static str, path: &str, body: &impl Serialize, limit: Duration) -> Result<(), Error> {
        self.send(name, Method::PUT, path, body, limit).await.map(|_: serde_json::Value| ())
    }

    /// Sends one command to the guest agent and returns its result.
    pub async fn agent(
        &self,
        vmi_uid: &VmiUid,
        command: serde_json::Value,
        timeout_seconds: u32,
    ) -> Result<serde_json::Value, Error> {
        let body = AgentRequest { vmi_uid: vmi_uid.clone(), command, timeout_seconds };
        let limit = SHORT + Duration::from_secs(timeout_seconds.into());
        let reply: AgentReply = self.send("agent", Method::POST, routes::AGENT, &body, limit).await?;
        Ok(reply.result)
    }

    async fn get<T: DeserializeOwned>(&self, name: &'static str, path: String, limit: Duration) -> Result<T, Error> {
        self.request(name, Method::GET, path, Bytes::new(), limit).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        name: &'static str,
        method: Method,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(body).map_err(|error| garbled(name, &error))?;
        self.request(name, method, path.to_owned(), body.into(), limit).await
    }

    async fn request<T: DeserializeOwned>(
        &self,
        name: &'static str,
        method: Method,
        path: String,
        body: Bytes,
        limit: Duration,
    ) -> Result<T, Error> {
        let (status, body) = tokio::time::timeout(limit, self.exchange(name, method, path, body))
            .await
            .map_err(|_| Error::Timeout { request: name, limit })??;
        if !status.is_success() {
            let refusal = serde_json::from_slice(&body).unwrap_or_else(|_| Refusal {
                code: RefusalCode::Internal,
                message: format!("{status} without an explanation"),
            });
            return Err(Error::Refused { request: name, refusal });
        }
        serde_json::from_slice(&body).map_err(|error| garbled(name, &error))
    }

    async fn exchange(
        &self,
        name: &'static str,
        method: Method,
        path: String,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Error> {
        let disconnected = |source| Error::Disconnected { request: name, source };
        let stream = (self.connect)().await.map_err(Error::Connect)?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(disconnected)?;
        // Aborted with this future, so a dropped request leaves no connection behind.
        let _driver = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, "launcher")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| garbled(name, &error))?;
        let answer = sender.send_request(request).await.map_err(disconnected)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await.map_err(|error| match error
            .downcast::<hyper::Error>()
        {
            Ok(source) => disconnected(*source),
            Err(other) => garbled(name, &other),
        })?;
        Ok((status, body.to_bytes()))
    }
}

fn garbled(request: &'static str, detail: &impl ToString) -> Error {
    Error::Garbled { request, detail: detail.to_string() }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// A client whose every connection gets `answer` once it has sent something, and then the end of the stream.
    fn client(answer: &'static [u8]) -> Client {
        Client::new(move || {
            Box::pin(async move {
                let (ours, mut theirs) = UnixStream::pair()?;
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = theirs.read(&mut request).await;
                    let _ = theirs.write_all(answer).await;
                });
                Ok(ours)
            })
        })
    }

    #[tokio::test]
    async fn a_refusal_keeps_its_code_and_words() {
        let client = client(
            b"HTTP/1.1 403 Forbidden\r\nconnection: close\r\n\r\n{\"code\":\"WrongVmi\",\"message\":\"not my machine\"}",
        );
        let error = client.command(Command::Kill, &VmiUid::new("u").unwrap()).await.unwrap_err();
        assert_eq!(error.refusal(), Some(RefusalCode::WrongVmi), "{error:?}");
        assert_eq!(error.to_string(), "the launcher refused kill: not my machine");
    }

    #[tokio::test]
    async fn a_launcher_that_hangs_up_is_told_apart_from_one_that_refuses() {
        let error = client(b"").command(Command::Delete, &VmiUid::new("u").unwrap()).await.unwrap_err();
        assert!(error.is_disconnected(), "{error:?}");
        let error = client(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{").info().await.unwrap_err();
        assert!(error.is_disconnected(), "{error:?}");
        let absent = Client::new(|| Box::pin(async { Err(io::Error::from(io::ErrorKind::NotFound)) }));
        assert!(absent.info().await.unwrap_err().is_disconnected());
    }

    #[tokio::test]
    async fn nonsense_is_an_error() {
        let error = client(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").info().await.unwrap_err();
        assert!(matches!(error, Error::Garbled { request: "info", .. }), "{error:?}");
        let error = client(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n").info().await.unwrap_err();
        assert_eq!(error.refusal(), Some(RefusalCode::Internal), "{error:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_launcher_that_never_answers_is_given_up_after_the_wait_and_some() {
        let silent = Client::new(|| {
            Box::pin(async {
                let (ours, theirs) = UnixStream::pair()?;
                tokio::spawn(async move {
                    let _kept_open = theirs;
                    std::future::pending::<()>().await;
                });
                Ok(ours)
            })
        });
        let started = tokio::time::Instant::now();
        let error = silent.state(Some(3), Duration::from_secs(30)).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_eq!(started.elapsed().as_secs(), 35);
    }
}
