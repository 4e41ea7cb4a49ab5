//! Custom resources of other projects that our rules read: CDI's kinds and network attachments.
//!
//! Nothing in this server acts on them: an importer may be a client of it. All of their fields are kept, including those that
//! only their own controllers understand.

use api::cdi;
use api::nad::{self, NetworkAttachmentDefinition};

use super::custom::AGE;
use super::{Definition, Fields, KIND, Plain};
use crate::table::{Column, NAME};

/// A namespaced kind of another project.
const fn foreign(
    group_version: (&'static str, &'static str),
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    fields: Fields,
) -> Definition {
    let (group, version) = group_version;
    Definition { group, version, kind, plural, singular, generation: true, unconditional_update: false, fields, ..KIND }
}

const CDI: (&str, &str) = (cdi::GROUP, "v1beta1");

const DATA_VOLUME: Definition = Definition {
    short_names: &["dv", "dvs"],
    categories: &["all"],
    status: true,
    ..foreign(CDI, "DataVolume", "datavolumes", "datavolume", Fields::kept::<cdi::DataVolume>())
};

const DATA_SOURCE: Definition = Definition {
    short_names: &["das"],
    categories: &["all"],
    status: true,
    ..foreign(CDI, "DataSource", "datasources", "datasource", Fields::kept::<cdi::DataSource>())
};

const STORAGE_PROFILE: Definition = Definition {
    namespaced: false,
    status: true,
    ..foreign(CDI, "StorageProfile", "storageprofiles", "storageprofile", Fields::kept::<cdi::StorageProfile>())
};

const CONFIG: Definition = Definition {
    namespaced: false,
    status: true,
    ..foreign(CDI, "CDIConfig", "cdiconfigs", "cdiconfig", Fields::kept::<cdi::CDIConfig>())
};

const INSTALLATION: Definition =
    Definition { namespaced: false, status: true, ..foreign(CDI, "CDI", "cdis", "cdi", Fields::kept::<cdi::CDI>()) };

/// Answered by the importer's hook, with a token in the status.
const UPLOAD_TOKEN_REQUEST: Definition = Definition {
    short_names: &["utr", "utrs"],
    stored: false,
    generation: false,
    ..foreign(
        (cdi::UPLOAD_GROUP, "v1beta1"),
        "UploadTokenRequest",
        "uploadtokenrequests",
        "uploadtokenrequest",
        KIND.fields,
    )
};

const NETWORK: Definition = Definition {
    short_names: &["net-attach-def"],
    ..foreign(
        (nad::GROUP, "v1"),
        "NetworkAttachmentDefinition",
        "network-attachment-definitions",
        "network-attachment-definition",
        Fields::kept::<NetworkAttachmentDefinition>(),
    )
};

pub(super) fn plain() -> Vec<Plain> {
    let kind = |definition, columns, warning| Plain { definition, columns, warning };
    let network = "no additional network is attached by this server: the definition is only kept";
    vec![
        kind(DATA_VOLUME, DATA_VOLUME_COLUMNS, None),
        kind(DATA_SOURCE, PLAIN_COLUMNS, None),
        kind(STORAGE_PROFILE, PLAIN_COLUMNS, None),
        kind(CONFIG, PLAIN_COLUMNS, None),
        kind(INSTALLATION, const { &[NAME, AGE, Column::text("Phase", ".status.phase")] }, None),
        kind(UPLOAD_TOKEN_REQUEST, PLAIN_COLUMNS, None),
        kind(NETWORK, PLAIN_COLUMNS, Some(network)),
    ]
}

const PLAIN_COLUMNS: &[Column] = &[NAME, AGE];

const DATA_VOLUME_COLUMNS: &[Column] = &[
    NAME,
    Column::text("Phase", ".status.phase"),
    Column::text("Progress", ".status.progress"),
    Column::text("Restarts", ".status.restartCount"),
    AGE,
];
