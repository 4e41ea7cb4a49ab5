//! Progress messages of long-running commands, with elapsed times.

use std::io::{IsTerminal as _, Write as _};
use std::time::Instant;

/// Writes to standard error; standard output is for results.
#[derive(Debug)]
pub struct Progress {
    started: Instant,
    waiting: String,
}

impl Default for Progress {
    fn default() -> Self {
        Self { started: Instant::now(), waiting: String::new() }
    }
}

impl Progress {
    /// Reports a finished step.
    pub fn done(&mut self, what: impl AsRef<str>) {
        self.clear();
        eprintln!("[{:6.1}s] {}", self.started.elapsed().as_secs_f64(), what.as_ref());
    }

    /// Reports what is being waited for: once per distinct message, in place on a terminal.
    pub fn waiting(&mut self, what: impl AsRef<str>) {
        let what = what.as_ref();
        if self.waiting == what {
            return;
        }
        self.clear();
        self.waiting = what.to_owned();
        let seconds = self.started.elapsed().as_secs_f64();
        match std::io::stderr().is_terminal() {
            true => eprint!("[{seconds:6.1}s] … {what}"),
            false => eprintln!("[{seconds:6.1}s] … {what}"),
        }
        // Failing to show progress must not fail the command.
        let _ = std::io::stderr().flush();
    }

    pub fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    fn clear(&mut self) {
        if !self.waiting.is_empty() && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        self.waiting.clear();
    }
}
