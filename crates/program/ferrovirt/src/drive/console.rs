//! The guest's serial console through `virtctl console`, with its two ends as pipes.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Embedded;

/// What the guest has written so far, and a way to type.
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
    ended: bool,
}

/// Called with each complete line as it arrives.
type OnLine = Box<dyn Fn(&str) + Send>;

impl Console {
    /// Attaches; `virtctl` itself waits until the guest runs.
    pub fn attach(cluster: &Embedded, namespace: &str, name: &str, on_line: Option<OnLine>) -> Result<Self> {
        let mut virtctl = cluster
            .command(&["virtctl", "console", name, "--namespace", namespace])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("cannot start virtctl console")?;
        let stdin = virtctl.stdin.take().context("virtctl has no standard input")?;
        let mut stdout = virtctl.stdout.take().context("virtctl has no standard output")?;
        let seen = Arc::new(Mutex::new(Seen::default()));
        let shared = seen.clone();
        // Ends when virtctl does: its output closes.
        std::thread::spawn(move || {
            let mut buffer = [0u8; 4096];
            let mut partial = String::new();
            while let Ok(count @ 1..) = stdout.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).replace('\r', "");
                let mut seen = lock(&shared);
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
            lock(&shared).ended = true;
        });
        Ok(Self { virtctl, stdin, seen })
    }

    /// Everything the guest has written since the attachment.
    pub fn text(&self) -> String {
        lock(&self.seen).text.clone()
    }

    /// Length of [`Console::text`] now, to wait for what comes after it.
    pub fn position(&self) -> usize {
        lock(&self.seen).text.len()
    }

    /// When the first line that contains `needle` arrived.
    pub fn arrival(&self, needle: &str) -> Option<Instant> {
        lock(&self.seen).lines.iter().find(|(_, line)| line.contains(needle)).map(|(at, _)| *at)
    }

    /// Waits for `needle` in what was written from `from` on, and returns the position after it.
    pub async fn wait_for(&self, needle: &str, from: usize, limit: Duration) -> Result<usize> {
        self.wait_for_any(&[needle], from, limit).await.map(|(_, position)| position)
    }

    /// The same for the first of several that appears; tells which one that is, too.
    pub async fn wait_for_any<'a>(
        &self,
        needles: &[&'a str],
        from: usize,
        limit: Duration,
    ) -> Result<(&'a str, usize)> {
        let started = Instant::now();
        let needle = needles.join("` or `");
        loop {
            let (found, ended, tail) = {
                let seen = lock(&self.seen);
                let new = seen.text.get(from..).unwrap_or_default();
                let tail: String = new.chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
                let found = needles.iter().filter_map(|needle| new.find(needle).map(|at| (at, *needle))).min();
                (found.map(|(at, needle)| (needle, from + at + needle.len())), seen.ended, tail)
            };
            match found {
                Some(found) => return Ok(found),
                None if ended => bail!("the console ended before `{needle}` appeared; it last showed: {tail}"),
                None if started.elapsed() > limit => {
                    bail!(
                        "`{needle}` did not appear on the console within {} s; it last showed: {tail}",
                        limit.as_secs()
                    )
                }
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }

    pub fn send(&mut self, text: &str) -> Result<()> {
        self.stdin.write_all(text.as_bytes()).and_then(|()| self.stdin.flush()).context("cannot type on the console")
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.virtctl.kill();
        let _ = self.virtctl.wait();
    }
}
