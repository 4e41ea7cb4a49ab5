//! The stage that fetches: brings the content to the target, or to the scratch file if it has to be converted.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use image_format::Format;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use url::Url;

use super::confine::{Confinement, GUEST_UID, Limits, WORKER_UID};
use super::{Flags, Says, duplicate, read_job, say, scratch_limit};
use crate::content::archive;
use crate::content::checksum::{Checksum, hex};
use crate::content::decompress::{is_compressed, unwrapped};
use crate::content::sparse::{self, Copied};
use crate::content::{FileContent, Peeked};
use crate::job::{ContentType, Failure, Http, Job, Registry, Source};
use crate::net::{Client, Get, Transfer, Trust};
use crate::registry::{Access, Reference, Remote};

const MEMORY: u64 = 4 << 30;
/// For names, and for the certificates of those whom this machine trusts.
const READABLE: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl",
    "/etc/pki",
    "/etc/ca-certificates",
    "/usr/share/ca-certificates",
    "/usr/local/share/ca-certificates",
    "/etc/ld.so.cache",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/run/systemd/resolve",
    "/run/resolvconf",
];
/// Pieces on their way from the network to the disk.
const PIECES: usize = 64;
/// What may come after the end of a compressed stream.
const REST_MAX: u64 = 64 << 20;

const SCRATCH: &str = "Unable to transfer source data to scratch space";
const CONVERT: &str = "Unable to convert source data to target format";
const TARGET: &str = "Unable to transfer source data to target file";
const INFO: &str = "Unable to obtain information about data source";

pub(super) fn main(mut flags: Flags) -> io::Result<()> {
    let job = read_job()?;
    let target = flags.target()?;
    let is_archive = job.content_type == ContentType::Archive;
    let writable: &[BorrowedFd<'_>] = if is_archive { &[target.as_fd()] } else { &[] };
    let limit = scratch_limit(job.size);
    Confinement {
        uid: if is_archive { GUEST_UID } else { WORKER_UID },
        limits: Limits { memory: MEMORY, cpu_seconds: 600 + job.size / (1 << 20), file: limit },
        network: !matches!(job.source, Source::Upload {}),
        exec: false,
        readable: READABLE,
        writable,
        sources: &[],
    }
    .enter()?;
    let (scratch, upload) = (flags.scratch.as_ref(), flags.upload.as_ref());
    let stage = Stage { job: &job, target: &target, scratch, upload, zeros: flags.zeros };
    match stage.run() {
        Ok(outcome) => say(&outcome),
        Err(failure) => say(&Says::Failed(failure)),
    }
}

struct Stage<'a> {
    job: &'a Job,
    target: &'a OwnedFd,
    scratch: Option<&'a OwnedFd>,
    upload: Option<&'a OwnedFd>,
    /// What is not written to reads as zeros.
    zeros: bool,
}

