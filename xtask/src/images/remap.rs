//! Programs whose bytes do not tell where they were built: panics name the file that they come from.

use std::env::{var, var_os};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Between flags in cargo's variable for them.
const SEPARATOR: &str = "\x1f";

/// Makes a build by cargo leave out where the workspace, what cargo builds, crates of others and the standard library are on
/// this machine. Flags that the environment asks for stay.
pub(super) fn paths(cargo: &mut Command, workspace: &Path, target: &Path) -> Result<()> {
    let [root, commit] = toolchain(workspace)?;
    let sources = Path::new(&root).join("lib/rustlib/src/rust");
    // Of two that fit the compiler takes the last one: folders in others come after them.
    let folders = [
        (workspace.to_owned(), "/ferrovirt".to_owned()),
        (target.to_owned(), "/target".to_owned()),
        (cargo_home()?, "/cargo".to_owned()),
        // As the standard library was built; with its sources installed the compiler names those.
        (sources, format!("/rustc/{commit}")),
    ];
    let mut flags = flags_of_environment();
    for (from, to) in folders {
        flags.push(format!("--remap-path-prefix={}={to}", from.display()));
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join(SEPARATOR));
    Ok(())
}

fn flags_of_environment() -> Vec<String> {
    match (var("CARGO_ENCODED_RUSTFLAGS"), var("RUSTFLAGS")) {
        (Ok(flags), _) if !flags.is_empty() => flags.split(SEPARATOR).map(str::to_owned).collect(),
        (_, Ok(flags)) => flags.split_whitespace().map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

fn cargo_home() -> Result<PathBuf> {
    let home = || var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("neither CARGO_HOME nor HOME says where crates are")
}

/// The compiler's directory, and the commit that it was built from.
fn toolchain(workspace: &Path) -> Result<[String; 2]> {
    let ask = |question: &[&str]| -> Result<String> {
        // The workspace may ask for a toolchain of its own.
        let output =
            Command::new("rustc").args(question).current_dir(workspace).output().context("cannot run rustc")?;
        if !output.status.success() {
            bail!("rustc {} failed: {}", question.join(" "), String::from_utf8_lossy(&output.stderr).trim_end());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let version = ask(&["-vV"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: "));
    let commit = commit.with_context(|| format!("rustc does not say what it was built from: {version}"))?;
    Ok([ask(&["--print", "sysroot"])?.trim_end().to_owned(), commit.to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MANIFEST: &str = "[package]\nname = \"twin\"\nversion = \"0.1.0\"\nedition = \"2024\"\nbuild = \"build.rs\"\n\n\
                            [profile.release]\nstrip = \"symbols\"\n\n[workspace]\n";
    /// Generated code is named by its whole path.
    const BUILD: &str = "fn main() { let out = std::env::var(\"OUT_DIR\").unwrap();\n\
                         std::fs::write(out + \"/made.rs\", \"pub fn made() -> &'static str { file!() }\").unwrap(); }\n";
    const MAIN: &str = "include!(concat!(env!(\"OUT_DIR\"), \"/made.rs\"));\n\
                        fn main() { println!(\"{} {}\", made(), std::env::args().nth(1).expect(\"a word\")); }\n";

    fn twin(folder: &Path, remapped: bool) -> Vec<u8> {
        let target = folder.join("target");
        fs::create_dir_all(folder.join("src")).unwrap();
        for (name, text) in [("Cargo.toml", MANIFEST), ("build.rs", BUILD), ("src/main.rs", MAIN)] {
            fs::write(folder.join(name), text).unwrap();
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(folder).args(["build", "-q", "--offline", "--release", "--target-dir"]).arg(&target);
        if remapped {
            paths(&mut cargo, folder, &target).unwrap();
        }
        assert!(cargo.status().unwrap().success());
        fs::read(target.join("release/twin")).unwrap()
    }

    #[test]
    fn a_program_has_the_same_bytes_wherever_it_is_built() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deeper = other.path().join("a/longer path");
        let tells = |program: &[u8], path: &Path| {
            let path = path.to_str().unwrap().as_bytes();
            program.windows(path.len()).any(|part| part == path)
        };
        assert!(tells(&twin(one.path(), false), one.path()), "there is nothing to leave out");
        let program = twin(one.path(), true);
        assert!(program == twin(&deeper, true), "two checkouts give different programs");
        assert!(!tells(&program, one.path()));
    }
}
