//! Polls a guest continuously, to tell afterwards whether it was ever unreachable.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use api::v1::VirtualMachineInstance;
use kube::api::Api;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Access, ClientPod};

/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(100);

/// Pings the guest and reads its counter over the network, at the VMI's current address.
#[derive(Debug)]
pub struct Witness {
    task: JoinHandle<Result<(Testimony, ClientPod)>>,
    stop: CancellationToken,
}

/// The recorded results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Testimony {
    /// When the guest answered, relative to the first poll, and its counter.
    answers: Vec<(Duration, u64)>,
    /// Polls without an answer.
    missed: usize,
    /// From the first poll to the last.
    lasted: Duration,
}

impl Witness {
    /// Polls the guest `name` from `client` until [`Witness::finish`].
    pub async fn start(cluster: &Access, client: ClientPod, name: &str) -> Result<Self> {
        let vmis: Api<VirtualMachineInstance> = Api::default_namespaced(cluster.client().await?);
        let asker = cluster.clone();
        let (stop, name) = (CancellationToken::new(), name.to_owned());
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let started = Instant::now();
            let mut testimony = Testimony { answers: vec![], missed: 0, lasted: Duration::ZERO };
            while !stopped.is_cancelled() {
                match ask(&asker, &client, &vmis, &name).await {
                    Ok(count) => testimony.answers.push((started.elapsed(), count)),
                    Err(error) => {
                        tracing::debug!(error = format!("{error:#}"), "the guest did not answer");
                        testimony.missed += 1;
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
            testimony.lasted = started.elapsed();
            Ok((testimony, client))
        });
        Ok(Self { task, stop })
    }

    /// Stops polling.
    pub async fn finish(self) -> Result<(Testimony, ClientPod)> {
        self.stop.cancel();
        self.task.await.context("the witness panicked")?
    }
}

async fn ask(cluster: &Access, client: &ClientPod, vmis: &Api<VirtualMachineInstance>, name: &str) -> Result<u64> {
    let vmi = vmis.get(name).await.context("cannot read the instance")?;
    let status = vmi.status.unwrap_or_default();
    let address = status.interfaces.first().and_then(|first| first.ip_address.clone()).context("it has no address")?;
    let body = client.ping_and_http(cluster, &address, "/cgi-bin/tick").await?;
    body.split_whitespace().next().and_then(|word| word.parse().ok()).with_context(|| format!("no counter in `{body}`"))
}

impl Testimony {
    /// Checks that the counter never went backwards, and never forward faster than time.
    pub fn check(&self) -> Result<()> {
        if self.answers.len() < 2 {
            bail!("the guest answered {} times in {:.1} s", self.answers.len(), self.lasted.as_secs_f64());
        }
        for pair in self.answers.windows(2) {
            let [(before, first), (after, second)] = pair else { continue };
            let seconds = (*after - *before).as_secs_f64();
            if second < first {
                bail!("the counter went back from {first} to {second}: it is another run of the guest");
            }
            if (second - first) as f64 > seconds + 2.0 {
                bail!("the counter went from {first} to {second} in {seconds:.1} s");
            }
        }
        Ok(())
    }

    /// The longest time without an answer.
    pub fn longest_silence(&self) -> Duration {
        let times = std::iter::once(Duration::ZERO).chain(self.answers.iter().map(|(at, _)| *at));
        let times: Vec<Duration> = times.chain([self.lasted]).collect();
        times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap_or_default()
    }
}

impl fmt::Display for Testimony {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.answers.first(), self.answers.last());
        let (first, last) = (first.map_or(0, |(_, count)| *count), last.map_or(0, |(_, count)| *count));
        write!(
            f,
            "the guest's counter went from {first} to {last} in {:.1} s without a gap; {} of {} pings and questions \
             were answered, the longest silence was {:.1} s",
            self.lasted.as_secs_f64(),
            self.answers.len(),
            self.answers.len() + self.missed,
            self.longest_silence().as_secs_f64()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testimony(answers: &[(u64, u64)], lasted: u64) -> Testimony {
        let answers = answers.iter().map(|(at, count)| (Duration::from_millis(*at), *count)).collect();
        Testimony { answers, missed: 1, lasted: Duration::from_millis(lasted) }
    }

    #[test]
    fn a_counter_that_goes_on_is_one_guest() {
        assert!(testimony(&[(100, 5), (1100, 6), (4000, 8)], 4000).check().is_ok());
        assert!(testimony(&[(100, 5), (1100, 1)], 2000).check().unwrap_err().to_string().contains("went back"));
        assert!(testimony(&[(100, 5), (1100, 50)], 2000).check().is_err(), "faster than time");
        assert!(testimony(&[(100, 5)], 2000).check().is_err(), "one answer tells nothing");
    }

    #[test]
    fn the_silence_before_the_first_and_after_the_last_answer_counts() {
        assert_eq!(testimony(&[(3000, 5), (3500, 6)], 4000).longest_silence(), Duration::from_secs(3));
        assert_eq!(testimony(&[(100, 5), (500, 6)], 4000).longest_silence(), Duration::from_millis(3500));
    }
}
