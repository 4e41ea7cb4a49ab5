//! Histories of an installation, pass by pass: what is decided is carried out on a plain map of objects, and the test
//! plays Kubernetes.

mod cluster;
mod installing;
mod leaving;
mod updating;
