//! The user's terminal: raw mode that is always undone, and input that can be abandoned.

use std::io::Read as _;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;

use parking_lot::Mutex;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// The terminal to restore in the panic hook, so that the panic message is readable.
static RAW: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// Raw mode as long as it lives. No-op if standard input is not a terminal.
pub(super) struct RawTerminal(());

impl RawTerminal {
    pub(super) fn enter(terminal: impl AsFd) -> std::io::Result<Self> {
        let terminal = terminal.as_fd().try_clone_to_owned()?;
        if !isatty(&terminal) {
            return Ok(RawTerminal(()));
        }
        let saved = tcgetattr(&terminal)?;
        let mut raw = saved.clone();
        raw.make_raw();
        restore_on_panic();
        *RAW.lock() = Some((terminal.try_clone()?, saved));
        let entered = RawTerminal(()); // from here on an error restores the terminal too
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(entered)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

fn restore() {
    if let Some((terminal, saved)) = RAW.lock().take() {
        // Nothing can be done about a terminal that is gone.
        let _ = tcsetattr(&terminal, OptionalActions::Flush, &saved);
    }
}

fn restore_on_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            default(panic);
        }));
    });
}

/// Standard input as it is typed; the channel closes at EOF.
///
/// Uses a dedicated thread instead of the runtime's standard input: a read cannot be interrupted, and the runtime would
/// wait for it at the end of the program.
pub(super) fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut buffer = [0; 4096];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    if sender.blocking_send(buffer[..length].to_vec()).is_err() {
                        break;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::LocalModes;

    fn terminal() -> (OwnedFd, std::fs::File) {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap().into_string().unwrap();
        let terminal = std::fs::File::options().read(true).write(true).open(name).unwrap();
        (controller, terminal)
    }

    fn echoes(terminal: &std::fs::File) -> bool {
        tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
    }

    /// One test, as the terminal to restore is one per process.
    #[test]
    fn raw_mode_ends_with_its_guard_and_with_a_panic() {
        let (_controller, terminal) = terminal();
        assert!(echoes(&terminal));
        let raw = RawTerminal::enter(&terminal).unwrap();
        assert!(!echoes(&terminal));
        drop(raw);
        assert!(echoes(&terminal));

        let raw = RawTerminal::enter(&terminal).unwrap();
        let panicking = std::thread::spawn(|| panic!("a thread of the program panics"));
        assert!(panicking.join().is_err());
        assert!(echoes(&terminal), "restored before the message was printed");
        drop(raw);

        let file = tempfile::tempfile().unwrap();
        RawTerminal::enter(&file).expect("what is not a terminal needs no raw mode");
    }
}
