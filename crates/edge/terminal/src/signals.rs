//! The signals by which people and systems end a program.

use tokio::signal::unix::{SignalKind, signal};

/// Returns at the first interrupt, termination or hang-up.
pub async fn terminated() {
    let wait = |kind: SignalKind| async move {
        match signal(kind) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            // Without a handler the signal's default action ends the process, which is what was asked for.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        () = wait(SignalKind::interrupt()) => {}
        () = wait(SignalKind::terminate()) => {}
        () = wait(SignalKind::hangup()) => {}
    }
}
