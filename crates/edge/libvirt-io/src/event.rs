//! Events the daemon sends after registration.

use crate::proc::{
    EVENT_CALLBACK_AGENT_LIFECYCLE, EVENT_CALLBACK_DEVICE_REMOVAL_FAILED, EVENT_CALLBACK_DEVICE_REMOVED,
    EVENT_CALLBACK_LIFECYCLE,
};
use crate::types::Domain;
use crate::xdr::{DecodeError, Decoder};

/// A domain event. Events are hints: receivers re-read the state instead of accumulating events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Lifecycle {
        domain: Domain,
        event: Lifecycle,
        /// The detail code; its meaning depends on `event`.
        detail: i32,
    },
    AgentLifecycle {
        domain: Domain,
        state: AgentState,
    },
    /// The guest has released a device.
    DeviceRemoved {
        domain: Domain,
        alias: String,
    },
    /// The guest refused to release a device.
    DeviceRemovalFailed {
        domain: Domain,
        alias: String,
    },
    /// The receiver was too slow and has missed some events.
    Missed,
}

/// `virDomainEventType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Defined,
    Undefined,
    Started,
    Suspended,
    Resumed,
    Stopped,
    Shutdown,
    PmSuspended,
    Crashed,
    Other(i32),
}

impl From<i32> for Lifecycle {
    fn from(code: i32) -> Self {
        match code {
            0 => Lifecycle::Defined,
            1 => Lifecycle::Undefined,
            2 => Lifecycle::Started,
            3 => Lifecycle::Suspended,
            4 => Lifecycle::Resumed,
            5 => Lifecycle::Stopped,
            6 => Lifecycle::Shutdown,
            7 => Lifecycle::PmSuspended,
            8 => Lifecycle::Crashed,
            other => Lifecycle::Other(other),
        }
    }
}

/// Whether the agent's channel is open in the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentState {
    Connected,
    Disconnected,
}

impl Event {
    /// `None` for a message this client did not register for.
    pub(crate) fn decode(procedure: u32, body: &[u8]) -> Result<Option<Event>, DecodeError> {
        let mut reader = Decoder::new(body);
        let event = match procedure {
            EVENT_CALLBACK_LIFECYCLE => {
                let _callback = reader.i32()?;
                let domain = reader.domain()?;
                Event::Lifecycle { domain, event: Lifecycle::from(reader.i32()?), detail: reader.i32()? }
            }
            EVENT_CALLBACK_AGENT_LIFECYCLE => {
                let _callback = reader.i32()?;
                let domain = reader.domain()?;
                let state = match reader.i32()? {
                    1 => AgentState::Connected,
                    _ => AgentState::Disconnected,
                };
                let _reason = reader.i32()?;
                Event::AgentLifecycle { domain, state }
            }
            EVENT_CALLBACK_DEVICE_REMOVED => {
                let _callback = reader.i32()?;
                Event::DeviceRemoved { domain: reader.domain()?, alias: reader.string()? }
            }
            EVENT_CALLBACK_DEVICE_REMOVAL_FAILED => {
                let _callback = reader.i32()?;
                Event::DeviceRemovalFailed { domain: reader.domain()?, alias: reader.string()? }
            }
            _ => return Ok(None),
        };
        reader.finish()?;
        Ok(Some(event))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::xdr::Encoder;

    #[test]
    fn a_lifecycle_message_names_the_domain_and_what_happened() {
        let domain = Domain { name: "default_vm".into(), uuid: Uuid::from_u128(5), id: Some(1) };
        let body = Encoder::default().i32(0).domain(&domain).i32(5).i32(1).finish();
        let event = Event::decode(EVENT_CALLBACK_LIFECYCLE, &body).unwrap();
        assert_eq!(event, Some(Event::Lifecycle { domain, event: Lifecycle::Stopped, detail: 1 }));
    }

    #[test]
    fn a_removed_device_is_named() {
        let domain = Domain { name: "default_vm".into(), uuid: Uuid::from_u128(5), id: Some(1) };
        let body = Encoder::default().i32(2).domain(&domain).string("ua-data").finish();
        let (alias, named) = ("ua-data".to_owned(), domain.clone());
        let removed = Event::decode(EVENT_CALLBACK_DEVICE_REMOVED, &body).unwrap();
        assert_eq!(removed, Some(Event::DeviceRemoved { domain, alias: alias.clone() }));
        let refused = Event::decode(EVENT_CALLBACK_DEVICE_REMOVAL_FAILED, &body).unwrap();
        assert_eq!(refused, Some(Event::DeviceRemovalFailed { domain: named, alias }));
    }

    #[test]
    fn messages_nobody_asked_for_are_left_alone() {
        assert_eq!(Event::decode(107, b"whatever"), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_event_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            for procedure in [
                EVENT_CALLBACK_LIFECYCLE,
                EVENT_CALLBACK_AGENT_LIFECYCLE,
                EVENT_CALLBACK_DEVICE_REMOVED,
                EVENT_CALLBACK_DEVICE_REMOVAL_FAILED,
            ] {
                let _ = Event::decode(procedure, &bytes);
            }
        }
    }
}
