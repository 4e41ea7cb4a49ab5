//! Termination signals.

use tokio::signal::unix::{SignalKind, signal};

/// Resolves on the first SIGINT, SIGTERM or SIGHUP.
pub async fn terminated() {
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            // Without a handler the default action terminates the process, which is what was asked for.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}
