//! Errors of requests, and how they are reported to the client.

use std::io;

use launcher_contract::types::{Refusal, RefusalCode};
pub(crate) use machinery::error::chain;

use crate::disks;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("this launcher serves the VMI with UID {mine}, not {asked}")]
    WrongVmi { mine: String, asked: String },
    #[error("there is no domain")]
    NoDomain,
    #[error("{0}")]
    WrongState(String),
    #[error("cannot turn the VMI into a domain")]
    Convert(#[source] domain::Error),
    #[error("cannot prepare the network")]
    Network(#[source] netplan::PlanError),
    #[error("link {0} is not there yet: virt-handler has not prepared the Pod's network")]
    LinkMissing(String),
    #[error("cannot {action}")]
    System { action: String, source: io::Error },
    #[error("cannot prepare the disks")]
    Disks(#[source] disks::Error),
    #[error("cannot grow disk {disk} with its claim")]
    Grow { disk: String, source: libvirt_io::Error },
    #[error("libvirt is not available")]
    LibvirtDown,
    #[error("cannot {action}")]
    Libvirt { action: &'static str, source: libvirt_io::Error },
    /// `waits`: nothing but the guest is waited for.
    #[error("the guest does not have the volumes of its VMI yet: {detail}")]
    Plug { detail: String, waits: bool },
    #[error("the guest agent refused: {0}")]
    Agent(String),
}

impl From<transfer::Refused> for Error {
    fn from(why: transfer::Refused) -> Error {
        match why {
            transfer::Refused::NoDomain => Error::NoDomain,
            transfer::Refused::WrongState(detail) => Error::WrongState(detail),
        }
    }
}

impl Error {
    fn code(&self) -> RefusalCode {
        use libvirt_io::ErrorCode;
        match self {
            Error::WrongVmi { .. } => RefusalCode::WrongVmi,
            Error::NoDomain => RefusalCode::NoDomain,
            Error::WrongState(_) => RefusalCode::WrongState,
            Error::Convert(domain::Error::MissingFact { .. }) | Error::LinkMissing(_) => RefusalCode::NotReady,
            Error::Convert(_) | Error::Network(_) => RefusalCode::Impossible,
            Error::Disks(error) if error.is_permanent() => RefusalCode::Impossible,
            Error::Disks(_) | Error::System { .. } => RefusalCode::Internal,
            Error::Grow { .. } => RefusalCode::Libvirt,
            Error::LibvirtDown => RefusalCode::NotReady,
            Error::Libvirt { source, .. } => match source.code() {
                Some(ErrorCode::NoDomain) => RefusalCode::NoDomain,
                Some(ErrorCode::AgentUnresponsive) => RefusalCode::Agent,
                Some(ErrorCode::ConfigUnsupported | ErrorCode::XmlError) => RefusalCode::Impossible,
                Some(ErrorCode::OperationInvalid) => RefusalCode::WrongState,
                _ => RefusalCode::Libvirt,
            },
            Error::Plug { waits: true, .. } => RefusalCode::NotReady,
            Error::Plug { waits: false, .. } => RefusalCode::Libvirt,
            Error::Agent(_) => RefusalCode::Agent,
        }
    }

    pub(crate) fn refusal(&self) -> Refusal {
        Refusal { code: self.code(), message: chain(self) }
    }
}
