//! Images of another commit, to update an installation from.
//!
//! ```text
//! ~/.cache/ferrovirt/previous/<commit>/    ferrovirt.tar, virt-launcher.tar, as `FERROVIRT_E2E_PREVIOUS` names them
//! ~/.cache/ferrovirt/previous/target/      what cargo keeps from one commit to the next
//! ```

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// What an installation runs.
const ARCHIVES: [&str; 2] = ["ferrovirt.tar", "virt-launcher.tar"];
const TARGET: &str = "target";

/// The folder with the images of a commit, which are made unless they are there.
pub(super) fn images(root: &Path, revision: &str) -> Result<PathBuf> {
    let commit = commit(root, revision)?;
    let cache = crate::cache("previous")?;
    let folder = cache.join(&commit);
    if ARCHIVES.iter().all(|name| folder.join(name).exists()) {
        println!("images of {revision} are in {}", folder.display());
        return Ok(folder);
    }
    forget(&cache).with_context(|| format!("cannot make room in {}", cache.display()))?;
    let tree = Tree::check_out(root, &cache, &commit)?;
    let made = tree.build(root)?;
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for name in ARCHIVES {
        let (from, to) = (made.join(name), folder.join(name));
        fs::rename(&from, &to).with_context(|| format!("cannot move {} to {}", from.display(), to.display()))?;
    }
    Ok(folder)
}

/// The full name of a commit.
pub(super) fn commit(root: &Path, revision: &str) -> Result<String> {
    let commit = git(root, &["rev-parse", "--verify", "--quiet", &format!("{revision}^{{commit}}")]);
    commit.with_context(|| format!("{revision} is not a commit of this repository"))
}

/// Removes images of other commits, which are half a gigabyte each.
fn forget(cache: &Path) -> std::io::Result<()> {
    fs::create_dir_all(cache)?;
    for entry in fs::read_dir(cache)? {
        let entry = entry?;
        if entry.file_name() != TARGET {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// A commit's files, removed with this value.
struct Tree {
    repository: PathBuf,
    path: PathBuf,
    target: PathBuf,
}

impl Tree {
    fn check_out(root: &Path, cache: &Path, commit: &str) -> Result<Self> {
        let tree = Self { repository: root.to_owned(), path: cache.join("tree"), target: cache.join(TARGET) };
        // An interrupted run may have left git with one whose files are gone.
        git(root, &["worktree", "prune"])?;
        git(root, &["worktree", "add", "--detach", &tree.path.display().to_string(), commit])?;
        Ok(tree)
    }

    /// Builds what that commit calls images of tests; returns their folder.
    fn build(&self, root: &Path) -> Result<PathBuf> {
        let built = self.path.join("build");
        fs::create_dir_all(&built).with_context(|| format!("cannot make {}", built.display()))?;
        symlink(root.join("build/guest"), built.join("guest")).context("cannot link the test guest")?;
        self.cargo(&["build", "-p", "ferrovirt"])?;
        self.cargo(&["run", "-q", "-p", "xtask", "--", "images", "--dev"])?;
        Ok(built.join("images-dev"))
    }

    fn cargo(&self, args: &[&str]) -> Result<()> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(&self.path).args(args).env("CARGO_TARGET_DIR", &self.target);
        // They would name the program of this commit.
        cargo.env_remove("FERROVIRT_BIN").env_remove("CARGO_MANIFEST_DIR");
        let status = cargo.status().context("cannot run cargo")?;
        ensure!(status.success(), "`cargo {}` failed in {} ({status})", args.join(" "), self.path.display());
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let path = self.path.display().to_string();
        if let Err(err) = git(&self.repository, &["worktree", "remove", "--force", &path]) {
            eprintln!("cannot remove {path}: {err:#}");
        }
    }
}

/// What git prints, without its last line break.
pub(super) fn git(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output().context("cannot run git")?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("git {}: {} ({})", args.join(" "), complaint.trim(), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_commit_is_named() {
        let repository = tempfile::tempdir().unwrap();
        git(repository.path(), &["init", "-q"]).unwrap();
        let refused = format!("{:#}", images(repository.path(), "no-such-tag").unwrap_err());
        assert!(refused.contains("no-such-tag is not a commit of this repository"), "{refused}");
    }

    #[test]
    fn a_commits_files_are_there_as_long_as_they_are_needed() {
        let (repository, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let run = |args: &[&str]| git(repository.path(), args).unwrap();
        run(&["init", "-q"]);
        fs::write(repository.path().join("file"), "first").unwrap();
        run(&["add", "file"]);
        let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        run(&[&author[..], &["commit", "-q", "-m", "first"]].concat());
        fs::write(repository.path().join("file"), "second").unwrap();
        let commit = run(&["rev-parse", "HEAD"]);
        let tree = Tree::check_out(repository.path(), cache.path(), &commit).unwrap();
        let path = tree.path.clone();
        assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "first");
        // As after a run that was killed: the next one is not kept from it.
        std::mem::forget(tree);
        forget(cache.path()).unwrap();
        let again = Tree::check_out(repository.path(), cache.path(), &commit).unwrap();
        drop(again);
        assert!(!path.exists());
        assert_eq!(run(&["worktree", "list"]).lines().count(), 1);
    }
}
