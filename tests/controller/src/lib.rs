//! Tests of the controllers as one program, against the embedded API server and against a real kube-apiserver.
//!
//! `tests/scenarios` tells what users do and what they see; each is run on both servers. `tests/cluster` has the two
//! servers and what stands in for nodes.
