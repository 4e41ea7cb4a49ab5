//! Handwritten histories: a small language for scripts, and their output.
//!
//! ```text
//! # A comment.
//! at 0 create vm0 Always Image
//! at 60 stop vm0
//! guest 0 crashes 5
//! lose node0 at 90
//! calm 120
//! ```
//!
//! Times are in seconds. The seed is fixed, and there are no faults besides those in the script.

use std::time::Duration;

use anyhow::{Context, bail};

use crate::engine::{Options, play};
use crate::script::{
    ClaimFate, Deed, Disk, ELSEWHERE, EjectFate, Fault, GuestFate, JobFate, JourneyFate, MountFate, PodFate, Script,
    VolumeFate,
};

/// Reads a script.
pub fn parse(text: &str) -> anyhow::Result<Script> {
    let mut script = Script {
        seed: 1,
        user: Vec::new(),
        faults: Vec::new(),
        keeps: Vec::new(),
        storage: false,
        calm: Duration::from_secs(120),
    };
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split('#').next().unwrap_or_default().split_whitespace().collect();
        let read = match words.as_slice() {
            [] => Ok(()),
            ["calm", at] => seconds(at).map(|at| script.calm = at),
            ["storage"] => {
                script.storage = true;
                Ok(())
            }
            ["keeps-state", vm] => machine(vm).map(|vm| script.keeps.push(vm)),
            ["at", at, deed @ ..] => {
                seconds(at).and_then(|at| Ok((at, parse_deed(deed)?))).map(|deed| script.user.push(deed))
            }
            fault => parse_fault(fault).map(|fault| script.faults.push(fault)),
        };
        read.with_context(|| format!("line {}: {line}", number + 1))?;
    }
    script.user.sort_by_key(|(at, _)| *at);
    Ok(script)
}

