//! The crate against the real kernel, in network namespaces of the tests' own.

mod bridge;
mod masquerade;
mod netns;
mod spaces;
