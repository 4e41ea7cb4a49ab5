//! The volume controller of an embedded cluster: binds claims, provisions their volumes with the volume engine, grows and
//! removes them, and takes snapshots.
