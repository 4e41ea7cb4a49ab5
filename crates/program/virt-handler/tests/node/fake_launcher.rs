//! A launcher without libvirt: it keeps the protocol, and its guest does what the test says.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use http::StatusCode;
use launcher_contract::types::{
    CommandRequest, DomainReason, DomainState, DomainStatus, DomainType, Info, LauncherState, SyncRequest,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) struct FakeLauncher {
    guest: Guest,
    pod_dir: PathBuf,
}

#[derive(Clone)]
struct Guest {
    uid: String,
    state: Arc<watch::Sender<LauncherState>>,
    calls: Arc<Mutex<HashMap<&'static str, usize>>>,
    obedient: Arc<Mutex<bool>>,
    gone: CancellationToken,
}

impl FakeLauncher {
    /// Starts in the Pod's directory, ready at once.
    pub(crate) fn start(pods_dir: &Path, pod_uid: &str, vmi_uid: &str) -> Self {
        let pod_dir = pods_dir.join(pod_uid);
        let sockets = pod_dir.join("volumes/kubernetes.io~empty-dir/sockets");
        std::fs::create_dir_all(&sockets).unwrap();
        let guest = Guest {
            uid: vmi_uid.to_string(),
            state: Arc::new(watch::Sender::new(LauncherState { seq: 1, ..LauncherState::default() })),
            calls: Arc::default(),
            obedient: Arc::new(Mutex::new(true)),
            gone: CancellationToken::new(),
        };
        let router = Router::new()
            .route("/v1/info", get(info))
            .route("/v1/state", get(state))
            .route("/v1/sync", put(sync))
            .route("/v1/shutdown", put(shutdown))
            .route("/v1/kill", put(kill))
            .route("/v1/delete", put(delete))
            .with_state(guest.clone());
        // The path is longer than a socket address holds, as it is on a real node.
        let listener = hostfs::beneath::Root::open(&sockets).unwrap().bind_unix("launcher-sock").unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = UnixListener::from_std(listener).unwrap();
        let gone = guest.gone.clone();
        tokio::spawn(async move { gone.run_until_cancelled(async { axum::serve(listener, router).await }).await });
        FakeLauncher { guest, pod_dir }
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.guest.calls.lock().get(name).copied().unwrap_or_default()
    }

    pub(crate) fn is_running(&self) -> bool {
        self.guest.state.borrow().domain.as_ref().is_some_and(|domain| !domain.is_down())
    }

    pub(crate) fn ignore_shutdown(&self) {
        *self.guest.obedient.lock() = false;
    }

    pub(crate) fn pause(&self) {
        self.guest.set(DomainStatus::Paused, DomainReason::PausedUser);
    }

    pub(crate) fn power_off(&self, reason: &str) {
        let reason = serde_json::from_value(json!(reason)).unwrap();
        self.guest.set(DomainStatus::Shutoff, reason);
    }

    /// The guest powers off, and the launcher ends without having been asked; what it last knew is in its file.
    pub(crate) fn end(&self, reason: &str) {
        self.power_off(reason);
        let file = self.pod_dir.join("volumes/kubernetes.io~empty-dir/sockets/last-state.json");
        std::fs::write(file, serde_json::to_vec(&*self.guest.state.borrow()).unwrap()).unwrap();
        self.guest.gone.cancel();
    }

    /// The Pod goes without a word.
    pub(crate) fn vanish(&self) {
        std::fs::remove_dir_all(&self.pod_dir).unwrap();
        self.guest.gone.cancel();
    }
}

impl Guest {
    fn called(&self, name: &'static str) -> Json<Value> {
        *self.calls.lock().entry(name).or_default() += 1;
        Json(json!({}))
    }

    fn change(&self, change: impl FnOnce(&mut LauncherState)) {
        self.state.send_modify(|state| {
            change(state);
            state.seq += 1;
        });
    }

    fn set(&self, status: DomainStatus, reason: DomainReason) {
        self.change(|state| {
            let domain = state.domain.get_or_insert_default();
            domain.status = status;
            domain.reason = reason;
        });
    }
}

async fn info(State(guest): State<Guest>) -> Json<Info> {
    Json(Info { protocol: 1, version: "test".into(), launcher_uid: guest.uid, pod_name: "virt-launcher".into() })
}

async fn state(
    State(guest): State<Guest>,
    Query(query): Query<HashMap<String, u64>>,
) -> Result<Json<LauncherState>, StatusCode> {
    let after = query.get("after").copied().unwrap_or_default();
    let wait = Duration::from_secs(query.get("wait").copied().unwrap_or_default());
    let mut states = guest.state.subscribe();
    tokio::select! {
        () = async { drop(tokio::time::timeout(wait, states.wait_for(|state| state.seq != after)).await) } => {}
        () = guest.gone.cancelled() => return Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
    let state = guest.state.borrow().clone();
    Ok(Json(state))
}

async fn sync(State(guest): State<Guest>, Json(request): Json<SyncRequest>) -> Json<Value> {
    assert_eq!(request.vmi.metadata.uid.as_deref(), Some(guest.uid.as_str()));
    guest.change(|state| {
        state.domain = Some(DomainState {
            name: request.vmi.domain_name(),
            uid: guest.uid.clone(),
            status: DomainStatus::Running,
            reason: DomainReason::Booted,
            os_machine: "pc-q35-7.2".to_string(),
            domain_type: DomainType::Qemu,
            acpi: true,
            ..DomainState::default()
        });
    });
    guest.called("sync")
}

async fn shutdown(State(guest): State<Guest>, Json(request): Json<CommandRequest>) -> Json<Value> {
    assert_eq!(request.vmi_uid.as_str(), guest.uid);
    guest.change(|state| {
        state.shutdown_requested_at.get_or_insert(jiff::Timestamp::now());
    });
    if *guest.obedient.lock() {
        guest.set(DomainStatus::Shutoff, DomainReason::Shutdown);
    }
    guest.called("shutdown")
}

async fn kill(State(guest): State<Guest>) -> Json<Value> {
    guest.set(DomainStatus::Shutoff, DomainReason::Destroyed);
    guest.called("kill")
}

async fn delete(State(guest): State<Guest>) -> Json<Value> {
    guest.change(|state| state.domain = None);
    guest.called("delete")
}
