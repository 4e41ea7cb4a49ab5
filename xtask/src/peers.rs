//! KubeVirt's own programs, to compare ourselves with: upstream `virtctl`, and a judge that tells what KubeVirt's
//! admission makes of an object. Both are built from the Go module in `tools/kubevirt` into a cache outside the work
//! tree, under a digest of the module's files: a changed module is built anew, an unchanged one costs nothing. To make
//! room, delete the cache's folder `peers`.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

/// What is built: the program's name, the Go package, and what the linker is told beside the common flags.
const PROGRAMS: [(&str, &str, &str); 2] = [
    ("judge", "./judge", ""),
    // Built from a module, virtctl cannot know its own version.
    ("virtctl", "kubevirt.io/kubevirt/cmd/virtctl", "-X kubevirt.io/client-go/version.gitVersion=v1.8.2"),
];

const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Why there are no peers.
enum Failure {
    /// This machine has no Go, or no way to the modules. Callers may carry on without peers.
    Unavailable(anyhow::Error),
    /// They should have been built.
    Broken(anyhow::Error),
}

/// Builds what is missing and prints the folder that holds the programs. Exits with 3 when the machine lacks what the
/// build needs, and with 1 when the build itself fails.
pub(crate) fn main(workspace: &Path) -> ExitCode {
    match peers(&workspace.join("tools/kubevirt")) {
        Ok(folder) => {
            println!("{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(Failure::Unavailable(err)) => {
            eprintln!("peers: {err:#}");
            ExitCode::from(3)
        }
        Err(Failure::Broken(err)) => {
            eprintln!("peers: {err:#}");
            ExitCode::FAILURE
        }
    }
}

fn peers(module: &Path) -> Result<PathBuf, Failure> {
    let (cache, folder) = places(module).map_err(Failure::Broken)?;
    if folder.exists() {
        return Ok(folder);
    }
    let _lock = lock(&cache).map_err(Failure::Broken)?;
    if folder.exists() {
        return Ok(folder); // Somebody else built them while we waited.
    }
    fetch(module).map_err(Failure::Unavailable)?;
    build(module, &folder).map_err(Failure::Broken)?;
    Ok(folder)
}

/// The cache of peers, and the folder in it for this very module.
fn places(module: &Path) -> Result<(PathBuf, PathBuf)> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("FERROVIRT_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|home| home.join("ferrovirt")))
        .or_else(|| set("HOME").map(|home| home.join(".cache/ferrovirt")))
        .ok_or_else(|| anyhow!("none of FERROVIRT_CACHE, XDG_CACHE_HOME and HOME says where to keep them"))?
        .join("peers");
    fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let folder = cache.join(digest(module)?);
    Ok((cache, folder))
}

/// A digest of all that decides what the build gives, the compiler's version aside.
fn digest(module: &Path) -> Result<String> {
    let mut files = Vec::new();
    collect(module, &mut files)?;
    files.sort();
    let mut hasher = Sha256::new();
    hasher.update(format!("{PROGRAMS:?}"));
    for file in files {
        let text = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(module).unwrap_or(&file).display().to_string();
        hasher.update(format!("\n{name} {}\n", text.len()));
        hasher.update(text);
    }
    Ok(hasher.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", folder.display()))?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|kind| kind == "go" || kind == "mod" || kind == "sum") {
            files.push(path);
        }
    }
    Ok(())
}

/// One build at a time. The lock ends with the file handle, however the process ends.
fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    if file.try_lock().is_err() {
        eprintln!("peers: another build is under way; waiting for it");
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module).env("CGO_ENABLED", "0").stdin(Stdio::null());
    go
}

/// Brings the sources, so that a build that fails later fails for a reason of its own.
fn fetch(module: &Path) -> Result<()> {
    eprintln!("peers: fetching KubeVirt's modules");
    let output = go(module).args(["mod", "download"]).output().map_err(|err| match err.kind() {
        ErrorKind::NotFound => anyhow!("go is not on the PATH; install Go 1.26 or newer to build KubeVirt's programs"),
        _ => anyhow!(err).context("cannot run go"),
    })?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        bail!("the modules cannot be had ({}):\n{}", output.status, text.trim_end());
    }
    Ok(())
}

/// Builds beside the final place and moves there at the end: what is there is complete.
fn build(module: &Path, folder: &Path) -> Result<()> {
    let unfinished = folder.with_extension("unfinished");
    if unfinished.exists() {
        // Left by a build that was interrupted; under the lock it is nobody's.
        fs::remove_dir_all(&unfinished).with_context(|| format!("cannot remove {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
    for (name, package, flags) in PROGRAMS {
        compile(module, &unfinished.join(name), package, flags).with_context(|| format!("cannot build {name}"))?;
    }
    fs::rename(&unfinished, folder)
        .with_context(|| format!("cannot move {} to {}", unfinished.display(), folder.display()))
}

/// Runs the compiler and says now and then how far it is. With `-v` it names each package on a line of its own; what is
/// no such name is a complaint.
fn compile(module: &Path, program: &Path, package: &str, flags: &str) -> Result<()> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    eprintln!("peers: building {name} (minutes when nothing is in Go's own cache)");
    let started = Instant::now();
    let mut child = go(module)
        .args(["build", "-v", "-trimpath", "-ldflags", &format!("-s -w {flags}"), "-o"])
        .arg(program)
        .arg(package)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run go")?;
    let (mut packages, mut complaints, mut told) = (0, Vec::new(), Instant::now());
    let stderr = child.stderr.take().context("the compiler has no error stream")?;
    for line in BufReader::new(stderr).lines() {
        let line = line.context("cannot read what the compiler says")?;
        if line.contains([' ', ':', '#']) {
            complaints.push(line);
            continue;
        }
        packages += 1;
        if told.elapsed() > PROGRESS_EVERY {
            told = Instant::now();
            eprintln!("peers: {name}: {packages} packages after {} s", started.elapsed().as_secs());
        }
    }
    let status = child.wait().context("cannot wait for the compiler")?;
    if !status.success() {
        bail!("go build {package} failed ({status}):\n{}", complaints.join("\n"));
    }
    eprintln!("peers: built {name} in {} s", started.elapsed().as_secs());
    Ok(())
}
