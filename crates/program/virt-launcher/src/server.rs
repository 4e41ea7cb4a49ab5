//! The server on the launcher's socket.
//!
//! Only root and the launcher's own user may connect. A command continues after its client disconnects: half-done work
//! is worse than unobserved work, and the state shows the outcome anyway.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use hyper_util::rt::{TokioIo, TokioTimer};
use launcher_contract::migration::{MigrateRequest, MigrationRequest, PrepareTargetRequest, SettleRequest};
use launcher_contract::routes;
use launcher_contract::types::{
    AgentReply, AgentRequest, Command, CommandRequest, Info, MemoryDumpRequest, PROTOCOL, Refusal, RefusalCode,
    SyncRequest,
};
use serde::Deserialize;
use tokio::net::{UnixListener, UnixStream};
use tower::Service;

use crate::error::Error;
use crate::manager::Manager;
use crate::state::StateStore;

/// More than the size limit of an object in etcd.
const BODY_MAX: usize = 4 << 20;
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Read timeout of a client.
const HEADER_WITHIN: Duration = Duration::from_secs(10);
const AGENT_WAIT_MAX: u32 = 300;

#[derive(Clone)]
struct Context {
    manager: Arc<Manager>,
    state: StateStore,
    info: Arc<Info>,
}

pub(crate) fn info(uid: &str, pod_name: &str) -> Info {
    Info {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        launcher_uid: uid.to_owned(),
        pod_name: pod_name.to_owned(),
    }
}

pub(crate) fn router(manager: Arc<Manager>, state: StateStore, info: Info) -> Router {
    let mut router = Router::new()
        .route(routes::INFO, get(async |State(context): State<Context>| Json((*context.info).clone())))
        .route(routes::STATE, get(state_of))
        .route(routes::SYNC, put(sync))
        .route(routes::AGENT, post(agent))
        .route(routes::PREPARE_TARGET, put(prepare_target))
        .route(routes::MIGRATE, put(migrate))
        .route(routes::ABORT_MIGRATION, put(abort_migration))
        .route(routes::SETTLE_MIGRATION, put(settle_migration))
        .route(routes::FINALIZE_TARGET, put(finalize_target))
        .route(routes::MEMORY_DUMP, put(dump_memory));
    for command in Command::ALL {
        let handler = move |State(context): State<Context>, body: Body<CommandRequest>| run(context, command, body);
        router = router.route(command.path(), put(handler));
    }
    router
        .fallback(async || refuse(RefusalCode::BadRequest, "unknown request".into()))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .with_state(Context { manager, state, info: Arc::new(info) })
}

type Body<T> = Result<Json<T>, JsonRejection>;

#[derive(Deserialize)]
struct StateQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    wait: u64,
}

async fn state_of(State(context): State<Context>, query: Result<Query<StateQuery>, QueryRejection>) -> Response {
    match query {
        Ok(Query(StateQuery { after, wait })) => {
            let wait = Duration::from_secs(wait).min(WAIT_MAX);
            Json(context.state.changed(after, wait).await).into_response()
        }
        Err(rejection) => refuse(RefusalCode::BadRequest, rejection.body_text()),
    }
}

async fn sync(State(context): State<Context>, body: Body<SyncRequest>) -> Response {
    let Json(request) = match body {
        Ok(request) => request,
        Err(rejection) => return refuse(RefusalCode::BadRequest, rejection.body_text()),
    };
    carry_out(async move { context.manager.sync(&request.vmi, &request.options).await }).await
}

async fn run(context: Context, command: Command, body: Body<CommandRequest>) -> Response {
    let Json(request) = match body {
        Ok(request) => request,
        Err(rejection) => return refuse(RefusalCode::BadRequest, rejection.body_text()),
    };
    carry_out(async move {
        context.manager.guard(request.vmi_uid.as_str())?;
        context.manager.command(command).await
    })
    .await
}

