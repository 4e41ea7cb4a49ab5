//! Documents whose commands are run as they stand on a real cluster.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use test_cluster::document::{Block, Runner, blocks};

use super::Kubernetes;

/// A document of this repository, by its path there, and the programs that its commands name.
pub struct Document {
    path: &'static str,
    blocks: Vec<Block>,
    programs: TempDir,
    counters: TempDir,
}

impl Document {
    /// Reads a document. Each of its code blocks has to be one that is run.
    pub fn open(path: &'static str, kubernetes: &Kubernetes) -> Result<Self> {
        let file = crate::workspace().join(path);
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let blocks = blocks(&text).with_context(|| format!("in {path}"))?;
        let fences = text.lines().filter(|line| line.trim_start().starts_with("```")).count();
        ensure!(fences == blocks.len() * 2, "{path} has a code block that is not marked `sh`, so nobody runs it");
        let programs = tempfile::tempdir().context("cannot make a directory")?;
        let counters = tempfile::tempdir().context("cannot make a directory")?;
        let document = Self { path, blocks, programs, counters };
        document.with_program("kubectl", kubernetes.kubectl())?.with_program("ferrovirt", kubernetes.exe())
    }

    /// Its commands find this program under this name, in place of what was there.
    pub fn with_program(self, name: &str, program: &Path) -> Result<Self> {
        let link: PathBuf = self.programs.path().join(name);
        if link.is_symlink() {
            std::fs::remove_file(&link).with_context(|| format!("cannot remove {}", link.display()))?;
        }
        symlink(program, link).with_context(|| format!("cannot link {}", program.display()))?;
        Ok(self)
    }

    /// The same with something else in place of an example, which has to be there.
    pub fn with(mut self, example: &str, real: &str) -> Result<Self> {
        let named = self.blocks.iter().any(|block| block.commands.contains(example));
        ensure!(named, "no command of {} names {example}", self.path);
        for block in &mut self.blocks {
            block.commands = block.commands.replace(example, real);
        }
        Ok(self)
    }

    /// Runs all of its commands.
    pub fn run(&self, kubernetes: &Kubernetes, show: bool) -> Result<()> {
        self.run_some(kubernetes, show, |_| true)
    }

    /// Runs the commands below a heading.
    pub fn run_under(&self, kubernetes: &Kubernetes, heading: &str) -> Result<()> {
        let found = self.blocks.iter().any(|block| block.under == heading);
        ensure!(found, "{} has no commands under {heading:?}", self.path);
        self.run_some(kubernetes, false, |block| block.under == heading)
    }

    /// An error if there are commands under another heading than these, which nobody runs then.
    pub fn knows(&self, headings: &[&str]) -> Result<()> {
        let unknown = self.blocks.iter().find(|block| !headings.contains(&block.under.as_str()));
        let unknown = unknown.map(|block| block.under.as_str());
        ensure!(unknown.is_none(), "nobody runs the commands of {} under {unknown:?}", self.path);
        Ok(())
    }

    fn run_some(&self, kubernetes: &Kubernetes, show: bool, wanted: impl Fn(&Block) -> bool) -> Result<()> {
        let workspace = crate::workspace();
        let (programs, counters) = (self.programs.path(), self.counters.path());
        let runner = Runner { folder: &workspace, programs, kubeconfig: kubernetes.kubeconfig(), counters, show };
        let mut under = "";
        for block in self.blocks.iter().filter(|block| wanted(block)) {
            if block.under != under {
                under = &block.under;
                println!("\n## {under}");
            }
            let took = runner.run(block).with_context(|| format!("in {}", self.path))?;
            println!("{}:{} took {:.1} s", self.path, block.line, took.as_secs_f64());
        }
        Ok(())
    }
}