impl Stage<'_> {
    fn run(&self) -> Result<Says, Failure> {
        match &self.job.source {
            Source::Http(source) => self.http(source),
            Source::Registry(source) => self.registry(source),
            Source::Upload {} => {
                let failed = |err: io::Error| Failure::machine(format!("the upload cannot be read: {err}"));
                let upload = self.upload.ok_or_else(|| Failure::bad_job("there is no upload"))?;
                let counted = Counted::new(duplicate(upload).map_err(failed)?, None);
                self.content(counted, None)
            }
            Source::Blank {} => Ok(Says::Written(0)),
        }
    }

    fn http(&self, source: &Http) -> Result<Says, Failure> {
        let cannot = |err: String| format!("Unable to connect to http data source: {err}");
        let checksum = source.checksum.as_deref().filter(|text| !text.is_empty()).map(Checksum::parse).transpose()?;
        let get = request(source).map_err(|err| Failure::bad_job(cannot(err)))?;
        let trust = Trust { ca_pem: source.ca_pem.clone(), insecure: false };
        let client = Arc::new(Client::new(&trust).map_err(|err| Failure::bad_job(cannot(err)))?);
        let network = Network::new()?;
        let transfer = network.runtime.block_on(Transfer::start(client, get));
        let transfer = transfer.map_err(|err| Failure::connect(cannot(err.to_string())))?;
        let total = transfer.total();
        let counted = Counted::new(network.stream(transfer), total).with(checksum);
        network.verdict(self.content(counted, total))
    }

    /// A stream that is an image or an archive, compressed or not.
    fn content(&self, mut counted: Counted<impl Read>, total: Option<u64>) -> Result<Says, Failure> {
        let outcome = match self.job.content_type {
            ContentType::Kubevirt => self.disk(&mut counted, total)?,
            ContentType::Archive => {
                let failed = |err: io::Error| Failure::machine(format!("cannot clear the volume: {err}"));
                archive::clear(self.target.as_fd()).map_err(failed)?;
                let stream = unwrapped(&mut counted).map_err(|err| Failure::of_stream(INFO, err))?;
                Says::Written(archive::unpack(stream, self.target.as_fd(), self.job.size)?)
            }
        };
        counted.finish()?;
        Ok(outcome)
    }

    /// `length` is that of the stream as it comes, if it is known.
    fn disk(&self, stream: impl Read, length: Option<u64>) -> Result<Says, Failure> {
        let peeked = Peeked::new(stream).map_err(|err| Failure::of_stream(INFO, err))?;
        let compressed = is_compressed(peeked.head());
        let mut content = unwrapped(peeked).map_err(|err| Failure::of_stream(INFO, err))?;
        if content.head().is_empty() {
            return Err(Failure::data(format!("{INFO}: could not process image header: EOF")));
        }
        let limit = self.job.size;
        match content.format() {
            Format::Raw => {
                image_format::inspect(&mut content.head()).map_err(|err| Failure::data(format!("{CONVERT}: {err}")))?;
                if let Some(length) = length.filter(|length| !compressed && *length > limit) {
                    return Err(Failure::does_not_fit(CONVERT, length, limit));
                }
                self.raw(&mut content)
            }
            format => {
                if let Some(size) = image_format::announced_size(content.head()).filter(|size| *size > limit) {
                    return Err(Failure::does_not_fit(CONVERT, size, limit));
                }
                self.to_be_converted(&mut content, format)
            }
        }
    }

    fn raw(&self, content: &mut impl Read) -> Result<Says, Failure> {
        let limit = self.job.size;
        let target = duplicate(self.target).map_err(|err| Failure::of_target(TARGET, &err))?;
        match sparse::copy(content, &target, limit, self.zeros).map_err(|err| Failure::of_stream(TARGET, err))? {
            Copied::All(written) => Ok(Says::Written(written)),
            Copied::TooLarge => Err(Failure::too_large(format!(
                "{CONVERT}: the image is larger than the reported available storage {limit}. A larger PVC is required"
            ))),
        }
    }

    fn to_be_converted(&self, content: &mut impl Read, format: Format) -> Result<Says, Failure> {
        let scratch = self.scratch.ok_or_else(|| Failure::machine("scratch space required and none found"))?;
        let scratch = duplicate(scratch).map_err(|err| Failure::of_target(SCRATCH, &err))?;
        let limit = scratch_limit(self.job.size);
        let length =
            match sparse::copy(content, &scratch, limit, true).map_err(|err| Failure::of_stream(SCRATCH, err))? {
                Copied::All(length) => length,
                Copied::TooLarge => {
                    return Err(Failure::too_large(format!(
                        "{SCRATCH}: the {format} image takes more than {limit} bytes. A larger PVC is required"
                    )));
                }
            };
        scratch.set_len(length).map_err(|err| Failure::of_target(SCRATCH, &err))?;
        let found = image_format::verify(&mut FileContent { file: &scratch, length });
        let image = found.map_err(|err| Failure::data(format!("{CONVERT}: {err}")))?;
        if image.virtual_size > self.job.size {
            return Err(Failure::does_not_fit(CONVERT, image.virtual_size, self.job.size));
        }
        Ok(Says::Convert { format: image.format.driver().to_owned(), virtual_size: image.virtual_size })
    }

    fn registry(&self, source: &Registry) -> Result<Says, Failure> {
        let cannot = |err: &dyn std::fmt::Display| format!("{SCRATCH}: Failed to read registry image: {err}");
        let pull = |err: crate::registry::PullError| {
            let text = cannot(&format!("failed to pull image: {err}"));
            if err.refused { Failure::data(text) } else { Failure::connect(format!("Unable to process data: {text}")) }
        };
        let name = source.url.strip_prefix("docker://").ok_or_else(|| {
            Failure::data(cannot(&format!(
                "Could not parse image: Invalid image name {:?}, expected docker://",
                source.url
            )))
        })?;
        let reference = Reference::parse(name).map_err(pull)?;
        let credentials = source.username.clone().zip(source.password.clone()).filter(|(user, _)| !user.is_empty());
        let access = Access { insecure: source.insecure, ca_pem: source.ca_pem.clone(), credentials };
        let network = Network::new()?;
        let mut remote = Remote::new(reference, &access).map_err(pull)?;
        let found = network.runtime.block_on(remote.find(source.insecure)).map_err(pull)?;

        let mut hidden = Hidden::default();
        // From the top: what a layer holds, those below it do not change.
        for layer in found.manifest.layers().iter().rev() {
            let transfer = network.runtime.block_on(remote.blob(layer)).map_err(pull)?;
            let stream = network.stream(transfer);
            let mut hashed = Hashed { inner: Counted::new(stream, Some(layer.size())), hash: Context::new(&SHA256) };
            let outcome = network.verdict(self.layer(&mut hashed, &mut hidden))?;
            let rest = io::copy(&mut hashed, &mut io::sink()).map_err(|err| Failure::of_stream(SCRATCH, err));
            network.verdict(rest)?;
            let digest = format!("sha256:{}", hex(hashed.hash.finish().as_ref()));
            if digest != layer.digest().to_string() {
                return Err(Failure::data(cannot(&format!("layer {} is damaged", layer.digest()))));
            }
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            if hidden.all {
                break;
            }
        }
        Err(Failure::data(cannot(&"Failed to find VM disk image file in the container image")))
    }

    /// Looks for the disk in a layer.
    fn layer(&self, stream: impl Read, hidden: &mut Hidden) -> Result<Option<Says>, Failure> {
        let bad = |why: String| Failure::data(format!("{SCRATCH}: Cannot locate image file: {why}"));
        let reading = |err| Failure::of_stream(SCRATCH, err);
        let mut archive = tar::Archive::new(unwrapped(stream).map_err(reading)?);
        let mut outcome = None;
        let (mut names, mut all) = (Vec::new(), false);
        for (index, entry) in archive.entries().map_err(reading)?.enumerate() {
            if index > 1_000_000 {
                return Err(bad("the layer has more than a million files".to_owned()));
            }
            let mut entry = entry.map_err(reading)?;
            let path = entry.path().map_err(reading)?.into_owned();
            let mut parts = path
                .components()
                .filter(|part| !matches!(part, std::path::Component::CurDir | std::path::Component::RootDir));
            let first = parts.next().map(|part| part.as_os_str().to_owned()).unwrap_or_default();
            all |= first == ".wh.disk" || (first == ".wh..wh..opq" && parts.clone().next().is_none());
            if first != "disk" {
                continue;
            }
            let Some(name) = parts.next().and_then(|part| part.as_os_str().to_str().map(str::to_owned)) else {
                continue;
            };
            if name == ".wh..wh..opq" {
                all = true;
                continue;
            }
            if let Some(name) = name.strip_prefix(".wh.") {
                names.push(name.to_owned());
                continue;
            }
            if hidden.names.contains(&name) {
                continue;
            }
            let kind = entry.header().entry_type();
            if parts.next().is_some() || kind.is_dir() {
                return Err(bad("image directory contains another directory".to_owned()));
            }
            if !matches!(kind, tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse) {
                return Err(bad(format!("disk/{name} is a link or a device, not a file")));
            }
            if outcome.is_some() {
                return Err(bad("image directory contains more than one file".to_owned()));
            }
            let size = entry.size();
            outcome = Some(self.disk(&mut entry, Some(size))?);
        }
        hidden.names.extend(names);
        hidden.all |= all;
        Ok(outcome)
    }
}

