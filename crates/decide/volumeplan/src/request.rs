//! The parts that requests have in common.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Kind, Reach};
use crate::refusal::{Refusal, Result, quote};

/// Who may use a volume, from where: CSI's access modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessMode {
    SingleNodeWriter,
    SingleNodeReaderOnly,
    MultiNodeReaderOnly,
    MultiNodeSingleWriter,
    MultiNodeMultiWriter,
    SingleNodeSingleWriter,
    SingleNodeMultiWriter,
}

impl AccessMode {
    pub const fn many_nodes(self) -> bool {
        matches!(self, Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter)
    }

    /// Whether nothing is written whatever the publication says.
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }
}

/// Options of a mount that a bind mount can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountFlag {
    ReadOnly,
    NoExec,
    NoSuid,
    NoDev,
    NoAtime,
    NoDirAtime,
    RelAtime,
}

impl MountFlag {
    /// `None` for what is the default anyway.
    fn parse(flag: &str) -> Result<Option<Self>> {
        Ok(Some(match flag {
            "rw" | "exec" | "suid" | "dev" | "atime" | "diratime" => return Ok(None),
            "ro" => Self::ReadOnly,
            "noexec" => Self::NoExec,
            "nosuid" => Self::NoSuid,
            "nodev" => Self::NoDev,
            "noatime" => Self::NoAtime,
            "nodiratime" => Self::NoDirAtime,
            "relatime" => Self::RelAtime,
            other => {
                return Err(Refusal::invalid(format!(
                    "the mount option {} is not supported; a directory of the pool can be mounted with ro, noexec, \
                     nosuid, nodev, noatime, nodiratime and relatime",
                    quote(other)
                )));
            }
        }))
    }
}

/// How a volume is presented.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    Block,
    Mount { fs_type: String, flags: Vec<String> },
}

/// What a request wants of a volume; `None` for what it leaves out or we do not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    pub access: Option<Access>,
    pub mode: Option<AccessMode>,
}

/// A capability that can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) kind: Kind,
    pub(crate) mode: AccessMode,
    pub(crate) flags: Vec<MountFlag>,
}

impl Capability {
    pub(crate) fn grant(&self, reach: &Reach) -> Result<Granted> {
        let access = self.access.as_ref();
        let access = access.ok_or_else(|| Refusal::invalid("the volume capability has neither block nor mount"))?;
        let mode = self.mode.ok_or_else(|| Refusal::invalid("the volume capability has no known access mode"))?;
        if mode.many_nodes() && *reach != Reach::Shared {
            return Err(Refusal::invalid(
                "access from several nodes (ReadWriteMany, ReadOnlyMany) needs a pool that all nodes share; this pool is \
                 on one node. Use ReadWriteOnce, or a pool with --shared",
            ));
        }
        match access {
            Access::Block => Ok(Granted { kind: Kind::Block, mode, flags: vec![] }),
            Access::Mount { fs_type, flags } => {
                if !fs_type.is_empty() {
                    return Err(Refusal::invalid(format!(
                        "the file system type {} cannot be chosen: file system volumes are directories of the pool. \
                         Remove csi.storage.k8s.io/fstype from the StorageClass",
                        quote(fs_type)
                    )));
                }
                let flags = flags.iter().map(|flag| MountFlag::parse(flag)).collect::<Result<Vec<_>>>()?;
                Ok(Granted { kind: Kind::Filesystem, mode, flags: flags.into_iter().flatten().collect() })
            }
        }
    }
}

/// The one kind that all capabilities of a request ask for.
pub(crate) fn kind_of(capabilities: &[Capability], reach: &Reach) -> Result<Kind> {
    const MOST: usize = 64;
    if capabilities.len() > MOST {
        return Err(Refusal::invalid(format!("more than {MOST} volume capabilities")));
    }
    let mut kind = None;
    for capability in capabilities {
        let granted = capability.grant(reach)?.kind;
        if *kind.get_or_insert(granted) != granted {
            return Err(Refusal::invalid("a volume cannot be both a block device and a file system"));
        }
    }
    kind.ok_or_else(|| Refusal::invalid("the request has no volume capabilities"))
}

/// Parameters of a StorageClass or a VolumeSnapshotClass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub fixed: BTreeMap<String, String>,
    /// Those of a VolumeAttributesClass.
    pub mutable: BTreeMap<String, String>,
}

impl Parameters {
    /// Only Kubernetes' own metadata: names of claims and the like.
    pub(crate) fn admit(&self) -> Result<()> {
        const METADATA: &str = "csi.storage.k8s.io/";
        let unknown = self.fixed.keys().find(|key| !key.starts_with(METADATA)).or_else(|| self.mutable.keys().next());
        match unknown {
            None => Ok(()),
            Some(key) => Err(Refusal::invalid(format!(
                "the parameter {} is not known; this driver has none. Remove it from the class",
                quote(key)
            ))),
        }
    }
}
