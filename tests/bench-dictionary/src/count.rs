//! Counting instructions with valgrind.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::work::{Case, Work};

/// Two runs, whose difference is what the repetitions cost: starting the program, making the instance and building
/// tables on first use are in both.
const FEW: u32 = 5;
const MANY: u32 = 55;

/// Instructions of one repetition.
pub(crate) fn instructions(case: &Case, work: Work) -> Result<f64> {
    let (few, many) = (count(case, work, FEW)?, count(case, work, MANY)?);
    Ok((many - few) as f64 / f64::from(MANY - FEW))
}

fn count(case: &Case, work: Work, times: u32) -> Result<u64> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args(["repeat", case.name, work.name(), &times.to_string()])
        .output()
        .context("cannot run valgrind; `make bench-dictionary` installs it")?;
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("valgrind ended with {}:\n{told}", output.status);
    }
    references(&told).with_context(|| format!("valgrind told no count:\n{told}"))
}

/// The count in a line such as `==1== I   refs:      1,234,567`.
fn references(told: &str) -> Option<u64> {
    let line = told.lines().find(|line| line.contains(" I ") && line.contains("refs:"))?;
    let digits: String = line.rsplit("refs:").next()?.chars().filter(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_what_valgrind_tells() {
        assert_eq!(references("==7== Cachegrind\n==7== I   refs:      12,345,678\n"), Some(12_345_678));
        assert_eq!(references("==7== I refs:        42\n"), Some(42));
        assert_eq!(references("==7== nothing\n"), None);
    }
}