/// What layers hide of those below them.
#[derive(Default)]
struct Hidden {
    names: Vec<String>,
    all: bool,
}

fn request(source: &Http) -> Result<Get, String> {
    let mut url = Url::parse(&source.url).map_err(|err| format!("unable to parse endpoint {:?}: {err}", source.url))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("unsupported protocol scheme {:?}", url.scheme()));
    }
    let in_url = (!url.username().is_empty()).then(|| {
        let decoded = |text: &str| percent_decoded(text);
        (decoded(url.username()), decoded(url.password().unwrap_or_default()))
    });
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let mut get = Get::new(url);
    for line in &source.headers {
        let (name, value) = line.split_once(':').ok_or("an extra header has no colon")?;
        let name: HeaderName = name.trim().parse().map_err(|_| "an extra header has a bad name")?;
        let mut value: HeaderValue = value.trim().parse().map_err(|_| "an extra header has a bad value")?;
        value.set_sensitive(true);
        get.secrets.append(name, value);
    }
    let given = source.username.clone().zip(source.password.clone()).filter(|(user, _)| !user.is_empty());
    if let Some((user, password)) = given.or(in_url) {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        let mut value: HeaderValue = format!("Basic {text}").parse().map_err(|_| "the credentials cannot be sent")?;
        value.set_sensitive(true);
        get.secrets.insert(AUTHORIZATION, value);
    }
    Ok(get)
}

