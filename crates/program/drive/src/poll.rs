//! Polls a condition, with a generous timeout: machines are slow and noisy.

use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Calls `probe` until it returns `Ok`; its last `Err` says what was still missing at the timeout.
pub async fn poll<T, F>(what: &str, limit: Duration, mut probe: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T, String>>,
{
    let started = Instant::now();
    loop {
        let missing = match probe().await {
            Ok(value) => return Ok(value),
            Err(missing) => missing,
        };
        if started.elapsed() > limit {
            bail!("{what} did not happen within {} s: {missing}", limit.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
