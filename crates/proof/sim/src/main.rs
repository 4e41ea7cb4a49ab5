//! `ferrovirt-sim`: plays histories and prints the first that breaks an invariant, minimized.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use sim::{Campaign, News, Options, Outcome, Plant, Report, Script, launchers, play, profile_for, shrink, watch};

/// Histories allocate and free many objects: this allocator saves a seventh of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Plays simulated histories of the control plane.
#[derive(Parser)]
#[command(name = "ferrovirt-sim")]
struct Args {
    /// How many histories to play.
    #[arg(long, default_value_t = 20_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    start: u64,
    /// A profile's name, or `mixed` for all in turn.
    #[arg(long, default_value = "mixed")]
    profile: String,
    /// Play on after a history fails: every failing seed is printed, and none is replayed.
    #[arg(long)]
    keep_going: bool,
    /// Plays this one history and prints all of it.
    #[arg(long)]
    seed: Option<u64>,
    /// Do not make a failing history shorter.
    #[arg(long)]
    whole: bool,
    /// Plays a script and prints what is written.
    #[arg(long)]
    script: Option<std::path::PathBuf>,
    /// Lists the profiles.
    #[arg(long)]
    profiles: bool,
    /// Puts one of the bugs of `plant.rs` in, by its name.
    #[arg(long)]
    plant: Option<String>,
    #[arg(long, default_value_t = threads())]
    threads: usize,
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.profiles {
        sim::PROFILES
            .iter()
            .chain(sim::SEPARATE)
            .for_each(|profile| println!("{:<10} {}", profile.name, profile.about));
        println!("{:<10} {}", launchers::NAME, launchers::ABOUT);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.script {
        print!("{}", sim::scenario::tell(&std::fs::read_to_string(path)?)?);
        return Ok(ExitCode::SUCCESS);
    }
    let plant = args.plant.as_deref().map(planted).transpose()?;
    let known = args.profile == launchers::NAME || profile_for(&args.profile, 0).is_some();
    anyhow::ensure!(known, "there is no profile {:?}; see --profiles", args.profile);
    if let Some(seed) = args.seed {
        return Ok(replay_seed(&args, seed, plant));
    }
    let campaign = Campaign {
        start: args.start,
        seeds: args.seeds,
        profile: args.profile.clone(),
        plant,
        threads: args.threads,
        keep_going: args.keep_going,
    };
    let report = watch(&campaign, |news| match news {
        News::Failed(failure) => println!("seed {}: {}", failure.seed, failure.violation),
        News::Progress(report) => eprintln!(
            "{} so far, {} to play, {} failed",
            rate(report),
            campaign.seeds - report.histories,
            report.failed
        ),
    });
    println!(
        "{}; {} passes, {} requests, {} guests moved",
        rate(&report),
        report.passes,
        report.requests,
        report.moved
    );
    let Some(failure) = report.failure else { return Ok(ExitCode::SUCCESS) };
    if args.keep_going {
        println!("{} of {} histories failed; print one with --seed", report.failed, report.histories);
        return Ok(ExitCode::FAILURE);
    }
    Ok(replay_seed(&args, failure.seed, plant))
}

fn rate(report: &Report) -> String {
    let seconds = report.took.as_secs_f64();
    format!("{} histories in {seconds:.1} s, {:.0} per second", report.histories, report.histories as f64 / seconds)
}

fn replay_seed(args: &Args, seed: u64, plant: Option<Plant>) -> ExitCode {
    match profile_for(&args.profile, seed) {
        Some(profile) => replay(profile.script(seed), args.whole, plant),
        None => tell(&launchers::play(seed, Options { plant, verbose: true, ..Options::default() })),
    }
}

fn planted(name: &str) -> anyhow::Result<Plant> {
    let found = Plant::ALL.iter().find(|plant| format!("{plant:?}") == name);
    found.copied().with_context(|| format!("there is no bug {name:?}; there are {:?}", Plant::ALL))
}

/// Plays one history and prints it; a failing one is minimized first.
fn replay(script: Script, whole: bool, plant: Option<Plant>) -> ExitCode {
    let options = Options { plant, ..Options::default() };
    let script = if whole { script } else { shrink(&script, options) };
    println!("seed {}, calm from {:?}", script.seed, script.calm);
    script.user.iter().for_each(|(at, deed)| println!("  at {at:?}: {deed}"));
    script.faults.iter().for_each(|fault| println!("  {fault}"));
    if !script.keeps.is_empty() {
        println!("  these keep state: {:?}", script.keeps);
    }
    println!();
    tell(&play(&script, Options { verbose: true, ..options }))
}

fn tell(outcome: &Outcome) -> ExitCode {
    outcome.timeline.iter().for_each(|line| println!("{line}"));
    if outcome.violation.is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
