//! The effective cluster configuration.
