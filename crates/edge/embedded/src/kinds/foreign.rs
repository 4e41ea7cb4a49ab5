//! Custom resources of other projects that our rules look at: disk imports and additional networks.
//!
//! Nothing in this server acts on them. They are kept whole, so that nothing is lost of what only their own controllers
//! understand.

use api::cdi;
use api::nad::{self, NetworkAttachmentDefinition};

use super::kubevirt::AGE;
use super::{Definition, Fields, KIND, Plain};
use crate::table::{Column, NAME};

/// Another project's kind in a namespace.
const FOREIGN: Definition = Definition {
    group: cdi::GROUP,
    version: "v1beta1",
    status: true,
    generation: true,
    unconditional_update: false,
    ..KIND
};

pub(super) fn plain() -> Vec<Plain> {
    vec![
        Plain {
            definition: Definition {
                kind: "DataVolume",
                fields: Fields::kept::<cdi::DataVolume>(),
                plural: "datavolumes",
                singular: "datavolume",
                short_names: &["dv", "dvs"],
                categories: &["all"],
                status: false,
                ..FOREIGN
            },
            columns: DATA_VOLUME_COLUMNS,
            warning: Some("no importer runs in this server: the volume is kept and nothing fills it"),
        },
        Plain {
            definition: Definition {
                kind: "DataSource",
                fields: Fields::kept::<cdi::DataSource>(),
                plural: "datasources",
                singular: "datasource",
                short_names: &["das"],
                categories: &["all"],
                ..FOREIGN
            },
            columns: PLAIN_COLUMNS,
            warning: None,
        },
        Plain {
            definition: Definition {
                kind: "StorageProfile",
                fields: Fields::kept::<cdi::StorageProfile>(),
                plural: "storageprofiles",
                singular: "storageprofile",
                namespaced: false,
                ..FOREIGN
            },
            columns: PLAIN_COLUMNS,
            warning: None,
        },
        Plain {
            definition: Definition {
                kind: "CDIConfig",
                fields: Fields::kept::<cdi::CDIConfig>(),
                plural: "cdiconfigs",
                singular: "cdiconfig",
                namespaced: false,
                ..FOREIGN
            },
            columns: PLAIN_COLUMNS,
            warning: None,
        },
        Plain {
            definition: Definition {
                kind: "CDI",
                fields: Fields::kept::<cdi::CDI>(),
                plural: "cdis",
                singular: "cdi",
                short_names: &["cdi", "cdis"],
                namespaced: false,
                ..FOREIGN
            },
            columns: const { &[NAME, AGE, Column::text("Phase", ".status.phase")] },
            warning: Some("no importer runs in this server: the installation is kept and nothing is installed"),
        },
        Plain {
            definition: Definition {
                group: nad::GROUP,
                version: "v1",
                kind: "NetworkAttachmentDefinition",
                fields: Fields::kept::<NetworkAttachmentDefinition>(),
                plural: "network-attachment-definitions",
                singular: "network-attachment-definition",
                short_names: &["net-attach-def"],
                status: false,
                ..FOREIGN
            },
            columns: PLAIN_COLUMNS,
            warning: Some("no additional network is attached by this server: the definition is only kept"),
        },
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
