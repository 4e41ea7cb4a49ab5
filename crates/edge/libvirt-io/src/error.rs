//! Errors of the transport, of the protocol, and those reported by the daemon.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::xdr::{DecodeError, Decoder};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot connect to libvirt at {}", path.display())]
    Connect { path: PathBuf, source: io::Error },
    #[error("libvirt wants authentication (method {0}), which this client does not offer")]
    Authentication(u32),
    /// The connection closed before or during the call. It is unknown whether the call took effect.
    #[error("the connection to libvirt is closed during {call}")]
    Closed { call: &'static str, source: CloseReason },
    /// The daemon executed the call and reported a failure.
    #[error("libvirt refused {call}")]
    Remote { call: &'static str, source: RemoteError },
    #[error("libvirt's answer to {call} is garbled: {detail}")]
    Garbled { call: &'static str, detail: String },
    #[error("the arguments of {call} are larger than libvirt accepts")]
    TooLarge { call: &'static str },
}

impl Error {
    /// The daemon's error code, if the daemon reported the error.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Error::Remote { source, .. } => Some(source.code),
            _ => None,
        }
    }

    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed { .. })
    }
}

/// Why a connection closed. All waiting callers get the same reason.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CloseReason {
    #[error("libvirt closed it")]
    Peer,
    #[error("{0}")]
    Io(Arc<io::Error>),
    /// The daemon's event loop is stuck: it neither answers nor exits.
    #[error("libvirt did not answer for {seconds} s")]
    KeepaliveTimeout { seconds: u64 },
    #[error("libvirt sent something that is not its protocol: {0}")]
    Protocol(String),
}

/// An error as the daemon reports it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    pub code: ErrorCode,
    /// `virErrorDomain`: the part of libvirt that raised it.
    pub domain: i32,
    pub message: String,
}

/// `virErrorNumber`: the codes that callers act on, and the number of any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    InternalError,
    InvalidArgument,
    OperationFailed,
    XmlError,
    NoDomain,
    OperationInvalid,
    /// The operation exceeded libvirt's timeout, for instance because another one holds the domain.
    OperationTimeout,
    ConfigUnsupported,
    NoSupport,
    ArgumentUnsupported,
    AgentUnresponsive,
    Other(i32),
}

impl From<i32> for ErrorCode {
    fn from(code: i32) -> Self {
        match code {
            1 => ErrorCode::InternalError,
            3 => ErrorCode::NoSupport,
            8 => ErrorCode::InvalidArgument,
            9 => ErrorCode::OperationFailed,
            27 => ErrorCode::XmlError,
            42 => ErrorCode::NoDomain,
            55 => ErrorCode::OperationInvalid,
            67 => ErrorCode::ConfigUnsupported,
            68 => ErrorCode::OperationTimeout,
            74 => ErrorCode::ArgumentUnsupported,
            86 => ErrorCode::AgentUnresponsive,
            other => ErrorCode::Other(other),
        }
    }
}

impl RemoteError {
    /// Reads `virNetMessageError`. Only its first three fields are used; the others are just parsed.
    pub(crate) fn decode(body: &[u8]) -> Result<RemoteError, DecodeError> {
        let mut reader = Decoder::new(body);
        let code = ErrorCode::from(reader.i32()?);
        let domain = reader.i32()?;
        let message = reader.optional(Decoder::string)?;
        let _level = reader.i32()?;
        reader.optional(Decoder::domain)?;
        for _ in 0..3 {
            reader.optional(Decoder::string)?;
        }
        let (_int1, _int2) = (reader.i32()?, reader.i32()?);
        reader.optional(|network| {
            network.string()?;
            // A UUID is four words.
            (0..4).try_for_each(|_| network.u32().map(drop))
        })?;
        reader.finish()?;
        let message = message.unwrap_or_else(|| "libvirt gave no message".to_owned());
        Ok(RemoteError { code, domain, message })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::xdr::Encoder;

    #[test]
    fn a_missing_domain_is_told_apart_by_its_code() {
        let body = Encoder::default()
            .i32(42)
            .i32(10)
            .optional_string(Some("Domain not found: no domain with matching name 'x'"))
            .i32(2)
            .u32(0)
            .optional_string(Some("x"))
            .u32(0)
            .u32(0)
            .i32(-1)
            .i32(-1)
            .u32(0)
            .finish();
        let error = RemoteError::decode(&body).unwrap();
        assert_eq!((error.code, error.domain), (ErrorCode::NoDomain, 10));
        assert!(error.message.contains("no domain with matching name"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_error_report_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = RemoteError::decode(&bytes);
        }
    }
}
