//! Refusals, with the messages and codes that Kubernetes clients expect.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use machinery::status::{self, About};

/// The kind an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A virtual machine.
    VirtualMachine,
    /// A virtual machine instance.
    VirtualMachineInstance,
    /// A claim that a request names.
    PersistentVolumeClaim,
}

impl Kind {
    /// KubeVirt uses the singular in its answers.
    fn about(self, name: &str) -> About<'_> {
        let (group, singular) = match self {
            Kind::VirtualMachine => (api::v1::GROUP, "virtualmachine"),
            Kind::VirtualMachineInstance => (api::v1::GROUP, "virtualmachineinstance"),
            Kind::PersistentVolumeClaim => ("", "persistentvolumeclaim"),
        };
        About::new(group, singular, name)
    }
}

/// An error answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", self.message())]
pub struct Refusal(Box<Status>);

impl Refusal {
    /// The request itself is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Refusal(Box::new(status::bad_request(message)))
    }

    /// An internal failure that the client cannot fix.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Refusal(Box::new(status::internal(&why.to_string())))
    }

    /// This build does not support the request.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        let not_implemented =
            Status { code: Some(501), reason: Some("NotImplemented".to_owned()), ..status::bad_request(message) };
        Refusal(Box::new(not_implemented))
    }

    /// The API server's own refusal of what was to be written.
    pub fn passed_on(status: Status) -> Self {
        Refusal(Box::new(status))
    }

    /// The path is not served here.
    pub fn no_such_path() -> Self {
        Refusal(Box::new(status::unknown_path()))
    }

    /// The object does not exist.
    pub fn not_found(kind: Kind, name: &str) -> Self {
        Refusal(Box::new(status::not_found(kind.about(name))))
    }

    /// The object's state does not allow the request.
    pub fn conflict(kind: Kind, name: &str, why: impl std::fmt::Display) -> Self {
        Refusal(Box::new(status::conflict(kind.about(name), &why.to_string())))
    }

    /// The object's configuration permanently rules out the request.
    pub fn forbidden(kind: Kind, name: &str, why: impl std::fmt::Display) -> Self {
        Refusal(Box::new(status::forbidden(kind.about(name), &why.to_string())))
    }

    /// The same refusal with a prefix to its message.
    pub fn because(mut self, why: impl std::fmt::Display) -> Self {
        self.0.message = Some(format!("{why}: {}", self.message()));
        self
    }

    /// The HTTP status code.
    pub fn code(&self) -> u16 {
        status::code(&self.0)
    }

    /// The message.
    pub fn message(&self) -> &str {
        self.0.message.as_deref().unwrap_or_default()
    }

    /// The response body.
    pub fn status(&self) -> &Status {
        &self.0
    }
}
