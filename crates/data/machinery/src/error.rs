//! Errors and what caused them.

use std::error::Error;

/// An error and its causes, each the source of the one before.
pub fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// An error with all its causes on one line.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in error.source().into_iter().flat_map(causes) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn a_chain_names_every_cause_once() {
        let error = Layer("cannot start", Some(Box::new(Layer("no disk", Some(Box::new(Layer("ENOENT", None)))))));
        assert_eq!(chain(&error), "cannot start: no disk: ENOENT");
        assert_eq!(chain(&Layer("alone", None)), "alone");
        assert_eq!(causes(&error).last().unwrap().to_string(), "ENOENT");
    }
}
