//! `image`: the image store of an embedded cluster.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use pod_runner::images;
use terminal::Progress;
use terminal::output::print;

use crate::cluster::layout::{DEFAULT_DATA_DIR, Layout};
use crate::pulls::{self, Given};

/// Pull, import, list and remove images of the embedded cluster
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The cluster's data directory
    #[arg(long, global = true, env = "FERROVIRT_DATA_DIR", default_value = DEFAULT_DATA_DIR)]
    data_dir: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Store a root file system under a reference, in place of an earlier one
    Import {
        /// The name that Pods and virtual machines use, for example example.com/disk:1
        reference: String,
        /// An OCI image (archive or layout), or the files themselves: a directory, a tar archive or a gzipped one; a
        /// containerDisk has its image in /disk
        from: PathBuf,
    },
    /// Pull an image from a registry, in place of an earlier one
    Pull {
        /// For example quay.io/containerdisks/fedora:latest
        reference: String,
        /// Allow plain HTTP, and TLS with any certificate
        #[arg(long)]
        insecure: bool,
        /// File with certificates to trust in addition to the machine's
        #[arg(long)]
        ca: Option<PathBuf>,
        /// File with users and passwords, as `docker login` writes it [default: ~/.docker/config.json]
        #[arg(long)]
        auth_file: Option<PathBuf>,
    },
    /// List images
    #[command(alias = "ls")]
    List,
    /// Remove images; running Pods keep theirs
    #[command(alias = "remove")]
    Rm {
        /// The references to remove
        #[arg(required = true)]
        references: Vec<String>,
    },
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let layout = Layout::new(args.data_dir);
    let store = layout.images();
    match args.command {
        Command::Pull { reference, insecure, ca, auth_file } => {
            let read = |path: PathBuf| {
                std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
            };
            let given = Given {
                insecure,
                ca_pem: ca.map(read).transpose()?,
                configurations: pulls::docker_configuration(auth_file.as_deref())?.into_iter().collect(),
            };
            pull(&layout, &reference, given).await?;
        }
        Command::Import { reference, from } => {
            images::import(&store, &reference, &from)?;
            println!("{reference} imported");
        }
        Command::List => print(&images::list(&store)?.iter().map(|image| format!("{image}\n")).collect::<String>())?,
        Command::Rm { references } => return remove(&store, &references),
    }
    Ok(ExitCode::SUCCESS)
}

async fn pull(layout: &Layout, reference: &str, given: Given) -> anyhow::Result<()> {
    let mut shown = Progress::default();
    let mut told = 0;
    let progress = |now: disk_images::registry::Progress| {
        const MIB: u64 = 1 << 20;
        // A line for every per cent, and for every MiB of small images.
        let step = (now.bytes / 100).max(MIB);
        if now.bytes_done / step != told || now.bytes_done == now.bytes {
            told = now.bytes_done / step;
            shown.waiting(format!("{} of {} MiB", now.bytes_done.div_ceil(MIB), now.bytes.div_ceil(MIB)));
        }
    };
    let digest = pulls::pull(layout, reference, given, progress).await?;
    println!("{reference} pulled: {digest}");
    Ok(())
}

fn remove(store: &Path, references: &[String]) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for reference in references {
        if images::resolve(store, reference).is_err() {
            eprintln!("error: there is no image {reference} in {}", store.display());
            code = ExitCode::FAILURE;
            continue;
        }
        images::remove(store, reference)?;
        println!("{reference} removed");
    }
    Ok(code)
}