fn seconds(text: &str) -> anyhow::Result<Duration> {
    let seconds: f64 = text.parse().with_context(|| format!("{text:?} is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).with_context(|| format!("{text:?} is no time"))
}

/// The number at the end of a name like `vm0`.
fn numbered(text: &str, prefix: &str) -> anyhow::Result<u8> {
    let number = text.strip_prefix(prefix).and_then(|number| number.parse().ok());
    number.with_context(|| format!("{text:?} is not called like {prefix}0"))
}

/// A VM, `vm0` or `elsewhere/vm0`.
fn machine(text: &str) -> anyhow::Result<u8> {
    let (first, namespace) = ELSEWHERE;
    match text.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/')) {
        Some(name) => Ok(first + numbered(name, "vm")?),
        None => numbered(text, "vm"),
    }
}

fn parse_deed(words: &[&str]) -> anyhow::Result<Deed> {
    let (Some(verb), Some(vm)) = (words.first(), words.get(1)) else { bail!("a deed and a name are wanted") };
    let vm = machine(vm)?;
    Ok(match (*verb, &words[2..]) {
        ("create", [strategy, disk]) => {
            let disk = match *disk {
                "Image" => Disk::Image,
                "Template" => Disk::Template,
                "Claim" => Disk::Claim,
                other => bail!("{other:?} is no disk: Image, Template or Claim"),
            };
            Deed::CreateVm { vm, strategy: (*strategy).into(), disk }
        }
        ("create-vmi", []) => Deed::CreateVmi { vm },
        ("claim", []) => Deed::CreateClaim { vm },
        ("start", []) => Deed::Start { vm },
        ("stop", []) => Deed::Stop { vm },
        ("restart", []) => Deed::Restart { vm },
        ("strategy", [strategy]) => Deed::SetStrategy { vm, strategy: (*strategy).into() },
        ("edit", []) => Deed::EditTemplate { vm },
        ("annotate", []) => Deed::Annotate { vm },
        ("pause", []) => Deed::Pause { vm },
        ("unpause", []) => Deed::Unpause { vm },
        ("plug", [volume]) => Deed::Plug { vm, volume: numbered(volume, "extra")? },
        ("delete-claim", [volume]) => Deed::DeleteClaim { vm, volume: numbered(volume, "extra")? },
        ("unplug", [volume]) => Deed::Unplug { vm, volume: numbered(volume, "extra")? },
        ("delete", []) => Deed::DeleteVm { vm },
        ("orphan", []) => Deed::OrphanVm { vm },
        ("delete-vmi", []) => Deed::DeleteVmi { vm },
        ("delete-pod", []) => Deed::DeletePod { vm },
        ("migrate", []) => Deed::Migrate { vm },
        ("await", []) => Deed::Await { vm },
        ("send", [to]) => Deed::Send { vm, to: machine(to)? },
        ("receive", [from]) => Deed::Receive { vm, from: machine(from)? },
        ("abort-migration", []) => Deed::AbortMigration { vm },
        ("evict", []) => Deed::Evict { vm },
        ("drain", []) => Deed::Drain { vm },
        ("call-off", []) => Deed::CallOff { vm },
        ("try-evict", []) => Deed::TryEvict { vm },
        ("backup", []) => Deed::Backup { vm },
        ("utility", [lasts]) => Deed::Utility { vm, lasts: seconds(lasts)? },
        ("resize", []) => Deed::Resize { vm },
        ("old-budget", []) => Deed::OldBudget { vm },
        ("shut-down", []) => Deed::ShutDown { vm },
        ("crash", []) => Deed::Crash { vm },
        _ => bail!("unknown deed"),
    })
}

fn parse_fault(words: &[&str]) -> anyhow::Result<Fault> {
    Ok(match words {
        ["lose", node, "at", at] => Fault::NodeLoss { node: numbered(node, "node")?, at: seconds(at)? },
        ["silence", node, "at", at, "for", lasts] => {
            Fault::NodeOutage { node: numbered(node, "node")?, at: seconds(at)?, lasts: seconds(lasts)? }
        }
        ["refuse-targets", by, "at", at, "for", lasts] => {
            Fault::NoTargets { at: seconds(at)?, lasts: seconds(lasts)?, quota: *by == "quota" }
        }
        ["crash", "at", at] => Fault::Crash { at: seconds(at)? },
        ["upgrade", "at", at] => Fault::Upgrade { at: seconds(at)? },
        ["updates", by @ ("move" | "evict"), "at", at] => Fault::Updates { at: seconds(at)?, evict: *by == "evict" },
        ["pod", nth, fate @ ..] => {
            let fate = match fate {
                ["unschedulable", wait] => PodFate::Unschedulable(seconds(wait)?),
                ["image-pull", wait] => PodFate::ImagePull(seconds(wait)?),
                ["fails-early"] => PodFate::FailsEarly,
                ["evicted", after] => PodFate::Evicted(seconds(after)?),
                ["killed", after] => PodFate::Killed(seconds(after)?),
                _ => bail!("unknown fate of a Pod"),
            };
            Fault::Pod { nth: nth.parse()?, fate }
        }
        ["guest", nth, fate @ ..] => {
            let fate = match fate {
                ["never-starts"] => GuestFate::NeverStarts,
                ["slow", wait] => GuestFate::SlowStart(seconds(wait)?),
                ["shuts-down", after] => GuestFate::ShutsDown(seconds(after)?),
                ["crashes", after] => GuestFate::Crashes(seconds(after)?),
                _ => bail!("unknown fate of a guest"),
            };
            Fault::Guest { nth: nth.parse()?, fate }
        }
        ["journey", nth, fate @ ..] => {
            let fate = match fate {
                ["breaks", after] => JourneyFate::Breaks(seconds(after)?),
                ["busy", rate] => JourneyFate::Busy(rate.parse()?),
                ["target-dies", after] => JourneyFate::TargetDies(seconds(after)?),
                ["source-dies"] => JourneyFate::SourceDies,
                ["both-die"] => JourneyFate::BothDie,
                _ => bail!("unknown fate of a journey"),
            };
            Fault::Journey { nth: nth.parse()?, fate }
        }
        ["claim", nth, fate @ ..] => {
            let fate = match fate {
                ["binds-late", wait] => ClaimFate::BindsLate(seconds(wait)?),
                ["never-binds"] => ClaimFate::NeverBinds,
                _ => bail!("unknown fate of a claim"),
            };
            Fault::Claim { nth: nth.parse()?, fate }
        }
        ["mount", nth, fate @ ..] => {
            let fate = match fate {
                ["slow", wait] => MountFate::Slow(seconds(wait)?),
                ["fails", lasts] => MountFate::Fails(seconds(lasts)?),
                ["lingers", lasts] => MountFate::Lingers(seconds(lasts)?),
                _ => bail!("unknown fate of a mount"),
            };
            Fault::Mount { nth: nth.parse()?, fate }
        }
        ["eject", nth, fate @ ..] => {
            let fate = match fate {
                ["slow", wait] => EjectFate::Slow(seconds(wait)?),
                ["ignored"] => EjectFate::Ignored,
                _ => bail!("unknown fate of a disk that is ejected"),
            };
            Fault::Eject { nth: nth.parse()?, fate }
        }
        ["job", nth, fate @ ..] => {
            let fate = match fate {
                ["dies"] => JobFate::Dies,
                ["hangs"] => JobFate::Hangs,
                ["slow", wait] => JobFate::Slow(seconds(wait)?),
                _ => bail!("unknown fate of a Job"),
            };
            Fault::Job { nth: nth.parse()?, fate }
        }
        ["volume", nth, fate @ ..] => {
            let fate = match fate {
                ["waits-for-consumer"] => VolumeFate::WaitsForConsumer,
                ["slow", wait] => VolumeFate::Slow(seconds(wait)?),
                ["fails"] => VolumeFate::Fails,
                _ => bail!("unknown fate of a DataVolume"),
            };
            Fault::Volume { nth: nth.parse()?, fate }
        }
        _ => bail!("unknown line"),
    })
}

/// Plays a script and returns what was written, line by line, and what is left at the end.
pub fn tell(text: &str) -> anyhow::Result<String> {
    let outcome = play(&parse(text)?, Options { writes: true, ..Options::default() });
    let mut lines = outcome.timeline;
    lines.extend(outcome.left);
    Ok(lines.join("\n") + "\n")
}
