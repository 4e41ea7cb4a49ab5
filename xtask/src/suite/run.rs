//! Runs test binaries, some at a time, each with a log of its own.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

/// Below the folder of built things.
const LOGS: &str = "target/test-logs";

/// How long a binary may take: several times what the longest one needs. One that hangs is ended and named, where it would
/// otherwise use up the time of the whole run and nobody would know which one it was.
const LIMIT: Duration = Duration::from_mins(25);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// One run of a test binary.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) name: String,
    limit: Duration,
    executable: PathBuf,
    folder: PathBuf,
    args: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
}

/// How a run ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) log: PathBuf,
    pub(super) success: bool,
    pub(super) took: Duration,
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
}

impl Job {
    pub(super) fn new(name: String, executable: PathBuf, folder: PathBuf) -> Self {
        Self { name, limit: LIMIT, executable, folder, args: Vec::new(), environment: Vec::new() }
    }

    pub(super) fn named(self, name: String) -> Self {
        Self { name, ..self }
    }

    pub(super) fn with_env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name, value.as_ref().to_owned()));
        self
    }

    pub(super) fn with_args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// For a binary that is known to take longer than others.
    pub(super) fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    fn log(&self) -> PathBuf {
        crate::workspace().join(LOGS).join(format!("{}.log", self.name.replace("::", "-")))
    }

    /// Runs the binary to its end, or to that of its time. Its output is in the log, and on the terminal too if it fails.
    fn run(self) -> Result<Outcome> {
        let begun = Instant::now();
        let path = self.log();
        let log = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let errors = log.try_clone().with_context(|| format!("cannot open {} twice", path.display()))?;
        let mut child = Command::new(&self.executable)
            .current_dir(&self.folder)
            .args(&self.args)
            .envs(self.environment.iter().map(|(name, value)| (*name, value.as_os_str())))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot run {}", self.executable.display()))?;
        let status = wait(&mut child, begun + self.limit)
            .with_context(|| format!("cannot wait for {}", self.executable.display()))?;
        let mut text = String::from_utf8_lossy(&fs::read(&path).context("cannot read the log")?).into_owned();
        if status.is_none() {
            text += &format!("\n{} was ended: it ran for more than {} s\n", self.name, self.limit.as_secs());
        }
        let [passed, failed, skipped] = counts(&text);
        let outcome = Outcome {
            name: self.name,
            log: path,
            success: status.is_some_and(|status| status.success()),
            took: begun.elapsed(),
            passed,
            failed,
            skipped,
        };
        outcome.print(&text);
        Ok(outcome)
    }
}

/// The status of a process that has ended, or none of one that had to be ended. Clusters that it had started may be left,
/// as after a crash: `ferrovirt down --data-dir` ends an embedded one, and a real one ends by itself.
fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Outcome {
    fn print(&self, text: &str) {
        let word = if self.success { "ok" } else { "FAILED" };
        let (name, seconds) = (&self.name, self.took.as_secs_f64());
        let line = format!("{word:<7}{name:<40}{:>6} passed {seconds:>8.1} s", self.passed);
        if self.success {
            println!("{line}");
        } else {
            println!("---- {name}\n{text}\n{line}");
        }
    }
}

/// Runs all jobs in their order, `at_once` at a time. A failing one does not keep the others from running.
pub(super) fn all(jobs: Vec<Job>, at_once: usize) -> Result<Vec<Outcome>> {
    let logs = crate::workspace().join(LOGS);
    fs::create_dir_all(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
    let jobs = Mutex::new(VecDeque::from(jobs));
    let next = || jobs.lock().pop_front();
    let worker = || -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        while let Some(job) = next() {
            outcomes.push(job.run()?);
        }
        Ok(outcomes)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(worker)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}

/// What the `test result:` lines say in sum: passed, failed, ignored. A binary may run its tests in several batches.
fn counts(text: &str) -> [u64; 3] {
    let number = |line: &str, word: &str| -> u64 {
        let part = line.split([';', '.']).find(|part| part.trim().ends_with(word));
        part.and_then(|part| part.split_whitespace().next()?.parse().ok()).unwrap_or(0)
    };
    let results = || text.lines().filter(|line| line.starts_with("test result:"));
    ["passed", "failed", "ignored"].map(|word| results().map(|line| number(line, word)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_the_closing_lines() {
        let text = "test a ... ok\n\ntest result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out; finished in 0.01s\n";
        assert_eq!(counts(text), [12, 0, 3]);
        assert_eq!(counts("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured"), [1, 2, 0]);
        assert_eq!(counts(&format!("{text}\nrunning 1 test\n{text}")), [24, 0, 6]);
        assert_eq!(counts("the end-to-end tests are skipped"), [0, 0, 0]);
    }

    #[test]
    fn every_job_runs_also_after_one_that_fails() {
        let job = |name: &str, script: &str| {
            Job::new(name.to_owned(), "/bin/sh".into(), "/".into()).with_args(&["-c", script])
        };
        let jobs = vec![job("suite-test::a", "exit 1"), job("suite-test::b", "echo 'test result: ok. 1 passed'")];
        let outcomes = all(jobs, 1).expect("a shell can be run");
        let seen: Vec<(bool, u64)> = outcomes.iter().map(|outcome| (outcome.success, outcome.passed)).collect();
        assert_eq!(seen, [(false, 0), (true, 1)]);
    }

    #[test]
    fn a_job_that_hangs_is_ended_and_fails() {
        let job = Job::new("suite-test::hangs".to_owned(), "/bin/sleep".into(), "/".into()).with_args(&["1000"]);
        let outcomes = all(vec![job.with_limit(Duration::from_millis(200))], 1).expect("sleep can be run");
        assert_eq!(outcomes.iter().map(|outcome| outcome.success).collect::<Vec<_>>(), [false]);
    }
}
