//! Where the servers differ, and why that is right or has to be borne. A row that no answer hits is an error.

use super::answer::Difference;

/// One known difference.
#[derive(Debug)]
pub(super) struct Known {
    /// The title of the request, or `*` for any.
    title: &'static str,
    /// The place; a `*` stands for any part of it.
    place: &'static str,
    /// Why.
    #[allow(dead_code)] // for whoever reads the table, and for the message that names a row
    because: &'static str,
}

const fn known(title: &'static str, place: &'static str, because: &'static str) -> Known {
    Known { title, place, because }
}

pub(super) const DIFFERENCES: &[Known] = &[
    // Things the embedded server does not have.
    known("*", "*/metadata/managedFields", "they serve server-side apply, which there is not"),
    known("a server-side apply", "code", "there is no server-side apply"),
    known("*", "*/spec/preemptionPolicy", "no Pod preempts others"),
    known("*", "*/spec/priority", "no Pod preempts others"),
    known("*", "*/resources/*/storageVersionHash", "there is one server, so stored versions are not migrated"),
    // Things this kube-apiserver does not have.
    known("*", "*/spec/serviceAccount*", "it runs without the plugin that fills it in"),
    known("*", "*/spec/template/*", "admission is part of the embedded server, where it fills in defaults"),
    // Freedoms that clients do not notice.
    known("*", "*/items/*/apiVersion", "an item of a list says what it is, also where its list says it"),
    known("*", "*/items/*/kind", "an item of a list says what it is, also where its list says it"),
    known("*", "*/requests/cpu", "quantities are kept as they were written"),
    known("*", "*/status/conditions/*", "new items of lists that merge by key come last, and not first"),
    known("a strategic merge of nonsense", "code", "a patch that names no container is a mistake of the client"),
    known("the next page", "/metadata/continue", "the last page of what was selected says that it is the last"),
    known("a page of a list long gone", "/metadata/continue", "such a list begins anew"),
    known("may not be held by more now", "/details/causes", "one mistake is told once"),
    known("a custom object without type information", "code", "a body may leave out what its path says"),
];

impl Known {
    pub(super) fn covers(&self, title: &str, difference: &Difference) -> bool {
        matches(self.title, title) && matches(self.place, &difference.place)
    }
}

/// Whether a text fits a pattern in which `*` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => {
            let Some(rest) = text.strip_prefix(before) else { return false };
            (0..=rest.len()).any(|start| rest.is_char_boundary(start) && matches(after, &rest[start..]))
        }
    }
}
