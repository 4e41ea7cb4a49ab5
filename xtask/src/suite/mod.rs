//! `xtask test`, `nightly` and `faults`: every test binary of the workspace, built once and run two at a time.
//!
//! ```text
//! build ─► peers ─► quick: all binaries but end-to-end ─► guests: lanes of end-to-end scenarios ─► alone
//!                   two at a time, the longest first       three at a time                        one at a time
//! ```
//!
//! `cargo test` runs one binary after the other and leaves a core idle most of the time; guests that boot, move and
//! are waited for leave both idle. What one binary prints stays together: it goes to a log of its own, and to the
//! terminal when the binary has failed.

mod binaries;
mod previous;
mod run;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use binaries::Binary;
use run::{Job, Outcome};

/// What is long is started first, so that nothing long is left when all else is done. The rest follows in any order.
const LONGEST_FIRST: &[&str] =
    &["sim::histories", "controller-tests::controller", "virt-launcher::launcher", "differential::differential"];

/// Groups of end-to-end scenarios that share nothing with each other: see `tests/e2e/tests/main.rs`.
const LANES: &[&str] = &["moves", DISKS, "guests", "drains", "struck", "killed"];
/// Disks that outlive their guests.
const DISKS: &str = "disks";
/// One more than there are cores: guests that boot and are waited for leave a third of them idle.
const LANES_AT_ONCE: usize = 3;
/// Scenarios that look at the machine as a whole.
const ALONE: &str = "alone";
/// A cluster with nodes of its own, whose kubelets must not be kept waiting.
const CLUSTER: &str = "test-cluster::cluster";

/// For a hundred migrations one after another, and for all histories: half an hour each on an idle machine.
const NIGHTLY_LIMIT: Duration = Duration::from_hours(2);
/// For a lane on a real cluster: the longest ones take twenty minutes on a machine that does something else, too.
const KUBERNETES_LIMIT: Duration = Duration::from_hours(1);
/// For all fault cases of a lane there: up to 170, of which each takes most of a minute.
const FAULTS_LIMIT: Duration = Duration::from_hours(4);

const LANE: &str = "FERROVIRT_E2E_LANE";
const SHAPE: &str = "FERROVIRT_E2E_SHAPE";
const PREVIOUS: &str = "FERROVIRT_E2E_PREVIOUS";
/// The short way through everything on a real cluster.
const QUICKSTART: &str = "quickstart";
/// An installation that is made, updated and removed by the commands of the documents.
const UPGRADE: &str = "upgrade";
/// Volumes on a real cluster, with Kubernetes' own sidecars. It boots no guest, and is a part of [`CLUSTER`].
const STORAGE: &str = "storage";
/// The names of its tests, which are not run otherwise.
const STORAGE_TESTS: &[&str] = &["storage::", "--ignored"];
/// Lanes in which somebody is killed at points of what happens. Some of their cases are always played.
const STRUCK: &[&str] = &["moves", "struck", "killed"];
/// All of these cases, and nothing else.
const ALL_FAULTS: &[&str] = &["fault_", "--include-ignored"];

/// What `xtask test` was asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Print how long each stage and each binary took.
    pub(crate) timings: bool,
}

/// How long something took.
struct Timing {
    what: String,
    took: Duration,
}

/// Every test of the workspace. The quick ones come first: a broken decision shows before the guests have booted.
pub(crate) fn test(root: &Path, options: Options) -> Result<()> {
    let mut stages = Vec::new();
    let binaries = stage(&mut stages, "build", || binaries::build(root))?;
    stage(&mut stages, "peers", || crate::peers::build_for_tests(root))?;
    stage(&mut stages, "images", || crate::images::for_tests(root))?;
    let quick = stage(&mut stages, "quick", || run::all(quick(&binaries, root), 2))?;
    let guests = stage(&mut stages, "guests", || run::all(guests(&binaries, root)?, LANES_AT_ONCE))?;
    let alone = stage(&mut stages, "alone", || run::all(alone(&binaries, root)?, 1))?;
    conclude(stages, quick.into_iter().chain(guests).chain(alone).collect(), options)
}

