//! The figures side by side.

use std::collections::BTreeSet;

use control_plane::audit::writes;

use crate::run::{Figures, Load, Until};

/// What the figures were measured on.
pub(crate) fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    format!("{cpus} CPUs, load {} at start", load.split(' ').next().unwrap_or_default())
}

pub(crate) fn print(figures: &[Figures], Load { instances, until, .. }: Load) {
    let aim = |aim: &'static str| if until == Until::Scheduling { aim } else { "" };
    let per_instance = |number: f64| number / instances as f64;
    let mb = |bytes: u64| bytes as f64 / 1e6;
    row("", figures, |figures| figures.name.to_owned(), aim("aim"));
    let total = |figures: &Figures, writing: bool| -> usize {
        figures.calls.iter().filter(|((verb, _), _)| writes(verb) == writing).map(|(_, count)| count).sum()
    };
    row("writes per instance", figures, |f| format!("{:.2}", per_instance(total(f, true) as f64)), aim("≤ 3"));
    let calls: BTreeSet<_> = figures.iter().flat_map(|figures| figures.calls.keys()).collect();
    let of = |figures: &Figures, call: &(String, String)| figures.calls.get(call).copied().unwrap_or(0);
    for call in calls.iter().filter(|(verb, _)| writes(verb)) {
        let title = format!("  {} {}", call.0, call.1);
        row(&title, figures, |f| format!("{:.2}", per_instance(of(f, call) as f64)), "");
    }
    row("reads per instance", figures, |f| format!("{:.2}", per_instance(total(f, false) as f64)), "");
    for call in calls.iter().filter(|(verb, _)| !writes(verb) && verb != "watch") {
        let title = format!("  {} {}", call.0, call.1);
        row(&title, figures, |f| format!("{:.2}", per_instance(of(f, call) as f64)), "");
    }
    let cpu = |f: &Figures| format!("{:.2} s", per_instance(f.cpu.as_secs_f64() * 1000.0));
    row("CPU per 1,000 instances", figures, cpu, aim("≤ 1.3 s"));
    row("resident before", figures, |f| format!("{:.1} MB", mb(f.memory_before)), aim("≤ 15 MB"));
    row("  without the program's file", figures, |f| format!("{:.1} MB", mb(f.own_before)), "");
    row("resident after", figures, |f| format!("{:.1} MB", mb(f.memory_after)), "");
    let grown = |f: &Figures| f.memory_after.saturating_sub(f.memory_before) as f64;
    row("resident per instance", figures, |f| format!("{:.1} KB", per_instance(grown(f)) / 1e3), aim("≤ 15 KB"));
    row("creates per second", figures, |f| format!("{:.0}", f.creates_per_second), "");
    row("last Pod after last create", figures, |f| format!("{:.2} s", f.lag.as_secs_f64()), aim("≤ 1 s"));
    let title = format!("all {} after last create", until.phase());
    row(&title, figures, |f| format!("{:.2} s", f.arrived.as_secs_f64()), "");
    row("restart until steady", figures, |f| format!("{:.2} s", f.restart.as_secs_f64()), "");
    row("writes by a restart", figures, |f| f.restart_writes.to_string(), "0");
    row("resident after a restart", figures, |f| format!("{:.1} MB", mb(f.restart_memory)), "");
}

fn row(title: &str, figures: &[Figures], cell: impl Fn(&Figures) -> String, aim: &str) {
    let cells: String = figures.iter().map(|figures| format!("{:>14}", cell(figures))).collect();
    println!("{title:<48}{cells}   {aim}");
}
