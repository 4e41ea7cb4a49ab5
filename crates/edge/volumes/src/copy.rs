//! Copies of one file: sharing its blocks where the file system can, and never filling its holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, SystemTime};

use rustix::fs::{SeekFrom, StatxFlags, StatxTimestamp};
use rustix::io::Errno;

/// Copied by one call, so that a copy can be watched and ends soon after its process is asked to.
const CHUNK: u64 = 256 << 20;
/// Buffer of a copy through this process.
const BUFFER: usize = 1 << 20;
/// Two changes within one tick of the kernel's clock may have the same time: 10 ms at 100 Hz, and some more.
const TICK: Duration = Duration::from_millis(25);

/// How a file was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Method {
    /// The copy shares the source's blocks until one of them is written to.
    Reflink,
    /// The kernel copied the data between the holes.
    Ranges,
    /// This process copied it.
    Plain,
}

/// Copies the content of `from` to the empty file `to`.
///
/// `Ok(None)` if the source was written to meanwhile and the copy is of no instant: only where blocks cannot be shared.
pub(crate) fn copy(from: &File, to: &File) -> io::Result<Option<Method>> {
    match rustix::fs::ioctl_ficlone(to, from) {
        Ok(()) => return Ok(Some(Method::Reflink)),
        Err(Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL | Errno::NOTTY | Errno::NOSYS | Errno::TXTBSY) => {}
        Err(error) => return Err(error.into()),
    }
    let before = settled(from)?;
    let length = from.metadata()?.len();
    to.set_len(length)?;
    let method = extents(from, to, length)?;
    // What is written through memory maps gets its new time only now.
    from.sync_data()?;
    Ok((version(from)? == before).then_some(method))
}

/// What changes whenever the file does.
type Version = (u64, Moment, Moment);
/// Seconds since 1970, and nanoseconds.
type Moment = (i64, u32);

fn version(file: &File) -> io::Result<Version> {
    let stat = rustix::fs::statx(file, "", rustix::fs::AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    let moment = |time: StatxTimestamp| (time.tv_sec, time.tv_nsec);
    Ok((stat.stx_size, moment(stat.stx_mtime), moment(stat.stx_ctime)))
}

/// The version of a file once any later change is bound to give another one.
fn settled(file: &File) -> io::Result<Version> {
    file.sync_data()?;
    let first = version(file)?;
    let (_, _, (seconds, nanos)) = first;
    let changed = SystemTime::UNIX_EPOCH + Duration::new(u64::try_from(seconds).unwrap_or_default(), nanos);
    // A change in the future means that the clock was set back: the next change has an earlier time.
    if SystemTime::now().duration_since(changed).is_ok_and(|age| age < TICK) {
        std::thread::sleep(TICK);
    }
    Ok(first)
}

/// Copies what is between the holes.
fn extents(from: &File, to: &File, length: u64) -> io::Result<Method> {
    let mut method = Method::Ranges;
    let mut at = 0;
    while at < length {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break, // nothing but a hole is left
            Err(Errno::INVAL) => at,   // a file system that does not know of holes
            Err(error) => return Err(error.into()),
        };
        let end = match rustix::fs::seek(from, SeekFrom::Hole(start)) {
            Ok(end) => end.min(length),
            Err(Errno::INVAL) => length,
            Err(Errno::NXIO) => break, // it has become shorter
            Err(error) => return Err(error.into()),
        };
        method = range(from, to, start, end, method)?;
        at = end.max(start + 1);
    }
    Ok(method)
}

/// Copies the bytes from `start` to `end`.
fn range(from: &File, to: &File, start: u64, end: u64, method: Method) -> io::Result<Method> {
    let mut at = start;
    while method != Method::Plain && at < end {
        let (mut source, mut target) = (at, at);
        let most = usize::try_from((end - at).min(CHUNK)).unwrap_or(BUFFER);
        match rustix::fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), most) {
            Ok(0) => return Ok(method), // the source has become shorter
            Ok(copied) => at += copied as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return plain(from, to, at, end).map(|()| Method::Plain);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if at < end { plain(from, to, at, end).map(|()| Method::Plain) } else { Ok(method) }
}

/// Copies by reading and writing. Zeros stay holes.
pub(crate) fn plain(from: &File, to: &File, start: u64, end: u64) -> io::Result<()> {
    const BLOCK: usize = 64 << 10;
    let mut buffer = vec![0; BUFFER];
    let mut at = start;
    while at < end {
        let most = usize::try_from((end - at).min(BUFFER as u64)).unwrap_or(BUFFER);
        let read = match from.read_at(&mut buffer[..most], at) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        for (number, block) in buffer[..read].chunks(BLOCK).enumerate() {
            if block.iter().any(|byte| *byte != 0) {
                to.write_all_at(block, at + (number * BLOCK) as u64)?;
            }
        }
        at += read as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn sparse() -> (File, Vec<u8>) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(&[1; 5000], 0).unwrap();
        file.write_all_at(&[2; 100_000], 3 << 20).unwrap();
        file.sync_all().unwrap();
        let mut content = vec![0; 8 << 20];
        file.read_exact_at(&mut content, 0).unwrap();
        (file, content)
    }

    fn is_copy(file: &File, content: &[u8]) {
        let mut copied = vec![0; content.len()];
        file.read_exact_at(&mut copied, 0).unwrap();
        assert!(copied == content, "the copy has another content");
        assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
        file.sync_all().unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20, "the holes were filled");
    }

    #[test]
    fn every_way_to_copy_keeps_content_and_holes() {
        let (from, content) = sparse();
        let whole = tempfile::tempfile().unwrap();
        assert!(copy(&from, &whole).unwrap().is_some());
        is_copy(&whole, &content);
        let ranges = tempfile::tempfile().unwrap();
        ranges.set_len(content.len() as u64).unwrap();
        extents(&from, &ranges, content.len() as u64).unwrap();
        is_copy(&ranges, &content);
        let slow = tempfile::tempfile().unwrap();
        slow.set_len(content.len() as u64).unwrap();
        plain(&from, &slow, 0, content.len() as u64).unwrap();
        is_copy(&slow, &content);
    }

    #[test]
    fn a_change_is_noticed_at_once_after_a_file_has_settled() {
        let mut file = tempfile::tempfile().unwrap();
        for _ in 0..20 {
            let before = settled(&file).unwrap();
            file.write_all(b"x").unwrap();
            file.set_len(0).unwrap();
            assert_ne!(version(&file).unwrap(), before);
        }
    }

    #[test]
    fn a_file_in_another_file_system_is_copied_through_this_process() {
        let (from, content) = sparse();
        let to = tempfile::tempfile_in("/dev/shm").unwrap();
        assert_eq!(copy(&from, &to).unwrap().map(|method| method > Method::Reflink), Some(true));
        is_copy(&to, &content);
    }
}
