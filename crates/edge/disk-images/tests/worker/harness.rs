//! A worker, its target, and what it says.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use disk_images::{Descriptors, Done, Event, Failure, Http, Job, Source, Target, Worker};
use tempfile::TempDir;

pub(crate) type Tests = &'static [(&'static str, fn())];

pub(crate) const MIB: u64 = 1 << 20;
/// No test takes longer, or the worker has no bounds.
const LIMIT: Duration = Duration::from_secs(120);

/// A claim of a test.
pub(crate) struct Claim {
    pub(crate) dir: TempDir,
    kind: Target,
}

impl Claim {
    /// A file system claim; its files are in `volume`.
    pub(crate) fn directory() -> Self {
        let claim = Claim { dir: TempDir::new().unwrap(), kind: Target::Directory {} };
        std::fs::create_dir(claim.path()).unwrap();
        claim.with_scratch()
    }

    /// A block claim with this size, full of ones.
    pub(crate) fn file(size: u64) -> Self {
        let claim = Claim { dir: TempDir::new().unwrap(), kind: Target::File {} };
        let mut file = File::create(claim.path()).unwrap();
        file.write_all(&vec![1; size as usize]).unwrap();
        claim.with_scratch()
    }

    /// A block claim that is a device already.
    pub(crate) fn device(device: &str) -> Self {
        let claim = Claim { dir: TempDir::new().unwrap(), kind: Target::Block {} };
        std::os::unix::fs::symlink(device, claim.path()).unwrap();
        claim.with_scratch()
    }

    fn with_scratch(self) -> Self {
        std::fs::create_dir(self.scratch()).unwrap();
        self
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("volume")
    }

    fn scratch(&self) -> PathBuf {
        self.dir.path().join("scratch")
    }

    /// The disk that a guest would get.
    pub(crate) fn disk(&self) -> PathBuf {
        match self.kind {
            Target::Directory {} => self.path().join("disk.img"),
            Target::File {} | Target::Block {} => self.path(),
        }
    }

    pub(crate) fn job(&self, source: Source, size: u64) -> Job {
        Job { stall_seconds: 20, ..Job::new(source, self.kind, size) }
    }

    pub(crate) fn descriptors(&self, upload: Option<OwnedFd>) -> Descriptors {
        let target = match self.kind {
            Target::Directory {} => File::open(self.path()).unwrap(),
            Target::File {} | Target::Block {} => File::options().read(true).write(true).open(self.path()).unwrap(),
        };
        let scratch = File::open(self.scratch()).unwrap();
        Descriptors { target: target.into(), upload, scratch: Some(scratch.into()) }
    }

    pub(crate) async fn start(&self, job: &Job, upload: Option<OwnedFd>) -> Worker {
        Worker::spawn(&std::env::current_exe().unwrap(), job, self.descriptors(upload)).await.unwrap()
    }

    /// Runs a job to its end.
    pub(crate) fn run(&self, job: &Job, upload: Option<OwnedFd>) -> Outcome {
        let outcome = runtime().block_on(async {
            let mut worker = self.start(job, upload).await;
            let mut events = Vec::new();
            let listening = async {
                while let Some(event) = worker.next_event().await {
                    events.push(event);
                }
            };
            tokio::time::timeout(LIMIT, listening).await.expect("the worker ends in time");
            Outcome { events }
        });
        assert_eq!(std::fs::read_dir(self.scratch()).unwrap().count(), 0, "nothing stays in the scratch directory");
        outcome
    }

    pub(crate) fn import(&self, source: Source, size: u64) -> Outcome {
        self.run(&self.job(source, size), None)
    }

    /// Bytes that the disk takes of the file system.
    pub(crate) fn allocated(&self) -> u64 {
        std::fs::metadata(self.disk()).unwrap().blocks() * 512
    }

    /// What the disk holds up to the length of this, and that the rest of it is zero.
    pub(crate) fn assert_holds(&self, content: &[u8], what: &str) {
        let file = File::open(self.disk()).unwrap();
        let length = file.metadata().unwrap().len();
        let mut found = vec![0; length as usize];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(length >= content.len() as u64, "{what}: {length} bytes");
        assert!(found[..content.len()] == *content, "{what}: the content differs");
        assert!(found[content.len()..].iter().all(|byte| *byte == 0), "{what}: the rest is not zero");
    }
}

pub(crate) struct Outcome {
    pub(crate) events: Vec<Event>,
}

impl Outcome {
    pub(crate) fn done(&self) -> &Done {
        match self.events.last() {
            Some(Event::Done(done)) => done,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn failed(&self) -> &Failure {
        match self.events.last() {
            Some(Event::Failed(failure)) => failure,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

pub(crate) fn http(url: String) -> Source {
    Source::Http(Http { url, ..Http::default() })
}

/// A disk with data here and there; a tenth of it is not zero.
pub(crate) fn disk(size: u64) -> Vec<u8> {
    let mut disk = vec![0; size as usize];
    let mut state = 88_172_645_463_325_252u64;
    for (index, block) in disk.chunks_mut(4096).enumerate() {
        if index % 10 == 0 {
            for word in block.chunks_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
            }
        }
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

pub(crate) fn run(program: &str, args: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(args).output().unwrap_or_else(|err| panic!("{program}: {err}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The disk in another format, by qemu-img.
pub(crate) fn converted(raw: &[u8], format: &str, options: &[&str]) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let (from, to) = (dir.path().join("raw"), dir.path().join("image"));
    std::fs::write(&from, raw).unwrap();
    let mut args = vec!["convert", "-f", "raw", "-O", format];
    args.extend(options);
    args.extend([text(&from), text(&to)]);
    run("qemu-img", &args);
    std::fs::read(&to).unwrap()
}

pub(crate) fn packed(program: &str, content: &[u8]) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("content");
    std::fs::write(&file, content).unwrap();
    run(program, &["-c", text(&file)])
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