async fn prepare_target(State(context): State<Context>, body: Body<PrepareTargetRequest>) -> Response {
    with(body, async move |request| context.manager.prepare_target(request).await).await
}

async fn migrate(State(context): State<Context>, body: Body<MigrateRequest>) -> Response {
    with(body, async move |request| {
        context.manager.guard(request.vmi_uid.as_str())?;
        context.manager.source.start(request).await
    })
    .await
}

async fn abort_migration(State(context): State<Context>, body: Body<MigrationRequest>) -> Response {
    with(body, async move |request| {
        context.manager.guard(request.vmi_uid.as_str())?;
        context.manager.source.abort(request.migration_uid.as_str());
        Ok(())
    })
    .await
}

async fn settle_migration(State(context): State<Context>, body: Body<SettleRequest>) -> Response {
    with(body, async move |request| {
        context.manager.guard(request.vmi_uid.as_str())?;
        context.manager.source.settle(request.migration_uid.as_str(), request.target_runs)
    })
    .await
}

async fn finalize_target(State(context): State<Context>, body: Body<MigrationRequest>) -> Response {
    with(body, async move |request| {
        context.manager.guard(request.vmi_uid.as_str())?;
        context.manager.finalize_target(request.migration_uid.as_str()).await
    })
    .await
}

async fn dump_memory(State(context): State<Context>, body: Body<MemoryDumpRequest>) -> Response {
    with(body, async move |request| context.manager.dump_memory(request).await).await
}

/// Parses the body and runs `work` on it.
async fn with<T, F>(body: Body<T>, work: impl FnOnce(T) -> F) -> Response
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    match body {
        Ok(Json(request)) => carry_out(work(request)).await,
        Err(rejection) => refuse(RefusalCode::BadRequest, rejection.body_text()),
    }
}

async fn agent(State(context): State<Context>, body: Body<AgentRequest>) -> Response {
    let Json(request) = match body {
        Ok(request) => request,
        Err(rejection) => return refuse(RefusalCode::BadRequest, rejection.body_text()),
    };
    let answer = async {
        context.manager.guard(request.vmi_uid.as_str())?;
        context.manager.agent(&request.command, request.timeout_seconds.min(AGENT_WAIT_MAX)).await
    };
    match answer.await {
        Ok(result) => Json(AgentReply { result }).into_response(),
        Err(error) => refused(&error),
    }
}

/// Runs a command in its own task, so that it finishes even if the client disconnects.
async fn carry_out(work: impl Future<Output = Result<(), Error>> + Send + 'static) -> Response {
    match tokio::spawn(work).await {
        Ok(Ok(())) => Json(serde_json::json!({})).into_response(),
        Ok(Err(error)) => refused(&error),
        Err(_) => refuse(RefusalCode::Internal, "virt-launcher failed; see its log".into()),
    }
}

fn refused(error: &Error) -> Response {
    let Refusal { code, message } = error.refusal();
    refuse(code, message)
}

fn refuse(code: RefusalCode, message: String) -> Response {
    let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(Refusal { code, message })).into_response()
}

/// Binds the socket, replacing a stale one.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves for ever.
pub(crate) async fn serve(listener: UnixListener, router: Router) {
    let own = rustix::process::geteuid().as_raw();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) if peer.uid() == 0 || peer.uid() == own => {
                    tokio::spawn(connection(stream, router.clone()));
                }
                Ok(peer) => tracing::warn!(uid = peer.uid(), "rejected an unknown peer on the launcher's socket"),
                Err(error) => tracing::warn!(%error, "cannot read the peer's credentials on virt-launcher's socket"),
            },
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn connection(stream: UnixStream, router: Router) {
    let service = hyper::service::service_fn(move |request| {
        let mut router = router.clone();
        async move { Ok::<_, Infallible>(router.call(request).await.unwrap_or_else(|never| match never {})) }
    });
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WITHIN)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}
