//! Framing: a length that includes itself, a header of six words, and the body.

use bytes::{Buf, Bytes, BytesMut};

use crate::proc::VERSION;
use crate::xdr::{DecodeError, Decoder};

const LENGTH: usize = 4;
const HEADER: usize = 24;
/// Domain XML and agent replies are at most a 4 MiB string; twice that is more than any reply we ask for.
const FRAME_MAX: usize = 8 << 20;

/// The message type (`virNetMessageType`). Streams and file descriptors are never requested, so never accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Reply,
    Event,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) program: u32,
    pub(crate) procedure: u32,
    pub(crate) kind: Kind,
    pub(crate) serial: u32,
    pub(crate) status: Status,
    pub(crate) body: Bytes,
}

/// The message exceeds the protocol's limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl Frame {
    pub(crate) fn encode(&self) -> Result<Bytes, TooLarge> {
        let length = LENGTH + HEADER + self.body.len();
        if length > FRAME_MAX {
            return Err(TooLarge);
        }
        let kind = match self.kind {
            Kind::Call => 0u32,
            Kind::Reply => 1,
            Kind::Event => 2,
        };
        let status = match self.status {
            Status::Ok => 0u32,
            Status::Error => 1,
        };
        let mut out = BytesMut::with_capacity(length);
        let length = u32::try_from(length).expect("FRAME_MAX fits 32 bits");
        for word in [length, self.program, VERSION, self.procedure, kind, self.serial, status] {
            out.extend_from_slice(&word.to_be_bytes());
        }
        out.extend_from_slice(&self.body);
        Ok(out.freeze())
    }

    /// Takes one frame from the front of `buffer`; `None` if it is not complete yet.
    pub(crate) fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, DecodeError> {
        let Some(&prefix) = buffer.first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_be_bytes(prefix) as usize;
        if length > FRAME_MAX {
            return Err(DecodeError::TooLong { what: "a frame", length, limit: FRAME_MAX });
        }
        if length < LENGTH + HEADER {
            return Err(DecodeError::Truncated { what: "a frame's header", missing: LENGTH + HEADER - length });
        }
        if buffer.len() < length {
            return Ok(None);
        }
        let mut frame = buffer.split_to(length).freeze();
        frame.advance(LENGTH);
        let body = frame.split_off(HEADER);
        let mut header = Decoder::new(&frame);
        let (program, version, procedure) = (header.u32()?, header.u32()?, header.u32()?);
        if version != VERSION {
            return Err(DecodeError::BadValue { what: "the program version", value: version });
        }
        let kind = match header.u32()? {
            0 => Kind::Call,
            1 => Kind::Reply,
            2 => Kind::Event,
            value => return Err(DecodeError::BadValue { what: "the message type", value }),
        };
        let serial = header.u32()?;
        let status = match header.u32()? {
            0 => Status::Ok,
            1 => Status::Error,
            value => return Err(DecodeError::BadValue { what: "the message status", value }),
        };
        Ok(Some(Frame { program, procedure, kind, serial, status, body }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(body: Vec<u8>) -> Frame {
        Frame { program: 7, procedure: 8, kind: Kind::Reply, serial: 9, status: Status::Error, body: Bytes::from(body) }
    }

    #[test]
    fn a_frame_in_two_pieces_waits_for_the_second() {
        let bytes = frame(vec![1, 2, 3, 4]).encode().unwrap();
        for cut in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..cut]);
            assert_eq!(Frame::decode(&mut buffer), Ok(None), "after {cut} bytes");
            buffer.extend_from_slice(&bytes[cut..]);
            assert_eq!(Frame::decode(&mut buffer), Ok(Some(frame(vec![1, 2, 3, 4]))));
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn impossible_lengths_are_refused() {
        for length in [0u32, 27, FRAME_MAX as u32 + 1, u32::MAX] {
            let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
            assert!(Frame::decode(&mut buffer).is_err(), "length {length}");
        }
    }

    #[test]
    fn streams_and_descriptors_are_refused() {
        for kind in [3u8, 4, 5] {
            let mut bytes = BytesMut::from(&frame(vec![]).encode().unwrap()[..]);
            bytes[19] = kind;
            assert!(matches!(Frame::decode(&mut bytes), Err(DecodeError::BadValue { what: "the message type", .. })));
        }
    }

    #[test]
    fn a_body_over_the_limit_is_not_sent() {
        assert_eq!(frame(vec![0; FRAME_MAX]).encode(), Err(TooLarge));
    }

    proptest! {
        #[test]
        fn any_bytes_are_framed_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = Frame::decode(&mut buffer) {}
        }

        #[test]
        fn frames_back_to_back_come_out_in_order(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5)) {
            let mut buffer = BytesMut::new();
            for body in &bodies {
                buffer.extend_from_slice(&frame(body.clone()).encode().unwrap());
            }
            for body in bodies {
                prop_assert_eq!(Frame::decode(&mut buffer), Ok(Some(frame(body))));
            }
            prop_assert_eq!(Frame::decode(&mut buffer), Ok(None));
        }
    }
}
