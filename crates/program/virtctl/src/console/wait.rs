//! Waits until a guest runs, reporting what it waits for.

use std::time::Duration;

use tokio::time::Instant;
use waits::guest::Outlook;

use crate::connect::Session;
use crate::guest;

/// Returns when the guest runs; fails at once if it will not, or at the deadline.
pub(super) async fn until_running(session: &Session, name: &str, deadline: Instant) -> anyhow::Result<()> {
    let mut told = String::new();
    loop {
        let sentence = match guest::look(session, name).await? {
            Outlook::Running => return Ok(()),
            Outlook::Never(why) => anyhow::bail!("{why} (namespace {})", session.namespace),
            Outlook::Waiting(sentence) => sentence,
        };
        if Instant::now() >= deadline {
            anyhow::bail!("timed out waiting for {name} to run: {sentence}; use --timeout to wait longer");
        }
        if sentence != told {
            eprintln!("{sentence} …");
            told = sentence;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
