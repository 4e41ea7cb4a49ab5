//! The borders of the layers: a crate stands on its own layer and those below it, and what decides cannot wait, talk, or
//! look at a clock, a file or the environment.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folders of the layers, lowest first.
const LAYERS: &[&str] =
    &["crates/data", "crates/decide", "tools", "crates/edge", "crates/program", "crates/proof", "tests"];

/// Layers without clocks, files, threads and the like.
const PURE: &[&str] = &["crates/data", "crates/decide"];

/// Crates that may not appear among the dependencies of data and decisions. `libc` and `getrandom` cannot be here:
/// `kube-cel` brings them, by way of `parking_lot` and `uuid`.
const FORBIDDEN: &[&str] = &[
    "tokio",
    "tokio-util",
    "mio",
    "socket2",
    "kube",
    "kube-client",
    "kube-runtime",
    "kube-core",
    "hyper",
    "hyper-util",
    "axum",
    "rustix",
    "rand",
];

/// Crates that tests of a lower layer may use, and why.
const LOOSER_FOR_TESTS: &[(&str, &str)] = &[
    (
        "test-support",
        "certificates, waiting and namespaces for the tests of all layers; it depends on no crate of ours",
    ),
    ("test-server", "an embedded API server for the tests of its clients"),
    ("virt-api", "clients of the embedded API server meet it with the hooks of KubeVirt, which virt-api makes"),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// A crate of the workspace: its folder and those of ours it depends on, with whether only its tests do.
struct Crate {
    folder: PathBuf,
    dependencies: Vec<(String, bool)>,
}

impl Crate {
    /// The place of its layer in the list; what stands outside of all folders (`xtask`) stands on top of them.
    fn layer(&self) -> usize {
        LAYERS.iter().position(|layer| self.folder.starts_with(layer)).unwrap_or(LAYERS.len())
    }

    fn is_pure(&self) -> bool {
        PURE.iter().any(|layer| self.folder.starts_with(layer))
    }
}

/// Every crate of the workspace by name.
fn crates() -> BTreeMap<String, Crate> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--no-deps", "--format-version", "1"])
        .current_dir(workspace())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().iter().map(read_package).collect()
}

fn read_package(package: &Value) -> (String, Crate) {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap());
    let folder = manifest.parent().unwrap().strip_prefix(workspace()).unwrap().to_owned();
    // Only dependencies of ours have a path.
    let ours = package["dependencies"].as_array().unwrap().iter().filter(|dependency| dependency["path"].is_string());
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let dependencies = ours.map(|dependency| (name(dependency), dependency["kind"] == "dev")).collect();
    (name(package), Crate { folder, dependencies })
}

