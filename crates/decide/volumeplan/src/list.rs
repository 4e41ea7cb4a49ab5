//! Lists in pages.

use crate::id::PoolId;
use crate::refusal::{Code, Refusal, Result, quote};

/// Entries of one answer, so that it stays below the limit of a gRPC message (4 MiB).
pub const PAGE_MAX: usize = 5000;

/// A part of a list, and the token that asks for the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<Id> {
    pub ids: Vec<Id>,
    pub next: Option<String>,
}

/// The page after `token`, of sorted IDs. The token is the last ID of the page before: what is added or removed between
/// two pages makes no other entry appear twice or get lost.
pub fn page<Id: PoolId>(sorted: &[Id], max_entries: i32, token: &str) -> Result<Page<Id>> {
    let most = match usize::try_from(max_entries) {
        Err(_) => return Err(Refusal::invalid(format!("max_entries is negative ({max_entries})"))),
        Ok(0) => PAGE_MAX,
        Ok(most) => most.min(PAGE_MAX),
    };
    let start = match token {
        "" => 0,
        token => {
            let last = Id::parse(token).ok_or_else(|| {
                Refusal::new(
                    Code::Aborted,
                    format!("{} is no token of this list; start again without one", quote(token)),
                )
            })?;
            sorted.partition_point(|id| *id <= last)
        }
    };
    let rest = &sorted[start..];
    let ids: Vec<Id> = rest.iter().take(most).cloned().collect();
    let next = if rest.len() > most { ids.last().map(|id| id.as_str().to_owned()) } else { None };
    Ok(Page { ids, next })
}
