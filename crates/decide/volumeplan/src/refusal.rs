//! Why a request is not carried out.

/// The codes of CSI that a decision can answer with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    InvalidArgument,
    NotFound,
    AlreadyExists,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
}

/// A refused request, with a sentence for whoever made it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

pub type Result<T, E = Refusal> = std::result::Result<T, E>;

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }
}

/// What a message quotes of a request: short, and without characters that would garble a terminal.
pub(crate) fn quote(text: &str) -> String {
    const MOST: usize = 80;
    let shown: String = text.chars().take(MOST).collect();
    let more = if shown.len() < text.len() { "…" } else { "" };
    format!("{shown:?}{more}")
}
