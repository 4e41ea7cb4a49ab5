//! Running programs of the machine to their end.

use std::io::{Seek, SeekFrom, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs a program; returns what it printed, or fails with what it complained of.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let doing = describe(command);
    let output = command.output().with_context(|| format!("cannot run {doing}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{doing} failed ({}): {}", output.status, complaint.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same with text on its standard input.
pub(crate) fn output_with_input(command: &mut Command, text: &str) -> Result<String> {
    // A file, not a pipe: a program that does not read must not make us wait.
    let mut file = tempfile::tempfile().context("cannot make a temporary file")?;
    file.write_all(text.as_bytes()).and_then(|()| file.seek(SeekFrom::Start(0))).context("cannot write to it")?;
    output(command.stdin(Stdio::from(file)))
}

fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Looks until it is there. Fails with what was found instead when time is up.
pub(crate) fn wait<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Result<T>) -> Result<T> {
    const INTERVAL: Duration = Duration::from_millis(200);
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(err) if Instant::now() > deadline => {
                return Err(err).with_context(|| format!("{what}: not within {} s", limit.as_secs()));
            }
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_gets_its_input_and_its_complaint_is_told() {
        assert_eq!(output_with_input(&mut Command::new("cat"), "text").unwrap(), "text");
        let error = output(Command::new("sh").args(["-c", "echo no >&2; exit 3"])).unwrap_err();
        assert_eq!(error.to_string(), "sh -c echo no >&2; exit 3 failed (exit status: 3): no");
    }

    #[test]
    fn waiting_ends_with_what_was_found_or_with_the_last_reason() {
        let mut looks = 0;
        let found = wait(Duration::from_secs(20), "three looks", || {
            looks += 1;
            if looks == 3 { Ok(looks) } else { bail!("only {looks}") }
        });
        assert_eq!(found.unwrap(), 3);
        let error = wait::<()>(Duration::ZERO, "nothing", || bail!("there is none")).unwrap_err();
        assert_eq!(format!("{error:#}"), "nothing: not within 0 s: there is none");
    }
}