/// What `xtask kube-test` was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnKubernetes {
    /// The one lane to run, instead of all.
    lane: Option<String>,
    upgrade_from: UpgradeFrom,
    /// The whole fault matrix, and nothing else.
    all_faults: bool,
}

/// Whose installation is updated to this one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum UpgradeFrom {
    /// That of the commit before, where the repository has one.
    #[default]
    Parent,
    Commit(String),
    /// That of this commit, under another name: nothing is built for it.
    Same,
}

impl UpgradeFrom {
    const PARENT: &str = "HEAD~1";

    fn parse(word: String) -> Self {
        match word.as_str() {
            "same" => Self::Same,
            _ => Self::Commit(word),
        }
    }

    /// The commit whose images are needed, if any. One that was named has to be there; a shallow clone has no parent.
    fn revision(&self, root: &Path) -> Option<&str> {
        match self {
            Self::Commit(commit) => Some(commit),
            Self::Same => None,
            Self::Parent if previous::commit(root, Self::PARENT).is_ok() => Some(Self::PARENT),
            Self::Parent => {
                println!(
                    "this repository has no commit before HEAD; its own images are updated from, under another name"
                );
                None
            }
        }
    }
}

impl OnKubernetes {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut wanted = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().filter(|value| !value.is_empty()).cloned();
            match arg.as_str() {
                "--lane" => {
                    wanted.lane = Some(value().with_context(|| format!("--lane is one of {}", lanes().join(", ")))?)
                }
                "--upgrade-from" => {
                    let word = value().context("--upgrade-from needs a commit, such as HEAD~1, or `same`")?;
                    wanted.upgrade_from = UpgradeFrom::parse(word);
                }
                "--all-faults" => wanted.all_faults = true,
                other => bail!("`kube-test` has no flag {other}; it has --lane, --upgrade-from and --all-faults"),
            }
        }
        match &wanted.lane {
            Some(lane) if !lanes().contains(&lane.as_str()) => {
                bail!("there is no lane {lane}; lanes are {}", lanes().join(", "))
            }
            Some(lane) if wanted.lanes().is_empty() => {
                bail!("the lane {lane} has no fault cases; lanes that have are {}", STRUCK.join(", "))
            }
            _ => Ok(wanted),
        }
    }

    /// Those to run.
    fn lanes(&self) -> Vec<&'static str> {
        let wanted = |lane: &&str| self.lane.as_deref().is_none_or(|only| only == *lane);
        let mut lanes = lanes();
        lanes.retain(|lane| wanted(lane) && (!self.all_faults || STRUCK.contains(lane)));
        lanes
    }

    /// A lane with what of it is to run.
    fn job(&self, lane: Job) -> Job {
        match self.all_faults {
            true => lane.with_args(ALL_FAULTS).with_limit(FAULTS_LIMIT),
            false => lane.with_limit(KUBERNETES_LIMIT),
        }
    }
}

/// Those that run on Kubernetes. Scenarios about disks do not yet: the cluster of these lanes has no StorageClass.
fn lanes() -> Vec<&'static str> {
    let mut lanes = [&[QUICKSTART][..], LANES, &[UPGRADE, STORAGE]].concat();
    lanes.retain(|lane| *lane != DISKS);
    lanes
}

/// All scenarios on a real Kubernetes cluster.
pub(crate) fn kube_test(root: &Path, wanted: &OnKubernetes) -> Result<()> {
    let mut stages = Vec::new();
    let binaries = stage(&mut stages, "build", || binaries::build(root))?;
    stage(&mut stages, "peers", || crate::peers::build_for_tests(root))?;
    stage(&mut stages, "images", || crate::images::for_tests(root))?;
    let chosen = wanted.lanes();
    if chosen.contains(&STORAGE) {
        stage(&mut stages, "sidecars", || crate::peers::build_for_storage(root))?;
    }
    let upgrade_from = chosen.contains(&UPGRADE).then_some(&wanted.upgrade_from);
    let previous = match upgrade_from.and_then(|from| from.revision(root)) {
        Some(commit) => Some(stage(&mut stages, "images before", || previous::images(root, commit))?),
        None => None,
    };
    let job = |lane| {
        let job = wanted.job(on_kubernetes(&binaries, root, lane)?);
        Ok(match &previous {
            Some(folder) if lane == UPGRADE => job.with_env(PREVIOUS, folder),
            _ => job,
        })
    };
    let jobs = chosen.into_iter().map(job).collect::<Result<Vec<_>>>()?;
    let outcomes = stage(&mut stages, "kubernetes", || run::all(jobs, 1))?;
    conclude(stages, outcomes, Options { timings: true })
}

