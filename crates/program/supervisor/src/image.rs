//! `image`: the image store of an embedded cluster. Images are imported by hand; nothing is pulled from registries.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pod_runner::images;
use terminal::output::print;

use crate::cluster::layout::{DEFAULT_DATA_DIR, Layout};

/// Import, list and remove images of the embedded cluster
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

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let store = Layout::new(args.data_dir).images();
    match args.command {
        Command::Import { reference, from } => {
            images::import(&store, &reference, &from)?;
            println!("{reference} imported");
        }
        Command::List => print(&images::list(&store)?.iter().map(|image| format!("{image}\n")).collect::<String>())?,
        Command::Rm { references } => return remove(&store, &references),
    }
    Ok(ExitCode::SUCCESS)
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
