//! The importer of an embedded cluster: fills the claims of DataVolumes, and takes uploads.