fn percent_decoded(text: &str) -> String {
    let pairs = format!("x={text}").replace('+', "%2B");
    url::form_urlencoded::parse(pairs.as_bytes()).next().map(|(_, value)| value.into_owned()).unwrap_or_default()
}

/// The network runs beside the disk: while one piece is written, the next ones come.
struct Network {
    runtime: Runtime,
    /// Why a transfer failed. What reads it may have made something else of the error.
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Network {
    fn new() -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|err| Failure::machine(format!("cannot start the runtime: {err}")))?;
        Ok(Network { runtime, failure: Arc::default() })
    }

    fn stream(&self, mut transfer: Transfer) -> Stream {
        let (send, pieces) = mpsc::channel(PIECES);
        let failure = self.failure.clone();
        self.runtime.spawn(async move {
            loop {
                match transfer.next().await {
                    Ok(Some(piece)) => {
                        if send.send(piece).await.is_err() {
                            return;
                        }
                    }
                    Ok(None) => return,
                    Err(err) => {
                        let failed = Failure::connect(format!("Unable to process data: {TARGET}: {err}"));
                        *failure.lock() = Some(failed);
                        return;
                    }
                }
            }
        });
        Stream { pieces, piece: Bytes::new(), failure: self.failure.clone() }
    }

    /// A failed transfer is the reason for whatever came of it.
    fn verdict<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        match self.failure.lock().clone() {
            Some(failure) => Err(failure),
            None => result,
        }
    }
}

struct Stream {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
    failure: Arc<Mutex<Option<Failure>>>,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece,
                // The task has ended: the content has, or the transfer failed.
                None => return self.failure.lock().clone().map_or(Ok(0), |failure| Err(io::Error::other(failure))),
            }
        }
        let count = self.piece.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Counts, reports and sums what comes.
struct Counted<R> {
    inner: R,
    total: Option<u64>,
    done: u64,
    /// Bytes that the conductor knows of, and when it last heard of progress.
    moved: u64,
    told: Instant,
    checksum: Option<Checksum>,
}

/// The conductor hears of every so many bytes, and of progress every so often.
const MOVED: u64 = 1 << 20;
const OFTEN: Duration = Duration::from_millis(500);

impl<R: Read> Counted<R> {
    fn new(inner: R, total: Option<u64>) -> Self {
        Counted { inner, total, done: 0, moved: 0, told: Instant::now(), checksum: None }
    }

    fn with(self, checksum: Option<Checksum>) -> Self {
        Counted { checksum, ..self }
    }

    fn note(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.done += bytes.len() as u64;
        if let Some(checksum) = &mut self.checksum {
            checksum.update(bytes);
        }
        if self.done - self.moved >= MOVED {
            say(&Says::Moved(self.done - self.moved))?;
            self.moved = self.done;
        }
        if let Some(total) = self.total.filter(|total| *total > 0)
            && self.told.elapsed() >= OFTEN
        {
            self.told = Instant::now();
            say(&Says::Progress((self.done as f64 / total as f64 * 100.0).min(100.0)))?;
        }
        Ok(())
    }

    /// Takes what is left, which decompression had no use for, and checks the sum.
    fn finish(mut self) -> Result<(), Failure> {
        let rest = io::copy(&mut (&mut self).take(REST_MAX), &mut io::sink());
        if rest.map_err(|err| Failure::of_stream(TARGET, err))? == REST_MAX {
            return Err(Failure::data(format!("{TARGET}: there is more after the end of the compressed content")));
        }
        self.checksum.map_or(Ok(()), |checksum| {
            checksum.check().map_err(|failure| Failure { message: prefixed(&failure.message), ..failure })
        })
    }
}

/// CDI says where it was when it checked the sum.
fn prefixed(message: &str) -> String {
    message.replacen("Unable to process data: ", &format!("Unable to process data: {TARGET}: "), 1)
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.note(&buffer[..count])?;
        Ok(count)
    }
}

struct Hashed<R> {
    inner: R,
    hash: Context,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}
