//! Post-copy recovery at the target after a broken connection.
//!
//! QEMU has to listen again. The command for that is `migrate-recover`, but libvirt's monitor only works as long as
//! QEMU's main loop does. Usually it is blocked: whatever holds the main lock and touches a missing page waits for that
//! page, be it a device reading its queue or, under emulation, the delivery of an interrupt. libvirt then waits for an
//! answer in the middle of its last step and does not even notice the break. `migrate-recover` can be sent out of band
//! on a monitor that enables it, which libvirt 9.0 does not. So a target that may receive a guest by post-copy has a
//! second monitor for this launcher ([`domain::with_recovery_monitor`]), which QEMU serves in a separate thread.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// Retry interval, until QEMU is there and between two attempts.
const AGAIN: Duration = Duration::from_millis(200);
/// More than QEMU ever sends here.
const LINE_MAX: u64 = 256 << 10;

/// Makes QEMU listen for the source again whenever the connection breaks. Never returns.
///
/// Must be started before a break: opening the monitor session needs QEMU's main loop.
pub(super) async fn keep_listening(monitor: &Path, uri: &str) {
    loop {
        if let Ok(stream) = UnixStream::connect(monitor).await
            && let Err(error) = attend(stream, uri).await
        {
            tracing::debug!(%error, "the monitor for a broken post-copy has closed");
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn attend(stream: UnixStream, uri: &str) -> io::Result<()> {
    const LISTEN: u64 = 2;
    let (read, mut write) = stream.into_split();
    let mut said = BufReader::new(read);
    let enable = json!({"execute": "qmp_capabilities", "arguments": {"enable": ["oob"]}, "id": 1});
    let listen = json!({"exec-oob": "migrate-recover", "arguments": {"uri": uri}, "id": LISTEN});
    write.write_all(format!("{enable}\n").as_bytes()).await?;
    let mut broken = false;
    loop {
        let said = next(&mut said).await?;
        if said["event"] == "MIGRATION" {
            broken = said["data"]["status"] == "postcopy-paused";
        } else if said["id"] != LISTEN {
            continue;
        } else if let Some(why) = said["error"]["desc"].as_str() {
            tracing::debug!(why, "QEMU does not wait for a new connection");
            tokio::time::sleep(AGAIN).await;
        } else {
            tracing::warn!("the connection to the source broke; QEMU waits for a new one");
            continue;
        }
        if broken {
            write.write_all(format!("{listen}\n").as_bytes()).await?;
        }
    }
}

async fn next(said: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Value> {
    let mut line = Vec::new();
    said.take(LINE_MAX).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A QEMU that says these lines, each after another command, and what it was told.
    async fn told(lines: &[&str]) -> Vec<Value> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("monitor.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let launcher = tokio::spawn(async move { keep_listening(&path, "unix:/s/memory.sock").await });
        let (stream, _) = listener.accept().await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut commands = BufReader::new(read).lines();
        write.write_all(b"{\"QMP\": {\"capabilities\": [\"oob\"]}}\r\n").await.unwrap();
        let mut heard = Vec::new();
        for line in lines {
            let command = commands.next_line().await.unwrap().unwrap();
            heard.push(serde_json::from_str(&command).unwrap());
            write.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
        }
        launcher.abort();
        heard
    }

    const PAUSED: &str = r#"{"event": "MIGRATION", "data": {"status": "postcopy-paused"}}"#;

    #[tokio::test]
    async fn qemu_is_told_out_of_band_where_to_listen_when_the_connection_breaks() {
        let breaks = format!("{{\"return\": {{}}, \"id\": 1}}\r\n{PAUSED}");
        let heard = told(&[&breaks, r#"{"return": {}, "id": 2}"#]).await;
        assert_eq!(heard[0]["arguments"]["enable"], json!(["oob"]));
        assert_eq!(heard[1]["exec-oob"], "migrate-recover");
        assert_eq!(heard[1]["arguments"]["uri"], "unix:/s/memory.sock");
    }

    #[tokio::test]
    async fn it_is_told_again_after_a_refusal_and_after_another_break() {
        let refused = r#"{"error": {"class": "GenericError", "desc": "not yet"}, "id": 2}"#;
        let goes_on = r#"{"event": "MIGRATION", "data": {"status": "postcopy-active"}}"#;
        let breaks_again = format!("{{\"return\": {{}}, \"id\": 2}}\r\n{goes_on}\r\n{PAUSED}");
        let heard = told(&[PAUSED, refused, &breaks_again, "{}"]).await;
        assert!(heard[1..].iter().all(|command| command["exec-oob"] == "migrate-recover"), "{heard:?}");
        assert_eq!(heard.len(), 4);
    }
}