/// What `test` leaves out for its length: all simulated histories, and each party of a migration killed at each point.
pub(crate) fn nightly(root: &Path) -> Result<()> {
    let mut stages = Vec::new();
    let binaries = stage(&mut stages, "build", || binaries::build(root))?;
    let optimised = stage(&mut stages, "build of the simulator", || binaries::build_optimised(root, "sim"))?;
    let histories = find(&optimised, "sim::histories")?.job(root).with_env("FERROVIRT_SIM_PERCENT", "100");
    let histories = histories.with_limit(NIGHTLY_LIMIT);
    let histories = stage(&mut stages, "histories", || run::all(vec![histories], 1))?;
    let faults = stage(&mut stages, "faults", || run::all(vec![matrix(&binaries, root)?], 1))?;
    stage(&mut stages, "peers", || crate::peers::build_for_tests(root))?;
    stage(&mut stages, "sidecars", || crate::peers::build_for_storage(root))?;
    stage(&mut stages, "images", || crate::images::for_tests(root))?;
    let cluster = find(&binaries, CLUSTER)?.job(root).with_args(&["--include-ignored"]);
    let cluster = stage(&mut stages, "cluster", || run::all(vec![cluster], 1))?;
    stage(&mut stages, "fuzz", || crate::fuzz::run(root, "60"))?;
    conclude(stages, histories.into_iter().chain(faults).chain(cluster).collect(), Options { timings: true })
}

/// Each party of a migration killed at each point of it.
pub(crate) fn faults(root: &Path) -> Result<()> {
    let mut stages = Vec::new();
    let binaries = stage(&mut stages, "build", || binaries::build(root))?;
    let faults = stage(&mut stages, "faults", || run::all(vec![matrix(&binaries, root)?], 1))?;
    conclude(stages, faults, Options { timings: true })
}

fn matrix(binaries: &[Binary], root: &Path) -> Result<Job> {
    let job = find(binaries, "e2e::e2e")?.job(root).named("e2e::faults".to_owned());
    Ok(job.with_args(ALL_FAULTS).with_limit(NIGHTLY_LIMIT))
}

fn stage<T>(stages: &mut Vec<Timing>, what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let done = work()?;
    println!("stage {what} took {:.0} s", begun.elapsed().as_secs_f64());
    stages.push(Timing { what: what.to_owned(), took: begun.elapsed() });
    Ok(done)
}

fn quick(binaries: &[Binary], root: &Path) -> Vec<Job> {
    let mut quick: Vec<&Binary> =
        binaries.iter().filter(|binary| binary.package != "e2e" && binary.name() != CLUSTER).collect();
    let rank = |binary: &Binary| LONGEST_FIRST.iter().position(|name| *name == binary.name());
    quick.sort_by_key(|binary| rank(binary).unwrap_or(LONGEST_FIRST.len()));
    quick.into_iter().map(|binary| binary.job(root)).collect()
}

fn guests(binaries: &[Binary], root: &Path) -> Result<Vec<Job>> {
    LANES.iter().map(|name| lane(binaries, root, name)).collect()
}

fn alone(binaries: &[Binary], root: &Path) -> Result<Vec<Job>> {
    let quickstart = on_kubernetes(binaries, root, QUICKSTART)?;
    Ok(vec![lane(binaries, root, ALONE)?, find(binaries, CLUSTER)?.job(root), quickstart])
}

fn on_kubernetes(binaries: &[Binary], root: &Path, name: &str) -> Result<Job> {
    if name == STORAGE {
        let job = find(binaries, CLUSTER)?.job(root).named(format!("test-cluster::{STORAGE}"));
        return Ok(job.with_args(STORAGE_TESTS));
    }
    let job = lane(binaries, root, name)?.named(format!("e2e::kubernetes::{name}"));
    Ok(job.with_env(SHAPE, "kubernetes"))
}