/// All crates that end up in this one, however deep.
fn all_dependencies(name: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}", "-p", name])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn a_crate_depends_on_its_own_layer_and_those_below_it() {
    let crates = crates();
    for expected in ["api", "plan", "operate", "informer", "virt-controller", "ferrovirt", "sim", "e2e"] {
        assert!(crates[expected].layer() < LAYERS.len(), "crate {expected} is in no layer");
    }
    let mut wrong = Vec::new();
    for (name, found) in &crates {
        for (dependency, tests_only) in &found.dependencies {
            let below = crates[dependency].layer() <= found.layer();
            let explained = *tests_only && LOOSER_FOR_TESTS.iter().any(|(helper, _)| helper == dependency);
            if !below && !explained {
                wrong.push(format!("{name} depends on {dependency}, which stands above it"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_looser_dependency_of_tests_is_in_use() {
    let crates = crates();
    assert!(crates["test-support"].dependencies.is_empty(), "what every crate's tests use depends on none of them");
    for (helper, because) in LOOSER_FOR_TESTS {
        let used = crates.values().any(|found| {
            found.layer() < crates[*helper].layer() && found.dependencies.contains(&((*helper).to_owned(), true))
        });
        assert!(used, "no crate below {helper} uses it in tests ({because}); remove its exception");
    }
}

#[test]
fn data_and_decisions_depend_on_neither_a_runtime_nor_a_client() {
    let crates = crates();
    for expected in [
        "api",
        "machinery",
        "admission",
        "plan",
        "render",
        "domain",
        "netplan",
        "vmstate",
        "placement",
        "podstate",
        "subresources",
        "hooks",
        "install",
        "review",
        "transfer",
        "lifecycle",
        "devices",
        "volumeplan",
        "claims",
    ] {
        assert!(crates[expected].is_pure(), "crate {expected} is not where it belongs");
    }
    for name in crates.iter().filter(|(_, found)| found.is_pure()).map(|(name, _)| name) {
        let all = all_dependencies(name);
        let bad: Vec<_> = all.iter().filter(|dependency| FORBIDDEN.contains(&dependency.as_str())).collect();
        assert!(bad.is_empty(), "{name} depends on {bad:?}");
    }
}

/// The settings that clippy reads for a crate: the nearest file above its sources.
fn clippy_settings(folder: &Path) -> PathBuf {
    let nearest = folder.ancestors().map(|folder| folder.join("clippy.toml")).find(|file| file.exists());
    nearest.unwrap().canonicalize().unwrap()
}

#[test]
fn every_pure_crate_is_under_the_settings_that_forbid_clocks_and_files() {
    let pure = workspace().join(PURE[0]).join("clippy.toml");
    for (name, found) in crates().iter().filter(|(_, found)| found.is_pure()) {
        assert_eq!(clippy_settings(&workspace().join(&found.folder)), pure, "{name}");
    }
}

/// The things in lists of clippy's settings, such as `disallowed-methods`, by their paths, but for those that clippy
/// knows in crates that depend on theirs only.
fn forbidden(settings: &str, list: &str) -> Vec<String> {
    let entries = settings.lines().skip_while(|line| !line.starts_with(&format!("{list} = ["))).skip(1);
    let entries = entries.take_while(|line| *line != "]").filter(|line| !line.contains("allow-invalid = true"));
    entries.filter_map(path_of).map(str::to_owned).collect()
}

fn path_of(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("{ path = \"")?.split('"').next()
}

/// Uses of what cannot be used by its path alone.
const USES: &[(&str, &str)] = &[
    ("std::env::remove_var", "std::env::remove_var::<&str>"),
    ("std::env::set_current_dir", "std::env::set_current_dir::<&str>"),
    ("std::env::set_var", "std::env::set_var::<&str, &str>"),
    ("std::env::var", "std::env::var::<&str>"),
    ("std::env::var_os", "std::env::var_os::<&str>"),
    ("std::fs::copy", "std::fs::copy::<&str, &str>"),
    ("std::fs::hard_link", "std::fs::hard_link::<&str, &str>"),
    ("std::fs::rename", "std::fs::rename::<&str, &str>"),
    ("std::fs::write", "std::fs::write::<&str, &str>"),
    ("std::fs::exists", "std::fs::exists::<&str>"),
    ("std::net::ToSocketAddrs::to_socket_addrs", "std::net::ToSocketAddrs::to_socket_addrs(\"x:1\")"),
    ("std::os::unix::fs::chown", "std::os::unix::fs::chown::<&str>"),
    ("std::os::unix::fs::fchown", "std::os::unix::fs::fchown::<std::os::fd::OwnedFd>"),
    ("std::os::unix::fs::lchown", "std::os::unix::fs::lchown::<&str>"),
    ("std::os::unix::fs::symlink", "std::os::unix::fs::symlink::<&str, &str>"),
    ("std::sync::Mutex", "std::sync::Mutex<()>"),
    ("std::sync::RwLock", "std::sync::RwLock<()>"),
    ("std::sync::mpsc::Receiver", "std::sync::mpsc::Receiver<()>"),
    ("std::sync::mpsc::Sender", "std::sync::mpsc::Sender<()>"),
    ("std::sync::mpsc::SyncSender", "std::sync::mpsc::SyncSender<()>"),
    ("std::sync::mpsc::channel", "std::sync::mpsc::channel::<()>"),
    ("std::sync::mpsc::sync_channel", "std::sync::mpsc::sync_channel::<()>"),
    ("std::thread::Builder::spawn", "std::thread::Builder::new().spawn(|| ())"),
    (
        "std::thread::Builder::spawn_scoped",
        "|scope: &'static std::thread::Scope<'static, 'static>| std::thread::Builder::new().spawn_scoped(scope, || ())",
    ),
    ("std::thread::scope", "std::thread::scope(|_| ())"),
    ("std::thread::spawn", "std::thread::spawn(|| ())"),
];

/// One line for each thing that a pure crate must not do, with the name that clippy reports.
fn offences(settings: &str) -> Vec<(String, String)> {
    let used = |path: &str| {
        let one_path = path.starts_with("std::fs::").then(|| format!("{path}::<&str>"));
        let known = USES.iter().find(|(known, _)| *known == path).map(|(_, used)| (*used).to_owned());
        known.or(one_path).unwrap_or_else(|| path.to_owned())
    };
    let of = |list: &str, line: &dyn Fn(&str) -> String| -> Vec<(String, String)> {
        forbidden(settings, list).into_iter().map(|path| (line(&path), path)).collect()
    };
    let methods = of("disallowed-methods", &|path| format!("let _ = {};", used(path)));
    let types = of("disallowed-types", &|path| match USES.iter().find(|(known, _)| *known == path) {
        Some((_, used)) => format!("let _: Option<{used}> = None;"),
        None => format!("let _: Option<{path}> = None;"),
    });
    let macros = of("disallowed-macros", &|path| format!("{path}!(\"x\");"));
    [methods, types, macros].concat()
}

#[test]
fn clippy_refuses_each_offence_in_a_pure_crate() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("offences");
    std::fs::create_dir_all(&folder).unwrap();
    let offences = offences(&std::fs::read_to_string(workspace().join(PURE[0]).join("clippy.toml")).unwrap());
    assert!(offences.len() > 70, "clippy's settings are not read: {offences:?}");
    let lines: Vec<&str> = offences.iter().map(|(line, _)| line.as_str()).collect();
    std::fs::write(folder.join("lib.rs"), format!("pub fn offend() {{\n{}\n}}\n", lines.join("\n"))).unwrap();
    for (name, crate_) in [("machinery", "crates/data/machinery"), ("plan", "crates/decide/plan")] {
        // Clippy looks for its settings as it would for this crate.
        let mut clippy = Command::new("clippy-driver");
        clippy.args(["--crate-type=lib", "--edition=2024", "--emit=metadata", "-Dclippy::all", "lib.rs"]);
        clippy.current_dir(&folder).env_remove("CLIPPY_CONF_DIR");
        clippy.env("CARGO_MANIFEST_DIR", workspace().join(crate_));
        let output = clippy.output().unwrap_or_else(|error| panic!("clippy is a part of the toolchain: {error}"));
        let text = String::from_utf8_lossy(&output.stderr);
        for (_, offence) in &offences {
            assert!(text.contains(&format!("`{offence}`")), "{name} may use {offence}:\n{text}");
        }
    }
}

/// The members of unions as clippy's settings spell them: `api::v1::kinds` takes unions apart without `..`, and leaves
/// out what belongs to no union.
fn members_of_unions() -> BTreeSet<String> {
    let folder = workspace().join("crates/data/api/src/v1");
    let modules: Vec<(String, String)> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let module = path.file_stem().unwrap().to_string_lossy().into_owned();
            (module, std::fs::read_to_string(path).unwrap())
        })
        .collect();
    let kinds = &modules.iter().find(|(module, _)| module == "kinds").unwrap().1;
    let mut members = BTreeSet::new();
    for pattern in kinds.split("let ").skip(1).filter_map(|text| text.split_once("} = self;").map(|(head, _)| head)) {
        let Some((union, fields)) = pattern.split_once(" {").filter(|(union, _)| !union.contains([' ', '\n'])) else {
            continue;
        };
        assert!(!fields.contains(".."), "{union} is not taken apart whole: a new member would not be noticed");
        let declared = |text: &str| text.contains(&format!("pub struct {union} {{"));
        let (module, _) = modules.iter().find(|(_, text)| declared(text)).unwrap();
        let fields = fields.split(',').map(str::trim).filter(|field| !field.is_empty() && !field.ends_with(": _"));
        members.extend(fields.map(|field| format!("api::v1::{module}::{union}::{field}")));
    }
    members
}

#[test]
fn clippy_knows_every_member_of_a_union() {
    let expected = members_of_unions();
    for union in ["Volume", "HotplugVolumeSource", "Network", "Disk", "Interface", "Probe", "AccessCredential"] {
        assert!(expected.iter().any(|member| member.contains(&format!("::{union}::"))), "{union} is no union");
    }
    for file in ["clippy.toml", "crates/data/clippy.toml"] {
        let text = std::fs::read_to_string(workspace().join(file)).unwrap();
        let entries = text.lines().skip_while(|line| *line != "disallowed-fields = [");
        let found: BTreeSet<String> = entries.filter_map(path_of).map(str::to_owned).collect();
        assert_eq!(found, expected, "disallowed-fields of {file}");
    }
}
