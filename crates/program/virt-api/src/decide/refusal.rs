//! Refusals, in the words and codes Kubernetes clients expect.

use serde_json::{Value, json};

/// The kind an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A virtual machine.
    VirtualMachine,
    /// A virtual machine instance.
    VirtualMachineInstance,
}

impl Kind {
    fn singular(self) -> &'static str {
        match self {
            Kind::VirtualMachine => "virtualmachine",
            Kind::VirtualMachineInstance => "virtualmachineinstance",
        }
    }
}

/// An error answer: HTTP code, machine-readable reason and a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// One word, as in a Kubernetes `Status`.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
    about: Option<(Kind, String)>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Refusal { code, reason, message: message.into(), about: None }
    }

    /// The request itself is wrong.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Refusal::new(400, "BadRequest", message)
    }

    /// Something failed that is not the client's to mend.
    pub fn internal(message: impl std::fmt::Display) -> Self {
        Refusal::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// The build cannot do this.
    pub fn not_implemented(message: impl Into<String>) -> Self {
        Refusal::new(501, "NotImplemented", message)
    }

    /// The path names nothing that is served here.
    pub fn no_such_path() -> Self {
        Refusal::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// The object does not exist.
    pub fn not_found(kind: Kind, name: &str) -> Self {
        let message = format!("{}.kubevirt.io {name:?} not found", kind.singular());
        Refusal::new(404, "NotFound", message).about(kind, name)
    }

    /// The object's state does not allow the request.
    pub fn conflict(kind: Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {}.kubevirt.io {name:?}: {why}", kind.singular());
        Refusal::new(409, "Conflict", message).about(kind, name)
    }

    /// The object is set up in a way that rules the request out for good.
    pub fn forbidden(kind: Kind, name: &str, why: impl std::fmt::Display) -> Self {
        let message = format!("{}.kubevirt.io {name:?} is forbidden: {why}", kind.singular());
        Refusal::new(403, "Forbidden", message).about(kind, name)
    }

    fn about(mut self, kind: Kind, name: &str) -> Self {
        self.about = Some((kind, name.to_owned()));
        self
    }

    /// The answer's body: a Kubernetes `Status`.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some((kind, name)) = &self.about {
            status["details"] = json!({ "name": name, "group": api::v1::GROUP, "kind": kind.singular() });
        }
        status
    }
}
