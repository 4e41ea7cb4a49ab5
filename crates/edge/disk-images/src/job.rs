//! What the worker is told, and what it tells.

use serde::{Deserialize, Serialize};

/// One import: what to fetch and where to put it. A line of JSON on the worker's standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Job {
    pub source: Source,
    #[serde(default)]
    pub content_type: ContentType,
    pub target: Target,
    /// The claim's capacity in bytes.
    pub size: u64,
    /// Allocate all space instead of leaving holes.
    #[serde(default)]
    pub preallocate: bool,
    /// The share of a file system claim that `disk.img` leaves free: 0.06 is six per cent. Not used for other targets.
    #[serde(default)]
    pub filesystem_overhead: f64,
    /// Give up when so many seconds pass in which less than a MiB moves.
    #[serde(default = "stall_seconds")]
    pub stall_seconds: u64,
}

impl Job {
    pub fn new(source: Source, target: Target, size: u64) -> Self {
        Job {
            source,
            content_type: ContentType::Kubevirt,
            target,
            size,
            preallocate: false,
            filesystem_overhead: 0.0,
            stall_seconds: stall_seconds(),
        }
    }
}

fn stall_seconds() -> u64 {
    600
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    Http(Http),
    Registry(Registry),
    /// The content comes from [`crate::Descriptors::upload`], until it ends.
    Upload {},
    Blank {},
}

/// Secrets are in here: it is not to be logged.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Http {
    pub url: String,
    /// Additional headers as `Name: value`.
    pub headers: Vec<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// Certificates in PEM form, trusted in addition to the machine's.
    pub ca_pem: Option<String>,
    /// `md5:…`, `sha1:…`, `sha256:…` or `sha512:…` of the content as it is transferred.
    pub checksum: Option<String>,
}

/// Secrets are in here: it is not to be logged.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Registry {
    /// `docker://host/repository:tag` or `docker://host/repository@sha256:…`.
    pub url: String,
    /// Plain HTTP, or TLS without a check of the certificate.
    pub insecure: bool,
    pub ca_pem: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").field("url", &self.url).field("checksum", &self.checksum).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("url", &self.url).field("insecure", &self.insecure).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ContentType {
    /// A disk image.
    #[default]
    Kubevirt,
    /// A tar archive, unpacked into a file system claim.
    Archive,
}

/// What the target's descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Target {
    /// A regular file with the raw content of a block volume. It keeps its size.
    File {},
    /// A block device.
    Block {},
    /// The directory of a file system volume: `disk.img` is made in it, or the archive unpacked.
    Directory {},
}

/// A line of JSON on the worker's standard output. The last one is [`Event::Done`] or [`Event::Failed`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// Per cent of the current stage: the transfer, or the conversion.
    Progress(f64),
    Stage(String),
    Done(Done),
    Failed(Failure),
}

impl Event {
    pub fn is_last(&self) -> bool {
        matches!(self, Event::Done(_) | Event::Failed(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// Size of the disk that the guest sees; of an archive, the sum of its files.
    pub virtual_size: u64,
    /// `raw`, or `archive`.
    pub format: String,
    #[serde(default)]
    pub preallocated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// One of [`reasons`].
    pub reason: String,
    pub message: String,
    /// Whether trying again cannot help: the source itself is at fault.
    #[serde(default)]
    pub permanent: bool,
}

impl Failure {
    fn new(reason: &str, message: impl Into<String>, permanent: bool) -> Self {
        Failure { reason: reason.to_owned(), message: message.into(), permanent }
    }

    pub(crate) fn bad_job(message: impl Into<String>) -> Self {
        Failure::new(reasons::BAD_JOB, message, true)
    }

    pub(crate) fn connect(message: impl Into<String>) -> Self {
        Failure::new(reasons::CONNECT, message, false)
    }

    pub(crate) fn data(message: impl Into<String>) -> Self {
        Failure::new(reasons::DATA, format!("Unable to process data: {}", message.into()), true)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Failure::new(reasons::TOO_LARGE, format!("Unable to process data: {}", message.into()), true)
    }

    /// The words of CDI for a disk that does not fit.
    pub(crate) fn does_not_fit(doing: &str, size: u64, available: u64) -> Self {
        Failure::too_large(format!(
            "{doing}: virtual image size {size} is larger than the reported available storage {available}. \
             A larger PVC is required"
        ))
    }

    pub(crate) fn stalled(message: impl Into<String>) -> Self {
        Failure::new(reasons::STALLED, message, false)
    }

    pub(crate) fn machine(message: impl Into<String>) -> Self {
        Failure::new(reasons::MACHINE, format!("Unable to process data: {}", message.into()), false)
    }

    /// A failed read of content: a transfer's own failure comes through as it is; the rest is bad content.
    pub(crate) fn of_stream(doing: &str, err: std::io::Error) -> Self {
        match err.downcast::<Failure>() {
            Ok(failure) => failure,
            Err(err) => match err.downcast::<crate::content::sparse::Written>() {
                Ok(written) => Failure::of_target(doing, &written.0),
                Err(err) => Failure::data(format!("{doing}: {err}")),
            },
        }
    }

    pub(crate) fn of_target(doing: &str, err: &std::io::Error) -> Self {
        Failure::machine(format!("{doing}: cannot write to the volume: {err}"))
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Reasons of [`Failure`].
pub mod reasons {
    /// The job makes no sense: a bad URL, an archive for a block volume.
    pub const BAD_JOB: &str = "BadJob";
    /// The source cannot be reached or refuses.
    pub const CONNECT: &str = "UnableToConnect";
    /// The content is not what it should be, is damaged, or is refused.
    pub const DATA: &str = "UnableToProcessData";
    /// The content does not fit.
    pub const TOO_LARGE: &str = "TooLarge";
    /// Nothing moved for too long.
    pub const STALLED: &str = "Stalled";
    /// The worker ended without a word.
    pub const LOST: &str = "WorkerLost";
    /// This machine is at fault: a full disk, a missing program.
    pub const MACHINE: &str = "MachineFailed";
}
