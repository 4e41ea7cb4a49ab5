//! Connections of the kubelet's plugin watcher, whose requests name the socket's path as their authority.
//!
//! grpc-go escapes the path (`%2Fvar%2Flib%2F…`). No host has such a name, so the HTTP/2 server here would reset each
//! stream with PROTOCOL_ERROR, and the kubelet would never learn of the driver. The authority means nothing on a Unix
//! socket: it is replaced on the way in. The kubelet's other connections name `localhost`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

const PREFACE: usize = 24;
const FRAME_HEADER: usize = 9;
/// The largest frame that a server has to take. What is larger is passed on as it is, for the server to refuse.
const FRAME_MAX: usize = 1 << 14;
const HEADERS: u8 = 1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// The name `:authority` in HPACK's static table.
const AUTHORITY: usize = 1;
/// A string of HPACK, not compressed.
const LOCALHOST: &[u8] = b"\x09localhost";

/// A connection whose requests have another authority.
pub(super) struct Renamed {
    inner: UnixStream,
    frames: Frames,
    /// What has not been read yet, from `at` on.
    out: Vec<u8>,
    at: usize,
}

impl Renamed {
    pub(super) fn new(inner: UnixStream) -> Self {
        Self { inner, frames: Frames::default(), out: Vec::new(), at: 0 }
    }
}

