//! The generated parts of `docs/ops/controller.md`.

use crate::controller::{Controller, Workers};

/// Rows of the flag table: one for each flag that sets a number of workers.
pub fn flags(controllers: &[&'static Controller]) -> String {
    let flags = controllers.iter().filter_map(|controller| controller.flag());
    let row = |flag: crate::controller::Flag| {
        format!("| `--{}` | {} | {} |\n", flag.name, flag.default, uncapitalized(flag.help))
    };
    flags.map(row).collect()
}

/// A table of the controllers: queue, workers, triggers and writes.
pub fn controllers(controllers: &[&'static Controller]) -> String {
    let head = "| queue `virt-controller-…` | workers | woken by changes of | writes |\n|---|---|---|---|\n";
    let rows = controllers.iter().map(|controller| {
        let writes = controller.writes.iter().flat_map(|right| right.grants());
        let writes: Vec<String> = writes.map(|grant| grant.to_string()).collect();
        format!(
            "| `{}` | {} | {} | {} |\n",
            controller.short_name(),
            workers(controller),
            triggers(controller),
            writes.join(", ")
        )
    });
    format!("{head}{}", rows.collect::<String>())
}

fn triggers(controller: &Controller) -> String {
    let watched = controller.watched();
    if watched.is_empty() { "nothing: it requeues itself".to_owned() } else { watched.join(", ") }
}

fn workers(controller: &Controller) -> String {
    match controller.workers {
        Workers::Flag(flag) | Workers::Like(flag) => format!("{}, `--{}`", flag.default, flag.name),
        Workers::Fixed(workers) => workers.to_string(),
    }
}

/// Lowercases the first letter for use inside a sentence, unless it begins an acronym such as CPU or VMI.
fn uncapitalized(text: &str) -> String {
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
