//! The guest's serial console through `virtctl console`, over pipes.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use super::Access;

/// Collects the guest's output and sends input.
#[derive(Debug)]
pub struct Console {
    virtctl: Child,
    stdin: ChildStdin,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
struct Seen {
    text: String,
    /// When each complete line arrived.
    lines: Vec<(Instant, String)>,
    /// virtctl's own messages, for the error of a wait that times out.
    remarks: String,
    ended: bool,
}

impl Seen {
    /// The guest's output from a position on and virtctl's messages, for an error.
    fn tail(&self, from: usize) -> String {
        let new = self.text.get(from..).unwrap_or_default();
        let start = new.char_indices().rev().nth(TAIL - 1).map_or(0, |(at, _)| at);
        format!("it last showed `{}`, and virtctl said `{}`", &new[start..], self.remarks.trim())
    }
}

/// Number of console characters shown in an error.
const TAIL: usize = 300;

/// Called with each complete line as it arrives.
type OnLine = Box<dyn Fn(&str) + Send>;

impl Console {
    /// Attaches; `virtctl` itself waits until the guest runs.
    pub fn attach(cluster: &Access, namespace: &str, name: &str, on_line: Option<OnLine>) -> Result<Self> {
        let mut virtctl = cluster
            .command(&["virtctl", "console", name, "--namespace", namespace])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("cannot start virtctl console")?;
        let stdin = virtctl.stdin.take().context("virtctl has no standard input")?;
        let mut stdout = virtctl.stdout.take().context("virtctl has no standard output")?;
        let mut stderr = virtctl.stderr.take().context("virtctl has no standard error")?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = seen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0u8; 1024];
            while let Ok(count @ 1..) = stderr.read(&mut buffer) {
                shared.lock().remarks.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        let shared = seen.clone();
        // Ends when virtctl exits and closes its output.
        std::thread::spawn(move || {
            let mut buffer = [0u8; 4096];
            let mut partial = String::new();
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).replace('\r', "");
                let mut seen = shared.lock();
                seen.text.push_str(&text);
                partial.push_str(&text);
                while let Some(end) = partial.find('\n') {
                    let line: String = partial.drain(..=end).collect();
                    let line = line.trim_end().to_owned();
                    if let Some(on_line) = &on_line {
                        on_line(&line);
                    }
                    seen.lines.push((Instant::now(), line));
                }
            }
            shared.lock().ended = true;
        });
        Ok(Self { virtctl, stdin, seen })
    }

    /// All output of the guest since the console was attached.
    pub fn text(&self) -> String {
        self.seen.lock().text.clone()
    }

    /// Current length of [`Console::text`], to wait for later output.
    pub fn position(&self) -> usize {
        self.seen.lock().text.len()
    }

    /// When the first line that contains `needle` arrived.
    pub fn arrival(&self, needle: &str) -> Option<Instant> {
        self.seen.lock().lines.iter().find(|(_, line)| line.contains(needle)).map(|(at, _)| *at)
    }

    /// Waits for `needle` in the output from `from` on, and returns the position after it.
    pub async fn wait_for(&self, needle: &str, from: usize, limit: Duration) -> Result<usize> {
        self.wait_for_any(&[needle], from, limit).await.map(|(_, position)| position)
    }

    /// Waits for the first of several strings, and returns which one it is.
    pub async fn wait_for_any<'a>(
        &self,
        needles: &[&'a str],
        from: usize,
        limit: Duration,
    ) -> Result<(&'a str, usize)> {
        let started = Instant::now();
        let needle = needles.join("` or `");
        loop {
            {
                let seen = self.seen.lock();
                let new = seen.text.get(from..).unwrap_or_default();
                let found = needles.iter().filter_map(|needle| new.find(needle).map(|at| (at, *needle))).min();
                if let Some((at, needle)) = found {
                    return Ok((needle, from + at + needle.len()));
                }
                if seen.ended {
                    bail!("the console ended before `{needle}` appeared; {}", seen.tail(from));
                }
                if started.elapsed() > limit {
                    let limit = limit.as_secs();
                    bail!("`{needle}` did not appear on the console within {limit} s; {}", seen.tail(from));
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn send(&mut self, text: &str) -> Result<()> {
        self.stdin.write_all(text.as_bytes()).and_then(|()| self.stdin.flush()).context("cannot type on the console")
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.virtctl.kill();
        let _ = self.virtctl.wait();
    }
}
