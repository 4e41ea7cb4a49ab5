//! DataVolumes of an embedded cluster: what becomes of each, its phase, progress and conditions, and what is asked of the
//! process that fills its claim.
