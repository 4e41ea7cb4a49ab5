//! A file system with reflinks for one test: XFS on a loop device, in the calling thread's mount namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Mounted until dropped.
#[derive(Debug)]
pub struct Xfs {
    target: PathBuf,
}

impl Xfs {
    /// Makes one of this size, sparse, from a file `NAME.image` in `dir`, and mounts it at `NAME` there. `Err` says what
    /// the machine lacks.
    pub fn mount(dir: &Path, name: &str, bytes: u64) -> Result<Xfs, String> {
        let (image, target) = (dir.join(format!("{name}.image")), dir.join(name));
        std::fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        std::fs::create_dir(&target).unwrap();
        // Without the journal's zeroing and discards: the file is new.
        run(Command::new("mkfs.xfs").args(["-q", "-K", "-m", "reflink=1"]).arg(&image))?;
        run(Command::new("mount").args(["-t", "xfs", "-o", "loop"]).arg(&image).arg(&target))?;
        Ok(Xfs { target })
    }

    pub fn path(&self) -> &Path {
        &self.target
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        // The loop device goes with the mount.
        let _ = run(Command::new("umount").arg(&self.target));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output();
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Detaches loop devices from files below a directory: what a test has left that failed.
pub fn detach_loops(dir: &Path) {
    let Ok(dir) = dir.canonicalize() else { return };
    for entry in std::fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let file = std::fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end()).starts_with(&dir) {
            let _ = run(Command::new("losetup").arg("-d").arg(Path::new("/dev").join(entry.file_name())));
        }
    }
}