fn lane(binaries: &[Binary], root: &Path, lane: &str) -> Result<Job> {
    Ok(find(binaries, "e2e::e2e")?.job(root).named(format!("e2e::{lane}")).with_env(LANE, lane))
}

fn find<'a>(binaries: &'a [Binary], name: &str) -> Result<&'a Binary> {
    match binaries.iter().find(|binary| binary.name() == name) {
        Some(binary) => Ok(binary),
        None => bail!("the workspace has no test binary {name}"),
    }
}

/// Prints the figures and the closing line, and fails if a test has.
fn conclude(stages: Vec<Timing>, outcomes: Vec<Outcome>, options: Options) -> Result<()> {
    if options.timings {
        table("stage", &stages);
        let mut timings: Vec<Timing> =
            outcomes.iter().map(|outcome| Timing { what: outcome.name.clone(), took: outcome.took }).collect();
        timings.sort_by_key(|timing| std::cmp::Reverse(timing.took));
        table("test binary", &timings);
    }
    let failed: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.success).collect();
    for outcome in &failed {
        eprintln!("failed: {} ({})", outcome.name, outcome.log.display());
    }
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    println!("tests: {} passed, {} failed, {} skipped", sum(|o| o.passed), sum(|o| o.failed), sum(|o| o.skipped));
    if !failed.is_empty() {
        bail!("{} of {} test binaries failed", failed.len(), outcomes.len());
    }
    Ok(())
}

fn table(heading: &str, timings: &[Timing]) {
    println!("\n| {heading} | seconds |\n|---|---:|");
    for Timing { what, took } in timings {
        println!("| {what} | {:.1} |", took.as_secs_f64());
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_and_a_commit_are_read_and_others_refused() {
        let parse = |args: &[&str]| OnKubernetes::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        let wanted = parse(&["--lane", "upgrade", "--upgrade-from", "v0.1.0"]).unwrap();
        let from = UpgradeFrom::Commit("v0.1.0".to_owned());
        assert_eq!((wanted.lanes(), wanted.upgrade_from), (vec![UPGRADE], from));
        let wanted = parse(&["--upgrade-from", "same"]).unwrap();
        assert_eq!((wanted.lanes(), wanted.upgrade_from), (lanes(), UpgradeFrom::Same));
        assert_eq!(parse(&[]).unwrap().upgrade_from, UpgradeFrom::Parent);
        for wrong in [&["--lane"][..], &["--lane", "alone"], &["--upgrade-from"], &["--fast"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn all_faults_are_those_of_the_lanes_that_have_some() {
        let parse = |args: &[&str]| OnKubernetes::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&["--all-faults"]).unwrap().lanes(), ["moves", "struck", "killed"]);
        assert_eq!(parse(&["--lane", "killed", "--all-faults"]).unwrap().lanes(), ["killed"]);
        assert!(STRUCK.iter().all(|lane| LANES.contains(lane)));
        let refused = parse(&["--all-faults", "--lane", "guests"]).unwrap_err().to_string();
        assert!(refused.contains("has no fault cases; lanes that have are moves, struck, killed"), "{refused}");
        let lane = || Job::new("e2e::kubernetes::struck".to_owned(), "/bin/true".into(), "/".into());
        let words = |wanted: &[&str]| format!("{:?}", parse(wanted).unwrap().job(lane()));
        assert!(words(&["--all-faults"]).contains(r#"args: ["fault_", "--include-ignored"]"#));
        assert!(words(&[]).contains("args: []"));
    }

    #[test]
    fn the_commit_before_is_updated_from_where_there_is_one() {
        let repository = tempfile::tempdir().unwrap();
        let run = |args: &[&str]| previous::git(repository.path(), args).unwrap();
        let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let commit = || run(&[&author[..], &["commit", "-q", "--allow-empty", "-m", "one"]].concat());
        run(&["init", "-q"]);
        commit();
        assert_eq!(UpgradeFrom::Parent.revision(repository.path()), None);
        commit();
        assert_eq!(UpgradeFrom::Parent.revision(repository.path()), Some("HEAD~1"));
        assert_eq!(UpgradeFrom::Same.revision(repository.path()), None);
        assert_eq!(UpgradeFrom::parse("gone".to_owned()).revision(repository.path()), Some("gone"));
    }
}
