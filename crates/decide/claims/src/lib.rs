//! Claims of an embedded cluster: which volume a claim is bound to, when one is provisioned, grown, released or deleted, and
//! when a VolumeSnapshot is taken.
