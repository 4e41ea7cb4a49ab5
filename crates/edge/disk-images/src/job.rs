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
