//! Bills of materials: SPDX 2.3 as JSON.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// No clock: the same image has the same bill.
const CREATED: &str = "1970-01-01T00:00:00Z";
const UNKNOWN: &str = "NOASSERTION";

/// Something that is in an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
    /// Where it comes from, as a package URL.
    pub(super) purl: String,
    /// An SPDX expression; may refer to `LicenseRef-…`.
    pub(super) licence: Option<String>,
}

/// The document about an image.
pub(super) fn document(reference: &str, digest: &str, packages: &[Package]) -> String {
    let distinct: BTreeSet<&Package> = packages.iter().collect();
    let mut listed = vec![json!({
        "SPDXID": "SPDXRef-image",
        "name": reference,
        "versionInfo": digest,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": false,
        "primaryPackagePurpose": "CONTAINER",
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
        "copyrightText": UNKNOWN,
    })];
    let mut relations = vec![relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image")];
    for (number, package) in distinct.iter().enumerate() {
        let id = format!("SPDXRef-package-{number}");
        relations.push(relation("SPDXRef-image", "CONTAINS", &id));
        listed.push(entry(&id, package));
    }
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": reference,
        "documentNamespace": format!("https://ferrovirt.io/spdx/{}", digest.replace(':', "-")),
        "creationInfo": { "created": CREATED, "creators": ["Tool: ferrovirt-xtask"] },
        "packages": listed,
        "relationships": relations,
        "hasExtractedLicensingInfos": references(&distinct),
    });
    format!("{document:#}\n")
}

fn relation(from: &str, kind: &str, to: &str) -> Value {
    json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to })
}

fn entry(id: &str, package: &Package) -> Value {
    json!({
        "SPDXID": id,
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": false,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": package.licence.as_deref().unwrap_or(UNKNOWN),
        "copyrightText": UNKNOWN,
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": package.purl,
        }],
    })
}

/// Licences without a name in SPDX must be declared.
fn references(packages: &BTreeSet<&Package>) -> Vec<Value> {
    let expressions = packages.iter().filter_map(|package| package.licence.as_deref());
    let words = expressions.flat_map(|expression| expression.split([' ', '(', ')']));
    let own: BTreeSet<&str> = words.filter(|word| word.starts_with("LicenseRef-")).collect();
    let text = "See usr/share/doc/PACKAGE/copyright of the packages that declare it.";
    own.into_iter().map(|id| json!({ "licenseId": id, "name": id, "extractedText": text })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, licence: Option<&str>) -> Package {
        let purl = format!("pkg:cargo/{name}@1");
        Package { name: name.to_owned(), version: "1".to_owned(), purl, licence: licence.map(str::to_owned) }
    }

    #[test]
    fn every_package_is_listed_once_and_contained_in_the_image() {
        let packages = [
            package("b", Some("MIT AND LicenseRef-x")),
            package("a", None),
            package("b", Some("MIT AND LicenseRef-x")),
        ];
        let text = document("example.com/a:1", "sha256:00", &packages);
        assert_eq!(text, document("example.com/a:1", "sha256:00", &packages));
        let bill: Value = serde_json::from_str(&text).unwrap();
        let names: Vec<_> = bill["packages"].as_array().unwrap().iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["example.com/a:1", "a", "b"]);
        assert_eq!(bill["packages"][1]["licenseDeclared"], UNKNOWN);
        assert_eq!(bill["hasExtractedLicensingInfos"][0]["licenseId"], "LicenseRef-x");
        let ids: BTreeSet<_> = bill["packages"].as_array().unwrap().iter().map(|p| p["SPDXID"].to_string()).collect();
        assert_eq!(ids.len(), 3);
        for relation in bill["relationships"].as_array().unwrap() {
            assert!(ids.contains(&relation["relatedSpdxElement"].to_string()), "{relation}");
        }
    }
}
