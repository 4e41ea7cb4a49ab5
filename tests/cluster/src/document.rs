//! Documents whose commands are run as they stand.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Commands between two fences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The heading above.
    pub under: String,
    /// The line that the commands begin on, from 1.
    pub line: usize,
    pub commands: String,
}

/// The blocks marked `sh`, in their order.
pub fn blocks(markdown: &str) -> Result<Vec<Block>> {
    fenced(markdown, "```sh")
}

/// The objects that a document tells to apply, under one of its headings.
pub fn manifests(markdown: &str, under: &str) -> Result<String> {
    let blocks = fenced(markdown, "```yaml")?.into_iter().filter(|block| block.under == under);
    let manifests: Vec<String> = blocks.map(|block| block.commands).collect();
    ensure!(!manifests.is_empty(), "the document has no objects under {under:?}");
    Ok(manifests.join("---\n"))
}

fn fenced(markdown: &str, fence: &str) -> Result<Vec<Block>> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut under, mut open) = (String::new(), None);
    for (number, line) in markdown.lines().enumerate() {
        match (&mut open, line) {
            (None, line) if line == fence => {
                open = Some(Block { under: under.clone(), line: number + 2, commands: String::new() })
            }
            (Some(_), "```") => blocks.extend(open.take()),
            (Some(block), _) => {
                block.commands.push_str(line);
                block.commands.push('\n');
            }
            // A block of another kind ends with the same fence, and has no headings.
            (None, _) => {
                if let Some(heading) = line.strip_prefix("## ") {
                    under = heading.to_owned();
                }
            }
        }
    }
    if let Some(block) = open {
        bail!("the commands from line {} on have no end", block.line);
    }
    Ok(blocks)
}

/// Runs blocks one after the other, with these programs before all others.
pub struct Runner<'a> {
    /// Where paths in the document begin.
    pub folder: &'a Path,
    pub programs: &'a Path,
    pub kubeconfig: &'a Path,
    /// Where the counters that consoles showed are kept from one block to the next.
    pub counters: &'a Path,
    /// Is told what is run, and what that prints.
    pub show: bool,
}

/// A console wants a terminal and somebody who looks at it and leaves again. KubeVirt's virtctl takes `^]` only where it
/// comes alone, so it must not follow a line at once.
///
/// The test guest counts there: `tick COUNT UPTIME`, each second. One that was started again since an earlier console counts
/// from 1, and is younger than that console is long ago.
const PRELUDE: &str = r#"set -euo pipefail
virtctl() {
  local word
  case $1 in
    console) ;;
    stop | restart) for word in "$@"; do rm -f "$COUNTERS/$word"; done ;&
    *) command virtctl "$@"; return ;;
  esac
  local log; log=$(mktemp)
  { for _ in $(seq 240); do grep -aq 'login: ' "$log" && counter "$log" > /dev/null && break; sleep 1; printf '\n'; done
    for _ in 1 2 3 4 5; do sleep 1; printf '\035'; done; } |
    timeout 250 script -qefc "virtctl $*" "$log" || true
  grep -aq 'login: ' "$log" || { echo "the console shows no login" >&2; return 1; }
  went_on "$2" "$log"
  rm -f "$log"
}
counter() { grep -aoE 'tick [0-9]+ [0-9]+\.' "$1" | tail -n 1 | tr -d .; }
went_on() {
  local memory=$COUNTERS/$1 now count uptime before then
  now=$(date +%s)
  counter "$2" > /dev/null || { echo "the console shows no counter" >&2; return 1; }
  read -r _ count uptime <<< "$(counter "$2")"
  if [ -e "$memory" ]; then
    read -r before then < "$memory"
    if [ "$count" -lt "$before" ] || [ "$uptime" -lt $((now - then)) ]; then
      echo "$1 counts $count after $uptime s, and counted $before $((now - then)) s ago: it was started again" >&2
      return 1
    fi
  fi
  echo "$count $now" > "$memory"
}
"#;

impl Runner<'_> {
    /// Runs a block to its end.
    pub fn run(&self, block: &Block) -> Result<Duration> {
        let started = Instant::now();
        let path = std::env::var("PATH").unwrap_or_default();
        let mut bash = Command::new("bash");
        bash.arg("-c").arg(format!("{PRELUDE}set -v\n{}", block.commands)).current_dir(self.folder);
        bash.env("PATH", format!("{}:{path}", self.programs.display())).env("KUBECONFIG", self.kubeconfig);
        bash.env("COUNTERS", self.counters);
        bash.stdin(Stdio::null());
        let doing = || format!("the commands in line {}, under {:?}", block.line, block.under);
        if self.show {
            let status = bash.status().with_context(doing)?;
            ensure!(status.success(), "{} failed ({status})", doing());
            return Ok(started.elapsed());
        }
        let output = bash.output().with_context(doing)?;
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "{} failed ({}):\n{text}", doing(), output.status);
        Ok(started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_commands_are_taken_with_the_place_where_they_stand() {
        let text = "# A\n\n## One\n\n```sh\nfirst\nsecond\n```\n\n```yaml\nkind: X\n```\n\n## Two\n```sh\nthird\n```\n";
        let found = blocks(text).unwrap();
        let summary: Vec<_> = found.iter().map(|b| (b.under.as_str(), b.line, b.commands.as_str())).collect();
        assert_eq!(summary, [("One", 6, "first\nsecond\n"), ("Two", 16, "third\n")]);
        assert!(blocks("```sh\nnever ends\n").is_err());
    }

    #[test]
    fn a_guest_that_was_started_again_between_two_consoles_is_told_from_one_that_went_on() {
        let folder = tempfile::tempdir().unwrap();
        let counters = tempfile::tempdir().unwrap();
        let run = |console: &str, commands: &str| {
            std::fs::write(folder.path().join("console"), console).unwrap();
            let place = folder.path();
            let runner =
                Runner { folder: place, programs: place, kubeconfig: place, counters: counters.path(), show: false };
            let block = Block { under: String::new(), line: 1, commands: commands.to_owned() };
            runner.run(&block).map(drop).map_err(|err| format!("{err:#}"))
        };
        let look = "went_on demo console";
        assert!(run("guest login: \r\n", look).unwrap_err().contains("no counter"));
        run("tick 8 11.95\r\nguest login: tick 9 12.97\r\ntick 1", look).unwrap();
        run("tick 9 13.01\r\n", look).unwrap();
        let again = run("tick 3 14.20\r\n", look).unwrap_err();
        assert!(again.contains("demo counts 3 after 14 s, and counted 9"), "{again}");
        // It counts as far as before, but it has not been there for as long.
        let long_ago = "echo 9 $(($(date +%s) - 60)) > $COUNTERS/demo; went_on demo console";
        assert!(run("tick 20 25.00\r\n", long_ago).unwrap_err().contains("it was started again"));
        run("tick 50 71.00\r\n", long_ago).unwrap();
        run("tick 1 4.00\r\n", "went_on other console").unwrap();
        run("tick 1 4.00\r\n", "ln -sf /bin/true virtctl; virtctl stop demo; went_on demo console").unwrap();
    }
}
