//! gzip, xz and zstd, told by their first bytes; with bounded memory, in Rust alone.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::Peeked;

/// One layer of each, as CDI has it.
const LAYERS: usize = 3;
const XZ_MEMORY_KIB: u32 = 192 * 1024;
const ZSTD_WINDOW: u64 = 128 << 20;
const BUFFER: usize = 256 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    Gzip,
    Xz,
    Zstd,
}

impl Compression {
    fn of(head: &[u8]) -> Option<Self> {
        let known: [(&[u8], Compression); 3] = [
            (&[0x1f, 0x8b], Compression::Gzip),
            (&[0xfd, b'7', b'z', b'X', b'Z', 0], Compression::Xz),
            (&[0x28, 0xb5, 0x2f, 0xfd], Compression::Zstd),
        ];
        known.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| *kind)
    }
}

/// Whether a stream that starts so is compressed.
pub(crate) fn is_compressed(head: &[u8]) -> bool {
    Compression::of(head).is_some()
}

/// What is inside of a stream, decompressed as often as it needs, and looked at.
pub(crate) fn unwrapped<'a>(stream: impl Read + 'a) -> io::Result<Peeked<Box<dyn Read + 'a>>> {
    let mut peeked = Peeked::new(Box::new(stream) as Box<dyn Read + 'a>)?;
    let mut seen = Vec::new();
    while let Some(kind) = Compression::of(peeked.head()).filter(|kind| !seen.contains(kind) && seen.len() < LAYERS) {
        seen.push(kind);
        let packed = BufReader::with_capacity(BUFFER, peeked);
        let plain: Box<dyn Read + 'a> = match kind {
            Compression::Gzip => Box::new(Named("gzip", MultiGzDecoder::new(packed))),
            Compression::Xz => Box::new(Named("xz", XzReader::new_mem_limit(packed, true, XZ_MEMORY_KIB))),
            Compression::Zstd => Box::new(Named("zstd", Zstd::new(packed))),
        };
        peeked = Peeked::new(plain)?;
    }
    Ok(peeked)
}

/// Says in its errors which decompression failed.
struct Named<R>(&'static str, R);

impl<R: Read> Read for Named<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // What an error of the stream below says is left as it is.
        self.1.read(buffer).map_err(|err| match err.get_ref() {
            Some(inner) if inner.is::<crate::job::Failure>() => err,
            _ => io::Error::new(err.kind(), format!("{}: {err}", self.0)),
        })
    }
}

/// The decoder knows single frames; a stream can have many.
struct Zstd<R> {
    inner: R,
    decoder: FrameDecoder,
    inside: bool,
}

impl<R> Zstd<R> {
    fn new(inner: R) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        Zstd { inner, decoder, inside: false }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while !buffer.is_empty() {
            if !self.inside {
                if self.inner.fill_buf()?.is_empty() {
                    return Ok(0);
                }
                self.inside = self.start()?;
                continue;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let one = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.inner, one).map_err(invalid)?;
            }
            match self.decoder.read(buffer)? {
                0 => {
                    let (said, found) = (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
                    if said.is_some() && said != found {
                        return Err(invalid("a frame has another checksum"));
                    }
                    self.inside = false;
                }
                count => return Ok(count),
            }
        }
        Ok(0)
    }
}

impl<R: BufRead> Zstd<R> {
    /// Starts the next frame. `false` if it was one to be skipped.
    fn start(&mut self) -> io::Result<bool> {
        match self.decoder.init(&mut self.inner) {
            Ok(()) => Ok(true),
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                match io::copy(&mut (&mut self.inner).take(length.into()), &mut io::sink())? {
                    skipped if skipped == u64::from(length) => Ok(false),
                    _ => Err(io::ErrorKind::UnexpectedEof.into()),
                }
            }
            Err(err) => Err(invalid(err)),
        }
    }
}

fn invalid(err: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, err.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn packed(program: &str, content: &[u8]) -> Vec<u8> {
        let mut child = Command::new(program)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|err| panic!("{program}: {err}"));
        let mut stdin = child.stdin.take().unwrap();
        let content = content.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&content).unwrap());
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output.stdout
    }

    fn plain(stream: &[u8]) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        unwrapped(stream)?.read_to_end(&mut found).map(|_| found)
    }

    fn content() -> Vec<u8> {
        (0..300_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect()
    }

    #[test]
    fn what_was_packed_comes_out_also_in_several_parts_and_layers() {
        let content = content();
        for program in ["gzip", "xz", "zstd"] {
            let one = packed(program, &content);
            assert!(is_compressed(&one), "{program}");
            assert_eq!(plain(&one).unwrap(), content, "{program}");
            let two = [one.clone(), one].concat();
            assert_eq!(plain(&two).unwrap(), [content.clone(), content.clone()].concat(), "{program} twice");
        }
        let layers = packed("gzip", &packed("xz", &packed("zstd", &content)));
        assert_eq!(plain(&layers).unwrap(), content);
        assert_eq!(plain(&content).unwrap(), content);
        assert_eq!(plain(b"").unwrap(), b"");
    }

    #[test]
    fn a_frame_to_be_skipped_is_skipped() {
        let content = content();
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &packed("zstd", &content)].concat();
        let stream = [packed("zstd", &content), skipped].concat();
        assert_eq!(plain(&stream).unwrap(), [content.clone(), content].concat());
    }

    #[test]
    fn what_is_cut_off_or_changed_is_an_error() {
        for program in ["gzip", "xz", "zstd"] {
            let whole = packed(program, &content());
            for part in [whole.len() / 2, whole.len() - 1] {
                assert!(plain(&whole[..part]).is_err(), "{part} bytes of {program}");
            }
            let mut changed = whole.clone();
            let middle = changed.len() / 2;
            changed[middle] ^= 0x55;
            assert!(plain(&changed).is_err(), "changed {program}");
        }
    }

    #[test]
    fn a_dictionary_larger_than_memory_may_be_is_refused() {
        let script = "printf x | xz -c --lzma2=dict=1536MiB,mode=fast,mf=hc3";
        let stream = Command::new("sh").args(["-c", script]).output().unwrap().stdout;
        assert!(!stream.is_empty());
        let err = plain(&stream).unwrap_err().to_string();
        assert!(err.contains("memory"), "{err}");
    }
}
