//! A blocking rtnetlink socket: sends a request and receives all parts of its response.

use std::io;

use rtnetlink::packet_core::{ErrorMessage, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{Socket, SocketAddr};

use crate::error::KernelError;

/// Flags of an error message (`linux/netlink.h`).
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSGERR_ATTR_MSG: u16 = 1;
/// Length of the request's header, repeated in every error message.
const HEADER_LEN: usize = 16;

pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the calling thread's netns; it stays there.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_cap_ack(true)?;
        socket.set_ext_ack(true)?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Sends a modifying request; `flags` are added to REQUEST and ACK.
    pub(crate) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), KernelError> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(drop)
    }

    /// Requests one object.
    pub(crate) fn get(&mut self, message: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, KernelError> {
        self.exchange(message, NLM_F_REQUEST | NLM_F_ACK)
    }

    /// Requests all objects of a kind. The kernel marks a dump during which the table changed; it is then repeated.
    pub(crate) fn dump(&mut self, message: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, KernelError> {
        for _ in 0..10 {
            match self.exchange(message.clone(), NLM_F_REQUEST | NLM_F_DUMP) {
                Err(err) if err.is(rustix::io::Errno::INTR) => {}
                answer => return answer,
            }
        }
        Err(io::Error::other("the table kept changing while it was read").into())
    }

    fn exchange(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<Vec<RouteNetlinkMessage>, KernelError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answer = Answer::default();
        while !answer.complete {
            let datagram = self.receive()?;
            answer.read(&datagram, self.sequence)?;
        }
        match answer.error {
            Some(err) => Err(err),
            None if answer.interrupted => Err(io::Error::from(rustix::io::Errno::INTR).into()),
            None => Ok(answer.objects),
        }
    }

    fn receive(&self) -> io::Result<Vec<u8>> {
        loop {
            match self.socket.recv_from_full() {
                Err(err) if err.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(|(bytes, _)| bytes),
            }
        }
    }
}

#[derive(Default)]
struct Answer {
    objects: Vec<RouteNetlinkMessage>,
    complete: bool,
    /// The kernel's NLM_F_DUMP_INTR: the parts are inconsistent.
    interrupted: bool,
    error: Option<KernelError>,
}

impl Answer {
    const NLM_F_DUMP_INTR: u16 = 0x10;

    /// Parses the messages of one datagram. Responses to an earlier request, left over when its caller met an error,
    /// are skipped by their sequence number.
    fn read(&mut self, mut bytes: &[u8], sequence: u32) -> io::Result<()> {
        while bytes.len() >= HEADER_LEN {
            let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(bytes).map_err(io::Error::other)?;
            let length = (message.header.length as usize).next_multiple_of(4).min(bytes.len());
            if length < HEADER_LEN {
                return Err(io::Error::other("the kernel sent a netlink message without a header"));
            }
            bytes = &bytes[length..];
            if message.header.sequence_number != sequence {
                continue;
            }
            let (header, payload) = message.into_parts();
            self.interrupted |= header.flags & Self::NLM_F_DUMP_INTR != 0;
            match payload {
                NetlinkPayload::InnerMessage(object) => self.objects.push(object),
                NetlinkPayload::Error(err) => {
                    self.complete = true;
                    if err.code.is_some() {
                        self.error = Some(kernel_error(&err, header.flags));
                    }
                }
                NetlinkPayload::Done(done) => {
                    self.complete = true;
                    if done.code != 0 {
                        self.error = Some(io::Error::from_raw_os_error(done.code.abs()).into());
                    }
                }
                NetlinkPayload::Overrun(_) => return Err(io::Error::other("netlink answers were lost")),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The errno, with the message of the extended ACK if there is one.
fn kernel_error(err: &ErrorMessage, flags: u16) -> KernelError {
    KernelError { io: err.to_io(), message: extended_ack(&err.header, flags) }
}

fn extended_ack(payload: &[u8], flags: u16) -> Option<String> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request_len = u32::from_ne_bytes(payload.get(..4)?.try_into().ok()?) as usize;
    let skip = if flags & NLM_F_CAPPED != 0 { HEADER_LEN } else { request_len.next_multiple_of(4) };
    let mut rest = payload.get(skip..)?;
    loop {
        let len = u16::from_ne_bytes(rest.get(..2)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(rest.get(2..4)?.try_into().ok()?);
        let value = rest.get(4..len)?;
        if kind == NLMSGERR_ATTR_MSG {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return Some(String::from_utf8_lossy(text).into_owned());
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}
