//! How a post-copy goes on after its connection broke, at the target.
//!
//! QEMU has to listen again. It is told so by `migrate-recover`, and libvirt's monitor carries that only as long as QEMU's
//! main loop turns. It seldom does: whatever takes the main lock and touches a page that has not come waits for the page, be
//! it a device that looks into its queue or, under emulation, the delivery of an interrupt. `migrate-recover` may overtake
//! everything else on a monitor that allows it (out of band), and libvirt 9.0 does not ask for that. So a target that a guest
//! may come to by post-copy has a second monitor, which is this launcher's. QEMU serves it in a thread of its own.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

const NAMESPACE: &str = "http://libvirt.org/schemas/domain/qemu/1.0";
/// The character device behind the monitor.
const DEVICE: &str = "recovery";
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// More than QEMU says in one conversation about one command.
const ANSWERS_MAX: u64 = 256 << 10;

/// The domain with the second monitor. One that came by post-copy before has it already.
pub(super) fn with_monitor(xml: &str, socket: &Path) -> String {
    let chardev = format!("socket,id={DEVICE},path={},server=on,wait=off", socket.display());
    let monitor = format!("chardev={DEVICE},mode=control");
    let words = ["-chardev", &chardev, "-mon", &monitor];
    if xml.contains(&format!("'{chardev}'")) {
        return xml.to_owned();
    }
    let Some((inside, "")) = xml.trim_end().rsplit_once("</domain>") else { return xml.to_owned() };
    let words: String = words.iter().map(|word| format!("<qemu:arg value='{word}'/>")).collect();
    // Declared where it is used: whether the root has declared it before does not matter.
    format!("{inside}<qemu:commandline xmlns:qemu='{NAMESPACE}'>{words}</qemu:commandline></domain>\n")
}

/// Has QEMU wait for the source again.
pub(super) async fn listen(monitor: &Path, uri: &str) -> io::Result<()> {
    let talk = async {
        let stream = UnixStream::connect(monitor).await?;
        let (read, mut write) = stream.into_split();
        let mut answers = BufReader::new(read.take(ANSWERS_MAX));
        write
            .write_all(&line(&json!({"execute": "qmp_capabilities", "arguments": {"enable": ["oob"]}, "id": 1})))
            .await?;
        answer(&mut answers, 1).await?;
        write.write_all(&line(&json!({"exec-oob": "migrate-recover", "arguments": {"uri": uri}, "id": 2}))).await?;
        answer(&mut answers, 2).await
    };
    tokio::time::timeout(ANSWER_WITHIN, talk).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

fn line(command: &Value) -> Vec<u8> {
    format!("{command}\n").into_bytes()
}

/// Reads past greeting and events up to the answer to a command.
async fn answer(answers: &mut (impl tokio::io::AsyncBufRead + Unpin), id: u64) -> io::Result<()> {
    let mut text = String::new();
    loop {
        text.clear();
        if answers.read_line(&mut text).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let said: Value = serde_json::from_str(&text)?;
        if said["id"] != id {
            continue;
        }
        return match said["error"]["desc"].as_str() {
            Some(why) => Err(io::Error::other(why.to_owned())),
            None => Ok(()),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKET: &str = "/s/monitor.sock";

    #[test]
    fn a_domain_gets_the_monitor_once() {
        let once = with_monitor("<domain type='qemu' id='1'>\n  <name>a</name>\n</domain>\n", Path::new(SOCKET));
        let expected = "<domain type='qemu' id='1'>\n  <name>a</name>\n<qemu:commandline \
            xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'><qemu:arg value='-chardev'/>\
            <qemu:arg value='socket,id=recovery,path=/s/monitor.sock,server=on,wait=off'/>\
            <qemu:arg value='-mon'/><qemu:arg value='chardev=recovery,mode=control'/></qemu:commandline></domain>\n";
        assert_eq!(once, expected);
        assert_eq!(with_monitor(&once, Path::new(SOCKET)), once);
    }

    /// A QEMU that answers `said` to the second command, after an event.
    async fn told(said: &'static str) -> (io::Result<()>, Vec<Value>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("monitor.sock");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let qemu = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let (read, mut write) = stream.into_split();
            let mut commands = BufReader::new(read).lines();
            let mut heard = Vec::new();
            write.write_all(b"{\"QMP\": {\"capabilities\": [\"oob\"]}}\r\n").await.unwrap();
            for said in ["{\"return\": {}, \"id\": 1}", said] {
                let Some(command) = commands.next_line().await.unwrap() else { break };
                heard.push(serde_json::from_str(&command).unwrap());
                write.write_all(format!("{{\"event\": \"MIGRATION\"}}\r\n{said}\r\n").as_bytes()).await.unwrap();
            }
            heard
        });
        let told = listen(&path, "unix:/s/memory.sock").await;
        (told, qemu.await.unwrap())
    }

    #[tokio::test]
    async fn qemu_is_told_out_of_band_where_to_listen() {
        let (told, heard) = told("{\"return\": {}, \"id\": 2}").await;
        told.unwrap();
        assert_eq!(heard[0]["arguments"]["enable"], json!(["oob"]));
        assert_eq!(heard[1]["exec-oob"], "migrate-recover");
        assert_eq!(heard[1]["arguments"]["uri"], "unix:/s/memory.sock");
    }

    #[tokio::test]
    async fn a_refusal_is_passed_on() {
        let (told, _) = told("{\"error\": {\"class\": \"GenericError\", \"desc\": \"not paused\"}, \"id\": 2}").await;
        assert_eq!(told.unwrap_err().to_string(), "not paused");
    }
}
