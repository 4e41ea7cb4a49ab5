//! A process that lives no longer than the one that started it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use hostfs::process::{ProcessId, Signal};
use rustix::process::{getpid, getppid, set_parent_process_death_signal};

/// How much of a log is shown.
const TAIL: usize = 20;

/// A running process. It is killed when this value goes: what it holds is thrown away, so it need not tidy up.
pub struct Process {
    name: &'static str,
    id: ProcessId,
    log: PathBuf,
    /// How it ended, if it has.
    ended: Arc<OnceLock<String>>,
    keeper: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a program with its output in `NAME.log` of a folder.
    ///
    /// The kernel kills it when the thread that started it ends. Threads of tests come and go, so one is kept that does
    /// nothing else but wait for the process.
    pub fn start(name: &'static str, mut command: Command, folder: &Path) -> Result<Process> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        let errors = file.try_clone().with_context(|| format!("cannot share {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file).stderr(errors);
        bind_to_this_process(&mut command);
        let (tell_start, started) = channel();
        let ended = Arc::new(OnceLock::new());
        let end = ended.clone();
        let keep = move || {
            let child = command.spawn().map_err(anyhow::Error::from).and_then(|mut child| {
                // Before anyone waits for it, the pid is the child's even if it has ended.
                let id = ProcessId::of(i32::try_from(child.id())?).inspect_err(|_| _ = child.kill())?;
                Ok((child, id))
            });
            match child {
                Ok((mut child, id)) => {
                    let _ = tell_start.send(Ok(id));
                    let _ = end.set(child.wait().map_or_else(|err| err.to_string(), |status| status.to_string()));
                }
                Err(err) => _ = tell_start.send(Err(err)),
            }
        };
        let keeper = thread::Builder::new().name(name.to_owned()).spawn(keep).context("cannot start a thread")?;
        let id = started.recv().map_err(|_| anyhow!("the thread that keeps {name} is gone"))?;
        let id = id.with_context(|| format!("cannot start {name}"))?;
        Ok(Process { name, id, log, ended, keeper: Some(keeper) })
    }

    /// An error with the end of the log if the process is no longer there.
    pub fn check(&self) -> Result<()> {
        self.ended.get().map_or(Ok(()), |how| Err(anyhow!("{} ended ({how}){}", self.name, self.tail())))
    }

    /// The end of the log, under a heading.
    pub fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(TAIL)..];
        format!("\n--- the end of {}.log:\n{}", self.name, last.join("\n"))
    }
}

impl Process {
    /// The process as the kernel numbers it.
    pub fn pid(&self) -> i32 {
        self.id.pid
    }

    /// Asks the process to end, and waits so long for it.
    pub fn terminate(&mut self, patience: Duration) -> Result<()> {
        self.id.signal(Signal::TERM).with_context(|| format!("cannot ask {} to end", self.name))?;
        let gone = self.id.wait_gone(patience).with_context(|| format!("cannot wait for {}", self.name))?;
        ensure!(gone, "{} does not end within {} s{}", self.name, patience.as_secs(), self.tail());
        Ok(())
    }

    /// Ends the process, and waits until it has gone.
    pub fn end(&mut self) {
        // It is gone already, or the signal ends it; either way the keeper has waited for it when it returns.
        let _ = self.id.signal(Signal::KILL);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}

fn bind_to_this_process(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // Whoever starts it may have ended before the line above.
        if getppid() == Some(parent) { Ok(()) } else { Err(std::io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: between fork and exec this makes two system calls, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(bind) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::time::{Duration, Instant};

    fn shell(script: &str) -> (tempfile::TempDir, Process) {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let process = Process::start("sh", command, folder.path()).unwrap();
        (folder, process)
    }

    #[test]
    fn a_process_ends_with_its_value_and_outlives_the_thread_that_asked_for_it() {
        let (_folder, process) = thread::spawn(|| shell("exec sleep 600")).join().unwrap();
        thread::sleep(Duration::from_millis(50));
        let id = process.id;
        assert!(id.alive());
        process.check().unwrap();
        drop(process);
        assert!(!id.alive());
    }

    #[test]
    fn what_a_process_said_last_is_told_when_it_has_ended() {
        let (_folder, process) = shell("for i in $(seq 100); do echo line $i; done; exit 3");
        let deadline = Instant::now() + Duration::from_secs(20);
        let error = loop {
            match process.check() {
                Err(error) => break error.to_string(),
                Ok(()) => assert!(Instant::now() < deadline),
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert!(error.contains("sh ended (exit status: 3)") && error.ends_with("line 99\nline 100"), "{error}");
        assert!(!error.contains("line 80\n"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let error = Process::start("nothing", Command::new("/nowhere/nothing"), folder.path()).err().unwrap();
        assert!(format!("{error:#}").starts_with("cannot start nothing: "), "{error:#}");
    }

    /// The process that the next test kills: it keeps another one, says which, and waits.
    #[test]
    #[ignore = "only the test below can tell how it ends"]
    fn keeping_a_process_until_killed() {
        let (_folder, process) = shell("exec sleep 600");
        println!("{}", serde_json::to_string(&process.id).unwrap());
        thread::sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_process_ends_when_the_one_that_keeps_it_is_killed() {
        let mut keeper = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "keeper::tests::keeping_a_process_until_killed"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(keeper.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains("\"pid\"")).unwrap();
        let id: ProcessId = serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap();
        assert!(id.alive());
        keeper.kill().unwrap();
        keeper.wait().unwrap();
        assert!(id.wait_gone(Duration::from_secs(20)).unwrap());
    }
}
