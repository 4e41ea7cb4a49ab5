//! What it costs to judge an instance: the bytes of a request are read, given their defaults, validated and written
//! again. The reference does the same without judging: it reads the bytes as JSON and writes them.
//!
//! Instructions do not depend on what else the machine does, so they are what to compare between builds; valgrind counts
//! them. Results worth keeping go to `docs/performance.md`.

mod count;
mod work;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use work::{CASES, Case, Work};

/// Small instances per second that one core should manage.
const AIM: f64 = 20_000.0;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => report(),
        // What valgrind runs.
        ["repeat", case, work, times] => repeat(case, work, times),
        _ => Err(anyhow::anyhow!("usage: bench-dictionary")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-dictionary: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn report() -> Result<()> {
    println!("one instance: deserialize, default, validate, serialize   (reference: JSON in, JSON out)");
    for case in CASES {
        let bytes = case.bytes()?;
        println!("{}: {} bytes", case.title, bytes.len());
        let (ours, reference) = (count::instructions(case, Work::Judge)?, count::instructions(case, Work::Reference)?);
        println!("  instructions {ours:14.0}      reference {reference:12.0}     ratio {:.1}", ours / reference);
        let (ours, reference) = throughput(&bytes);
        let aim = if case.small { format!("   aim ≥ {AIM}") } else { String::new() };
        println!("  per second   {ours:14.0}      reference {reference:12.0}     ratio {:.1}{aim}", reference / ours);
    }
    Ok(())
}

/// How often per second each work is done, as the best of several rounds that alternate.
fn throughput(bytes: &[u8]) -> (f64, f64) {
    let (mut ours, mut reference) = (0.0_f64, 0.0_f64);
    for _ in 0..5 {
        ours = ours.max(rate(Work::Judge, bytes));
        reference = reference.max(rate(Work::Reference, bytes));
    }
    (ours, reference)
}

fn rate(work: Work, bytes: &[u8]) -> f64 {
    let started = Instant::now();
    let mut done = 0_u32;
    while started.elapsed() < Duration::from_millis(400) {
        for _ in 0..20 {
            black_box(work.run(black_box(bytes)));
        }
        done += 20;
    }
    f64::from(done) / started.elapsed().as_secs_f64()
}

fn repeat(case: &str, work: &str, times: &str) -> Result<()> {
    let case: &Case = CASES.iter().find(|known| known.name == case).with_context(|| format!("no case {case}"))?;
    let Some(work) = Work::of(work) else { bail!("no work {work}") };
    let bytes = case.bytes()?;
    for _ in 0..times.parse::<u32>().context("a number of times")? {
        black_box(work.run(black_box(&bytes)));
    }
    Ok(())
}
