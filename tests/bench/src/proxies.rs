//! What the way of a migration through the two node agents costs: bytes per second of CPU time, beside plain TCP.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use role_tls::{Identity, Source};
use test_support::{Authority, Pair};
use virt_handler::loopback::Way;

use crate::median;

const BYTES: u64 = 2 << 30;
/// About what QEMU hands to the kernel at once.
const CHUNK: usize = 128 << 10;
/// Alternating, so that a noisy minute hits all.
const ROUNDS: usize = 3;
/// The threads that copy, so that their time can be told from that of the two ends.
const PROXY: &str = "proxy";

/// CPU time of one transfer, in seconds.
struct Cost {
    ends: f64,
    proxies: f64,
    wall: f64,
}

/// Blocks: it has threads and a runtime of its own, which nothing else runs on.
pub(crate) fn measure() -> Result<()> {
    let identity = identity()?;
    let (mut plain, mut encrypted, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(over_tcp()?);
        encrypted.push(through_proxies(&identity, true)?);
        open.push(through_proxies(&identity, false)?);
    }
    let rate = |costs: &[Cost], of: fn(&Cost) -> f64| BYTES as f64 / 1e9 / median(costs.iter().map(of).collect());
    let whole = |cost: &Cost| cost.ends + cost.proxies;
    let reference = rate(&plain, whole);
    println!("a migration's way, {} GiB: GB per second of CPU time (and per second)", BYTES >> 30);
    println!("  plain TCP, both ends             {reference:6.2}   ({:.2})", rate(&plain, |cost| cost.wall));
    for (name, costs) in [("two proxies, TLS 1.3", &encrypted), ("two proxies, no TLS", &open)] {
        println!(
            "  {name:30} {:8.2}   ({:.2})   ratio {:.2}   the proxies alone {:.2}, ratio {:.2}",
            rate(costs, whole),
            rate(costs, |cost| cost.wall),
            rate(costs, whole) / reference,
            rate(costs, |cost| cost.proxies),
            rate(costs, |cost| cost.proxies) / reference,
        );
    }
    Ok(())
}

fn over_tcp() -> Result<Cost> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let sender = TcpStream::connect(listener.local_addr()?).context("cannot connect to the loopback")?;
    let (receiver, _) = listener.accept().context("cannot accept")?;
    let started = Instant::now();
    let ends = transfer(sender, move || Ok(receiver), |sender| sender.shutdown(Shutdown::Write))?;
    Ok(Cost { ends, proxies: 0.0, wall: started.elapsed().as_secs_f64() })
}

fn through_proxies(identity: &Source, encrypted: bool) -> Result<Cost> {
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(PROXY)
        .enable_all()
        .build()
        .context("cannot start the proxies' runtime")?;
    let way =
        runtime.block_on(Way::open(dir.path(), identity.clone(), encrypted)).context("cannot open the proxies")?;
    let listener = way.listen().context("cannot listen in the target's Pod")?;
    let before = time_of_proxies()?;
    let started = Instant::now();
    let sender = way.connect().context("cannot connect in the source's Pod")?;
    let accept = move || -> Result<UnixStream> { Ok(listener.accept().context("cannot accept")?.0) };
    let ends = transfer(sender, accept, |sender| sender.shutdown(Shutdown::Write))?;
    let wall = started.elapsed().as_secs_f64();
    Ok(Cost { ends, proxies: time_of_proxies()? - before, wall })
}

/// Sends everything from one thread to another and returns their CPU time.
fn transfer<S, R>(
    mut sender: S,
    receiver: impl FnOnce() -> Result<R> + Send + 'static,
    finish: impl FnOnce(&S) -> std::io::Result<()> + Send + 'static,
) -> Result<f64>
where
    S: Write + Send + 'static,
    R: Read,
{
    let sending = std::thread::spawn(move || -> Result<f64> {
        let chunk = vec![0x5a; CHUNK];
        let mut left = BYTES;
        while left > 0 {
            let part = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
            sender.write_all(&chunk[..part]).context("cannot send")?;
            left -= part as u64;
        }
        finish(&sender).context("cannot finish sending")?;
        time_of("/proc/thread-self/schedstat")
    });
    let receiving = std::thread::spawn(move || -> Result<f64> {
        let mut receiver = receiver()?;
        let mut chunk = vec![0; CHUNK];
        let mut seen = 0u64;
        loop {
            match receiver.read(&mut chunk).context("cannot receive")? {
                0 => break,
                count => seen += count as u64,
            }
        }
        ensure!(seen == BYTES, "{seen} bytes arrived of {BYTES}");
        time_of("/proc/thread-self/schedstat")
    });
    let joined = |thread: std::thread::JoinHandle<Result<f64>>| {
        thread.join().map_err(|_| anyhow::anyhow!("a thread of the transfer panicked"))?
    };
    Ok(joined(sending)? + joined(receiving)?)
}

fn time_of_proxies() -> Result<f64> {
    let mut total = 0.0;
    for task in std::fs::read_dir("/proc/self/task").context("cannot list threads")? {
        let path = task.context("cannot list threads")?.path();
        // A thread may end while it is looked at; the ones that copy do not.
        let name = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if name.trim() == PROXY {
            total += time_of(&path.join("schedstat").to_string_lossy())?;
        }
    }
    Ok(total)
}

/// Seconds on a CPU, from the first word of a thread's `schedstat`.
fn time_of(path: &str) -> Result<f64> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let nanoseconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).context("no time in schedstat")?;
    Ok(nanoseconds / 1e9)
}

/// A certificate that node agents take for one of theirs, signed by an authority made here.
fn identity() -> Result<Source> {
    let authority = Authority::new();
    let Pair { cert, key } = authority.issue(role_tls::NODE_AGENT, &[]);
    Ok(Identity::from_pem(authority.pem(), &cert, &key)?.into())
}
