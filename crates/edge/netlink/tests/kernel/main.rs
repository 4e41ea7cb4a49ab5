//! The crate against the real kernel, in network namespaces of the tests' own.

mod masquerade;
mod netns;
