//! Debian packages of a root file system, from dpkg's status and the copyright files.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::sbom::Package;

/// Short names of licences in Debian's copyright files, and what SPDX calls them.
const LICENCES: &[(&str, &str)] = &[
    ("apache-2.0", "Apache-2.0"),
    ("artistic", "Artistic-1.0-Perl"),
    ("bsd-2-clause", "BSD-2-Clause"),
    ("bsd-3-clause", "BSD-3-Clause"),
    ("bsd-4-clause", "BSD-4-Clause"),
    ("cc0-1.0", "CC0-1.0"),
    ("expat", "MIT"),
    ("gpl-1+", "GPL-1.0-or-later"),
    ("gpl-2", "GPL-2.0-only"),
    ("gpl-2+", "GPL-2.0-or-later"),
    ("gpl-2.0", "GPL-2.0-only"),
    ("gpl-2.0+", "GPL-2.0-or-later"),
    ("gpl-3", "GPL-3.0-only"),
    ("gpl-3+", "GPL-3.0-or-later"),
    ("isc", "ISC"),
    ("lgpl-2", "LGPL-2.0-only"),
    ("lgpl-2+", "LGPL-2.0-or-later"),
    ("lgpl-2.1", "LGPL-2.1-only"),
    ("lgpl-2.1+", "LGPL-2.1-or-later"),
    ("lgpl-3", "LGPL-3.0-only"),
    ("lgpl-3+", "LGPL-3.0-or-later"),
    ("mit", "MIT"),
    ("mpl-1.1", "MPL-1.1"),
    ("mpl-2.0", "MPL-2.0"),
    ("psf-2", "PSF-2.0"),
    ("zlib", "Zlib"),
];

/// Where Debian keeps texts that many packages refer to.
const COMMON: &str = "/usr/share/common-licenses/";

/// The installed packages below a root.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let status = root.join("var/lib/dpkg/status");
    let text = fs::read_to_string(&status).with_context(|| format!("cannot read {}", status.display()))?;
    let licence = |name: &str| {
        let file = root.join("usr/share/doc").join(name).join("copyright");
        fs::read(file).ok().and_then(|bytes| licences(&String::from_utf8_lossy(&bytes)))
    };
    let mut all: Vec<Package> = text.split("\n\n").filter_map(|paragraph| package(paragraph, licence)).collect();
    all.sort();
    Ok(all)
}

fn package(paragraph: &str, licence: impl Fn(&str) -> Option<String>) -> Option<Package> {
    let field = |wanted: &str| paragraph.lines().find_map(|line| line.strip_prefix(wanted)).map(str::trim);
    // Lists of unpacked packages have no status.
    if field("Status:").is_some_and(|status| !status.ends_with(" installed")) {
        return None;
    }
    let (name, version) = (field("Package:")?, field("Version:")?);
    let architecture = field("Architecture:").unwrap_or("all");
    Some(Package {
        name: name.to_owned(),
        version: version.to_owned(),
        purl: format!("pkg:deb/debian/{name}@{}?arch={architecture}", version.replace('+', "%2B").replace(':', "%3A")),
        licence: licence(name),
    })
}

/// All licences of a copyright file, joined by AND. One that is prose has at least the names of Debian's common licences.
fn licences(copyright: &str) -> Option<String> {
    let found: BTreeSet<String> = if copyright.starts_with("Format:") {
        let lines = copyright.lines().filter_map(|line| line.strip_prefix("License:")).map(str::trim);
        lines.filter(|text| !text.is_empty()).map(spdx).collect()
    } else {
        let after = copyright.split(COMMON).skip(1);
        let name = |text: &str| {
            text.split(|c: char| !c.is_ascii_alphanumeric() && !"-.".contains(c)).next().map(str::to_owned)
        };
        let names =
            after.filter_map(name).map(|name| name.trim_end_matches('.').to_owned()).filter(|name| !name.is_empty());
        names.map(|name| format!("LicenseRef-Debian-common-{name}")).collect()
    };
    (!found.is_empty()).then(|| found.into_iter().collect::<Vec<_>>().join(" AND "))
}

/// What SPDX does not know is named after Debian's name: the text is in the copyright file.
fn spdx(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if let Some((_, known)) = LICENCES.iter().find(|(debian, _)| *debian == lower) {
        return (*known).to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '-' };
    format!("LicenseRef-Debian-{}", name.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Package: libvirt0\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:9.0.0-4+deb12u2\n\
                          Description: library\n more\n\nPackage: gone\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                          Package: base\nVersion: 2\nArchitecture: all\n";

    #[test]
    fn installed_packages_are_listed_with_their_licences() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("var/lib/dpkg/status", STATUS);
        let copyright = "Format: https://x\n\nFiles: *\nLicense: LGPL-2.1+\n\nFiles: a\nLicense: GPL-2+ with exception\n\n\
                         Files: b\nLicense: LGPL-2.1+\n text\n";
        write("usr/share/doc/libvirt0/copyright", copyright);
        write(
            "usr/share/doc/base/copyright",
            "See `/usr/share/common-licenses/GPL-2'.\nOr /usr/share/common-licenses/LGPL.",
        );
        let found = packages(root.path()).unwrap();
        let summary: Vec<_> = found.iter().map(|p| (p.purl.as_str(), p.licence.as_deref())).collect();
        assert_eq!(
            summary,
            [
                (
                    "pkg:deb/debian/base@2?arch=all",
                    Some("LicenseRef-Debian-common-GPL-2 AND LicenseRef-Debian-common-LGPL")
                ),
                (
                    "pkg:deb/debian/libvirt0@1%3A9.0.0-4%2Bdeb12u2?arch=amd64",
                    Some("LGPL-2.1-or-later AND LicenseRef-Debian-GPL-2--with-exception")
                ),
            ]
        );
        assert!(packages(&root.path().join("nowhere")).is_err());
    }
}
