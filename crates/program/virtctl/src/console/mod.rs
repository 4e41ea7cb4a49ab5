//! `virtctl console`: the guest's serial console on this terminal.
//!
//! ```text
//! wait until the guest runs ─► open the stream ─► raw terminal, splice ─► Ctrl+] or a signal: detach
//!        ▲                          │                     │
//!        └── 400: not running yet ──┘                     └─ the server closes: tell why, or whether the guest stopped
//! ```

mod splice;
mod terminal;
mod wait;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;
use waits::guest::Outlook;

use crate::args::ConsoleArgs;
use crate::connect::{ConnectArgs, Session};
use crate::guest;
use crate::subresource::{self, Kind, Stream};
use splice::Ended;
use terminal::RawTerminal;

pub(crate) async fn run(connect: &ConnectArgs, args: ConsoleArgs) -> anyhow::Result<ExitCode> {
    let session = connect.connect().await?;
    let deadline = Instant::now() + Duration::from_secs(args.timeout.saturating_mul(60));
    let stream = open(&session, &args.name, deadline).await?;
    eprintln!("Connected to the console of {}. Leave with Ctrl+].", args.name);

    let input = terminal::read_input();
    let raw = RawTerminal::enter(std::io::stdin()).context("cannot set the terminal to raw mode")?;
    let ended = splice::run(stream, input, tokio::io::stdout()).await;
    drop(raw);
    eprintln!();
    match ended? {
        Ended::Detached => Ok(ExitCode::SUCCESS),
        Ended::Signal(number) => Ok(ExitCode::from(128 + number)),
        Ended::Closed => closed(&session, &args.name).await,
        Ended::Expelled(why) => anyhow::bail!("disconnected from the console of {}: {why}", args.name),
    }
}

/// Opens the console, waiting for the guest to run. The guest may stop between the check and the call, which the server
/// answers with 400, 404 or 409; then the objects are read again to decide whether to wait.
async fn open(session: &Session, name: &str, deadline: Instant) -> anyhow::Result<Stream> {
    let path = subresource::path(Kind::VirtualMachineInstance, &session.namespace, name, "console");
    loop {
        wait::until_running(session, name, deadline).await?;
        match subresource::stream(session, &path).await {
            Ok(stream) => return Ok(stream),
            Err(error) if error.code() == Some(400) && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => {
                return Err(error.describe(&session.server))
                    .with_context(|| format!("cannot open the console of {name}"));
            }
        }
    }
}

/// The server closed the stream, usually because the guest stopped.
async fn closed(session: &Session, name: &str) -> anyhow::Result<ExitCode> {
    match guest::look(session, name).await {
        Ok(Outlook::Running) => anyhow::bail!(
            "the server closed the console of {name} while the guest runs: virt-handler may have restarted; run `virtctl console {name}` again"
        ),
        Ok(Outlook::Waiting(why) | Outlook::Never(why)) => {
            eprintln!("The console was closed: {why}.");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => Err(error.context(format!("the console of {name} was closed, and its state is not known"))),
    }
}
