//! Standard output of commands.

use std::io::Write as _;

pub use clap_complete::Shell;

/// Flushes at once, as the reader may be a pipe. If the reader is gone (`| head`), the program exits.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other,
    }
}

/// Prints the completion script of a command.
pub fn print_completion(shell: Shell, mut command: clap::Command, name: &str) -> std::io::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script))
}