impl AsyncRead for Renamed {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.at == this.out.len() {
            let mut space = [0; 4096];
            let mut read = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
            (this.out, this.at) = (Vec::new(), 0);
            match read.filled() {
                // A frame that was cut off goes as it is; the server finds that it ends too early.
                [] if this.frames.pending.is_empty() => return Poll::Ready(Ok(())),
                [] => this.out = std::mem::take(&mut this.frames.pending),
                bytes => this.frames.push(bytes, &mut this.out),
            }
        }
        let rest = &this.out[this.at..];
        let now = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..now]);
        this.at += now;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Renamed {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

impl Connected for Renamed {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

/// Frames of HTTP/2, put together from what arrives.
#[derive(Debug, Default)]
struct Frames {
    pending: Vec<u8>,
    greeted: bool,
    /// Something that is not understood: all that follows is passed on as it is.
    given_up: bool,
}

impl Frames {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.pending.extend_from_slice(bytes);
        if !self.greeted && self.pending.len() >= PREFACE {
            out.extend(self.pending.drain(..PREFACE));
            self.greeted = true;
        }
        while self.greeted && !self.given_up && self.pending.len() >= FRAME_HEADER {
            let length =
                usize::from(self.pending[0]) << 16 | usize::from(self.pending[1]) << 8 | usize::from(self.pending[2]);
            self.given_up = length > FRAME_MAX;
            if self.given_up || self.pending.len() < FRAME_HEADER + length {
                break;
            }
            let frame: Vec<u8> = self.pending.drain(..FRAME_HEADER + length).collect();
            out.extend(renamed(&frame).unwrap_or(frame));
        }
        if self.given_up {
            out.append(&mut self.pending);
        }
    }
}

/// A frame with another authority; `None` if it stays as it is.
fn renamed(frame: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = frame.split_at_checked(FRAME_HEADER)?;
    let (kind, flags) = (header[3], header[4]);
    if kind != HEADERS || flags & END_HEADERS == 0 {
        return None;
    }
    let padding = if flags & PADDED == 0 { 0 } else { usize::from(*payload.first()?) };
    let start = usize::from(flags & PADDED != 0) + if flags & PRIORITY == 0 { 0 } else { 5 };
    let block = payload.get(start..payload.len().checked_sub(padding)?)?;
    let (from, to) = authority(block)?;
    let payload =
        [&payload[..start], &block[..from], LOCALHOST, &block[to..], &payload[payload.len() - padding..]].concat();
    let length = u32::try_from(payload.len()).ok()?.to_be_bytes();
    Some([&length[1..], &header[3..], &payload].concat())
}

/// Where the value of `:authority` is written out in a block of HPACK.
fn authority(block: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    while at < block.len() {
        match block[at] {
            first if first & 0x80 != 0 => at = integer(block, at, 7)?.1,
            first if first & 0xe0 == 0x20 => at = integer(block, at, 5)?.1,
            first => {
                let (name, next) = integer(block, at, if first & 0x40 != 0 { 6 } else { 4 })?;
                let value = if name == 0 { after_string(block, next)? } else { next };
                at = after_string(block, value)?;
                if name == AUTHORITY {
                    return Some((value, at));
                }
            }
        }
    }
    None
}

fn after_string(block: &[u8], at: usize) -> Option<usize> {
    let (length, start) = integer(block, at, 7)?;
    start.checked_add(length).filter(|end| *end <= block.len())
}

/// An integer whose first byte has so many bits for it, and where it ends.
fn integer(block: &[u8], at: usize, bits: u32) -> Option<(usize, usize)> {
    let most = (1_usize << bits) - 1;
    let first = usize::from(*block.get(at)?) & most;
    if first < most {
        return Some((first, at + 1));
    }
    let (mut value, mut shift) = (first, 0);
    for (offset, byte) in block.get(at + 1..)?.iter().take(4).enumerate() {
        value += usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            return Some((value, at + 2 + offset));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 1], payload].concat()
    }

    /// `:method POST`, `:path /a`, `:authority` as given, `te trailers`.
    fn block(authority: &[u8]) -> Vec<u8> {
        [b"\x83\x44\x02/a\x41", authority, b"\x40\x02te\x08trailers"].concat()
    }

    #[test]
    fn only_the_authority_is_replaced_whatever_the_pieces_are() {
        let long = [&[0x7f, 200 - 127][..], &[b'%'; 200]].concat();
        for old in [&b"\x06%2Fvar"[..], b"\x83\x01\x02\x03", &long] {
            let sent = [
                &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
                &frame(4, 0, b""),
                &frame(HEADERS, END_HEADERS, &block(old)),
                &frame(
                    HEADERS,
                    END_HEADERS | PADDED | PRIORITY,
                    &[&[2, 0, 0, 0, 0, 9][..], &block(old), &[0, 0]].concat(),
                ),
                &frame(0, 1, b"\0\0\0\0\0"),
            ]
            .concat();
            let expected = [
                &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
                &frame(4, 0, b""),
                &frame(HEADERS, END_HEADERS, &block(LOCALHOST)),
                &frame(
                    HEADERS,
                    END_HEADERS | PADDED | PRIORITY,
                    &[&[2, 0, 0, 0, 0, 9][..], &block(LOCALHOST), &[0, 0]].concat(),
                ),
                &frame(0, 1, b"\0\0\0\0\0"),
            ]
            .concat();
            for piece in [1, 7, 30, sent.len()] {
                let (mut frames, mut out) = (Frames::default(), Vec::new());
                sent.chunks(piece).for_each(|bytes| frames.push(bytes, &mut out));
                assert_eq!(out, expected, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_is_not_understood_is_passed_on() {
        for odd in [&b"\x41"[..], b"\x41\x7f\xff\xff\xff\xff\xff", b"\x40\x05ab", b"\x7f\xff\xff\xff\xff\xff", b""] {
            assert_eq!(renamed(&frame(HEADERS, END_HEADERS, odd)), None, "{odd:?}");
        }
        assert_eq!(renamed(&frame(HEADERS, 0, &block(b"\x01a"))), None, "continued in another frame");
        assert_eq!(renamed(&frame(HEADERS, END_HEADERS | PADDED, b"\x09")), None, "more padding than there is");
        let (mut frames, mut out) = (Frames::default(), Vec::new());
        let sent = [&[b'x'; PREFACE][..], &[0xff; 40]].concat();
        frames.push(&sent, &mut out);
        assert_eq!(out, sent);
    }
}
