//! `virt-tail --logfile FILE`: prints what QEMU writes of a guest's serial console, so that it is in the Pod's log.
//!
//! A program of its own because it runs with hardly any memory, and without the capability that the kernel demands to run
//! virt-launcher's file: it is small, static and depends on nothing. It ends when told to, after everything that was
//! written until then.

mod follow;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::follow::Follower;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Set when the process was told to end.
static ENDED: AtomicBool = AtomicBool::new(false);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let Some(file) = file(&args) else {
        eprintln!("usage: virt-tail --logfile FILE");
        return ExitCode::from(2);
    };
    match print(file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            eprintln!("virt-tail: cannot print the console: {err}");
            ExitCode::FAILURE
        }
    }
}

fn file(args: &[String]) -> Option<PathBuf> {
    match args {
        [flag, file] if flag == "--logfile" => Some(file.into()),
        [only] => only.strip_prefix("--logfile=").filter(|file| !file.is_empty()).map(PathBuf::from),
        _ => None,
    }
}

fn print(file: PathBuf) -> std::io::Result<()> {
    end_on_signals();
    let mut follower = Follower::new(file);
    let mut output = std::io::stdout();
    while !ENDED.load(Ordering::Relaxed) {
        follower.pass_on(&mut output)?;
        std::thread::sleep(PERIOD);
    }
    follower.pass_on(&mut output)
}

/// The first process of a container is not ended by signals that it does not handle.
fn end_on_signals() {
    const INTERRUPT: i32 = 2;
    const TERMINATE: i32 = 15;
    unsafe extern "C" {
        fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    }
    extern "C" fn end(_: i32) {
        ENDED.store(true, Ordering::Relaxed);
    }
    for number in [INTERRUPT, TERMINATE] {
        // SAFETY: the C library's function, as declared there; the handler only stores to an atomic.
        unsafe { signal(number, end) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_named_as_pods_name_it() {
        let parse = |args: &[&str]| file(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&["--logfile", "/a"]), Some(PathBuf::from("/a")));
        assert_eq!(parse(&["--logfile=/a"]), Some(PathBuf::from("/a")));
        for wrong in [&[][..], &["--logfile"], &["--logfile="], &["/a"], &["--logfile", "/a", "more"]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
