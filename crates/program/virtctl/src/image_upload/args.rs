//! The flags of `image-upload`, with upstream's names.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// A DataVolume
    Dv,
    /// A PersistentVolumeClaim
    Pvc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VolumeMode {
    Block,
    Filesystem,
}

impl VolumeMode {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Block => "Block",
            Self::Filesystem => "Filesystem",
        }
    }
}

/// Upload a disk image to a DataVolume or PersistentVolumeClaim
///
/// The image may be raw, qcow2, vmdk and the like, and compressed with gzip, xz or zstd. The volume is created unless it exists:
/// `image-upload dv NAME --size 10Gi --image-path disk.qcow2`.
#[derive(Debug, Args)]
pub(crate) struct ImageUploadArgs {
    /// Resource type of NAME
    #[arg(value_enum, ignore_case = true, required_unless_present = "pvc_name")]
    target: Option<Target>,
    /// Name of the DataVolume or PersistentVolumeClaim
    #[arg(required_unless_present = "pvc_name")]
    name: Option<String>,
    /// Size of the volume to create, such as 10Gi
    #[arg(long)]
    pub(crate) size: Option<String>,
    /// Path of the image
    #[arg(long, value_name = "FILE", required_unless_present = "archive_path")]
    image_path: Option<PathBuf>,
    /// Path of a tar archive, which is unpacked into the volume
    #[arg(long, value_name = "FILE", conflicts_with = "image_path")]
    archive_path: Option<PathBuf>,
    /// StorageClass of the volume
    #[arg(long, value_name = "NAME")]
    pub(crate) storage_class: Option<String>,
    /// Access mode of the volume, such as ReadWriteMany
    #[arg(long, value_name = "MODE")]
    pub(crate) access_mode: Option<String>,
    /// Volume mode [default: that of the storage profile; filesystem for archives]
    #[arg(long, value_enum, value_name = "MODE")]
    volume_mode: Option<VolumeMode>,
    /// Upload to a volume that exists; do not create it
    #[arg(long)]
    pub(crate) no_create: bool,
    /// Seconds to wait until the upload can begin
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub(crate) wait_secs: u64,
    /// Attempts at the upload
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) retry: u32,
    /// Bind the volume at once, even if its StorageClass waits for a first consumer
    #[arg(long)]
    pub(crate) force_bind: bool,
    /// Create a DataSource that names the volume
    #[arg(long)]
    pub(crate) datasource: bool,
    /// Default instance type of machines with this disk
    #[arg(long, value_name = "NAME", conflicts_with = "no_create")]
    pub(crate) default_instancetype: Option<String>,
    /// Kind of the default instance type
    #[arg(long, value_name = "KIND", requires = "default_instancetype")]
    pub(crate) default_instancetype_kind: Option<String>,
    /// Default preference of machines with this disk
    #[arg(long, value_name = "NAME", conflicts_with = "no_create")]
    pub(crate) default_preference: Option<String>,
    /// Kind of the default preference
    #[arg(long, value_name = "KIND", requires = "default_preference")]
    pub(crate) default_preference_kind: Option<String>,
    /// Do not check the upload proxy's certificate
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Address of the upload proxy [default: the one in CDIConfig config]
    #[arg(long, value_name = "URL")]
    pub(crate) uploadproxy_url: Option<String>,
    /// Deprecated: name the volume as an argument
    #[arg(long, hide = true, conflicts_with_all = ["target", "name"])]
    pvc_name: Option<String>,
    /// Deprecated: use --size
    #[arg(long, hide = true)]
    pvc_size: Option<String>,
    /// Deprecated: use --volume-mode block
    #[arg(long, hide = true)]
    block_volume: bool,
}

/// What is to be uploaded, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) archive: bool,
    pub(crate) size: Option<String>,
    pub(crate) volume_mode: Option<VolumeMode>,
}

impl ImageUploadArgs {
    /// Resolves the deprecated flags.
    pub(crate) fn plan(&self) -> anyhow::Result<Plan> {
        let (target, name) = match (&self.pvc_name, self.target, &self.name) {
            (Some(name), _, _) => (Target::Pvc, name.clone()),
            (None, Some(target), Some(name)) => (target, name.clone()),
            _ => bail!("name what to upload to: `dv NAME` or `pvc NAME`"),
        };
        let size = match (&self.size, &self.pvc_size) {
            (Some(size), Some(other)) if size != other => bail!("--pvc-size and --size contradict each other"),
            (size, other) => size.clone().or_else(|| other.clone()),
        };
        let volume_mode = match (self.volume_mode, self.block_volume) {
            (Some(VolumeMode::Filesystem), true) => {
                bail!("--volume-mode filesystem and --block-volume contradict each other")
            }
            (_, true) => Some(VolumeMode::Block),
            (mode, false) => mode,
        };
        let file = self.image_path.as_deref().or(self.archive_path.as_deref()).unwrap_or(Path::new(""));
        let archive = self.archive_path.is_some();
        if archive && volume_mode == Some(VolumeMode::Block) {
            bail!("an archive is unpacked into a file system: --volume-mode block does not go with --archive-path");
        }
        if self.access_mode.as_deref() == Some("ReadOnlyMany") {
            bail!("cannot upload to a volume that is only read; use --access-mode ReadWriteOnce or ReadWriteMany");
        }
        Ok(Plan { target, name, file: file.to_owned(), archive, size, volume_mode })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ImageUploadArgs,
    }

    fn plan(line: &str) -> Result<Plan, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        cli.args.plan().map_err(|error| error.to_string())
    }

    #[test]
    fn old_and_new_flags_say_the_same() {
        let new = plan("pvc disk --size 1Gi --volume-mode block --image-path a.img").unwrap();
        let old = plan("--pvc-name disk --pvc-size 1Gi --block-volume --image-path a.img").unwrap();
        assert_eq!(new, old);
        assert_eq!((new.target, new.volume_mode), (Target::Pvc, Some(VolumeMode::Block)));
        let archive = plan("DV tree --size 1Gi --archive-path a.tar").unwrap();
        assert_eq!((archive.target, archive.archive, archive.volume_mode), (Target::Dv, true, None));
    }

    #[test]
    fn contradictions_are_errors() {
        for line in [
            "dv disk",
            "dv --image-path a",
            "vm disk --image-path a",
            "dv disk --image-path a --archive-path b",
            "dv disk --archive-path a --volume-mode block",
            "dv disk --image-path a --size 1Gi --pvc-size 2Gi",
            "dv disk --image-path a --block-volume --volume-mode filesystem",
            "dv disk --image-path a --access-mode ReadOnlyMany",
            "dv disk --image-path a --default-instancetype-kind x",
            "dv disk --image-path a --default-preference x --no-create",
            "dv disk --pvc-name other --image-path a",
        ] {
            assert!(plan(line).is_err(), "{line}");
        }
    }
}
