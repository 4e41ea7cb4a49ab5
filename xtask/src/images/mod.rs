//! `images`: our images as archives, without a container engine.
//!
//! ```text
//!   build/images/NAME.tar          what `ctr images import` and `ferrovirt image import` take
//!   build/images/NAME.spdx.json    what is in it
//!   build/images/NAME.json         what it was made from; while that is the same, it is not made again
//!   build/images/layers/           layers while they are made
//!   ~/.cache/ferrovirt/images/     the layer that is long to make
//! ```

mod crates;
mod debian;
mod guest;
mod launcher;
mod program;
mod remap;
mod sbom;
mod stamp;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use oci_image::{Image, Layer, Run};

pub(crate) use program::{Profile, build as build_program};

const DEFAULT_PREFIX: &str = "registry.local/ferrovirt";
/// Sizes of images are told as registries tell them.
const MB: u64 = 1_000_000;

/// What to make.
pub(crate) struct Options {
    prefix: String,
    tag: String,
    profile: Profile,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut options = Options {
            prefix: DEFAULT_PREFIX.to_owned(),
            tag: concat!("v", env!("CARGO_PKG_VERSION")).to_owned(),
            profile: Profile::Dist,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().filter(|v| !v.is_empty()).with_context(|| format!("{arg} needs a value"));
            match arg.as_str() {
                "--prefix" => options.prefix = value()?.trim_end_matches('/').to_owned(),
                "--tag" => options.tag = value()?.clone(),
                "--quick" => options.profile = Profile::Quick,
                "--dev" => options.profile = Profile::Dev,
                other => bail!("`images` has no flag {other}; it has --prefix, --tag, --quick and --dev"),
            }
        }
        Ok(options)
    }
}

/// One image: what decides whether it is made anew, and how it is made.
struct Recipe<'a> {
    name: &'a str,
    /// Digest of everything it is made from.
    from: String,
    run: Run,
    /// The largest archive, in bytes.
    limit: u64,
    layers: &'a dyn Fn() -> Result<Vec<Layer>>,
    contents: &'a dyn Fn() -> Result<Vec<sbom::Package>>,
}

/// Where images and their parts go.
struct Places {
    workspace: PathBuf,
    out: PathBuf,
    /// Outside the work tree, for all of them.
    cache: PathBuf,
}

impl Places {
    fn layers(&self) -> PathBuf {
        self.out.join("layers")
    }
}

pub(crate) fn run(workspace: &Path, options: &Options) -> Result<()> {
    let out = match options.profile {
        Profile::Dist | Profile::Quick => workspace.join("build/images"),
        Profile::Dev => workspace.join("build/images-dev"),
    };
    let cache = crate::cache("images")?;
    let places = Places { workspace: workspace.to_owned(), out, cache };
    let _ours = lock(&places.out)?;
    let programs = step("program", || build_program(workspace, options.profile))?;
    // Only now: other work trees need not wait for our compiler.
    let _everyones = lock(&places.cache)?;
    program::image(&places, options, &programs)?;
    launcher::image(&places, options, &programs)?;
    guest::images(&places, options)
}

/// The images of a test cluster, named as manifests of tests and examples name them.
pub(crate) fn for_tests(workspace: &Path) -> Result<()> {
    let options = Options { prefix: "ferrovirt.io".to_owned(), tag: "latest".to_owned(), profile: Profile::Dev };
    run(workspace, &options)
}

/// One build at a time in a folder. The lock ends with the file handle.
fn lock(folder: &Path) -> Result<File> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(".lock");
    let lock = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    lock.lock().context("cannot wait for another build of the images")?;
    Ok(lock)
}

/// Says what is being done and how long it took.
fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("images: {name} …");
    let started = Instant::now();
    let result = work()?;
    eprintln!("images: {name} took {:.1} s", started.elapsed().as_secs_f64());
    Ok(result)
}

/// Makes an image unless it is there, and refuses one that has become too large.
fn make(places: &Places, options: &Options, recipe: &Recipe<'_>) -> Result<()> {
    let reference = format!("{}/{}:{}", options.prefix, recipe.name, options.tag);
    let archive = places.out.join(format!("{}.tar", recipe.name));
    let from = stamp::of_text(&format!("{reference}\n{}\n{:?}\n{}", recipe.from, recipe.run, stamp::own_sources()));
    let noted = places.out.join(format!("{}.json", recipe.name));
    let (size, digest) = match stamp::read(&noted, &from, &archive) {
        Some(made) => (made.size, made.digest),
        None => step(&reference, || {
            let image = Image::new(&reference, recipe.run.clone(), (recipe.layers)()?)?;
            let (size, digest) = (image.write_archive(&archive)?, image.digest()?);
            let bill = sbom::document(&reference, &digest, &(recipe.contents)()?);
            let beside = places.out.join(format!("{}.spdx.json", recipe.name));
            fs::write(&beside, bill).with_context(|| format!("cannot write {}", beside.display()))?;
            stamp::write(&noted, &stamp::Made { from: from.clone(), digest: digest.clone(), size })?;
            Ok((size, digest))
        })?,
    };
    let relative = archive.strip_prefix(&places.workspace).unwrap_or(&archive);
    eprintln!("images: {reference}: {} MB in {}, {digest}", size.div_ceil(MB), relative.display());
    check_size(&reference, size, recipe.limit)
}

fn check_size(reference: &str, size: u64, limit: u64) -> Result<()> {
    if size > limit {
        let (size, limit) = (size.div_ceil(MB), limit / MB);
        bail!(
            "{reference} has {size} MB, more than its limit of {limit}; find out what has grown, or raise the limit in xtask/src/images"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_others_refused() {
        let parse = |args: &[&str]| Options::parse(&args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>());
        let options = parse(&["--prefix", "example.com/x/", "--tag", "t", "--quick"]).unwrap();
        assert_eq!((options.prefix.as_str(), options.tag.as_str()), ("example.com/x", "t"));
        assert!(matches!(options.profile, Profile::Quick));
        assert!(matches!(parse(&["--dev"]).unwrap().profile, Profile::Dev));
        assert!(matches!(parse(&[]).unwrap().profile, Profile::Dist));
        for wrong in [&["--tag"][..], &["--tag", ""], &["--fast"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_image_above_its_limit_is_refused() {
        assert!(check_size("a:1", 5 * MB, 5 * MB).is_ok());
        let refused = check_size("a:1", 5 * MB + 1, 5 * MB).unwrap_err().to_string();
        assert!(refused.contains("a:1 has 6 MB, more than its limit of 5"), "{refused}");
    }
}
