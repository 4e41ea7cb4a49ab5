//! Which DataVolumes are stored: the rules of upstream's webhook, in its words.

use api::cdi::{self, DataVolume};
use api::v1::{DataVolumeSource, DataVolumeSourceHTTP, DataVolumeSourceRegistry, DataVolumeSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, VolumeResourceRequirements};
use machinery::meta;

use crate::claim::{bytes, content_type};
use crate::size::LEAST;
use crate::source::DATA_SOURCE;
use crate::words::content;

/// The name with which refusals begin.
pub const WEBHOOK: &str = "datavolume-validate.cdi.kubevirt.io";

/// Why a DataVolume is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub field: &'static str,
    pub message: String,
    /// The name is taken, or the field cannot be changed any more.
    pub duplicate: bool,
}

fn cause(field: &'static str, message: impl Into<String>) -> Option<Cause> {
    Some(Cause { field, message: message.into(), duplicate: false })
}

/// Judges a change.
pub fn update(new: &DataVolume, old: &DataVolume) -> Option<Cause> {
    if new.spec == old.spec {
        return None;
    }
    Some(Cause { field: "DataVolume.Spec", message: "Cannot update DataVolume Spec".to_owned(), duplicate: true })
}

/// Judges a new DataVolume, where there is a claim of its name already.
pub fn create(dv: &DataVolume, claim: Option<&PersistentVolumeClaim>) -> Option<Cause> {
    taken(dv, claim).or_else(|| spec(dv))
}

fn taken(dv: &DataVolume, claim: Option<&PersistentVolumeClaim>) -> Option<Cause> {
    let claim = claim?;
    let populated = meta::annotation(&claim.metadata, cdi::POPULATED_FOR)
        .is_some_and(|name| Some(name) == dv.metadata.name.as_deref());
    let adopts = meta::annotation(&dv.metadata, cdi::ALLOW_CLAIM_ADOPTION) == Some("true");
    let owned = meta::controller_of(&claim.metadata).is_some_and(|owner| owner.kind == "DataVolume");
    if populated || adopts || owned {
        return None;
    }
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&claim.metadata.namespace), text(&claim.metadata.name));
    let message = format!("Destination PVC {namespace}/{name} already exists");
    Some(Cause { field: "DataVolume.Name", message, duplicate: true })
}

fn spec(dv: &DataVolume) -> Option<Cause> {
    let spec = &dv.spec;
    match (&spec.pvc, &spec.storage) {
        (None, None) => return cause("spec.PVC", "Missing Data volume PVC"),
        (Some(_), Some(_)) => {
            return cause(
                "spec.PVC.Storage",
                "Duplicate storage definition, both target storage and target pvc defined",
            );
        }
        _ => {}
    }
    size(spec).or_else(|| modes(spec)).or_else(|| sources(dv))
}

fn is_clone(spec: &DataVolumeSpec) -> bool {
    spec.source_ref.is_some()
        || spec.source.as_ref().is_some_and(|source| source.pvc.is_some() || source.snapshot.is_some())
}

fn size(spec: &DataVolumeSpec) -> Option<Cause> {
    let (field, name, resources) = match (&spec.pvc, &spec.storage) {
        (Some(pvc), _) => ("spec.PVC.resources.requests.size", "PVC", pvc.resources.as_ref()),
        (None, storage) => (
            "spec.Storage.resources.requests.size",
            "Storage",
            storage.as_ref().and_then(|storage| storage.resources.as_ref()),
        ),
    };
    let requested = |resources: &VolumeResourceRequirements| resources.requests.as_ref()?.get("storage").cloned();
    match resources.and_then(requested) {
        Some(quantity) => match bytes(&quantity) {
            None => cause(field, format!("{name} size {:?} is not a quantity", quantity.0)),
            Some(size) if size <= 0 => cause(field, format!("{name} size can't be equal or less than zero")),
            Some(size) if size < LEAST => cause(field, format!("{name} size should be at least 1MiB")),
            Some(_) => None,
        },
        None if spec.storage.is_none() || !is_clone(spec) => cause(field, format!("{name} size is missing")),
        None => None,
    }
}

const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

fn modes(spec: &DataVolumeSpec) -> Option<Cause> {
    const FIELD: &str = "spec.PVC.accessModes";
    let of_pvc = spec.pvc.as_ref().map(|pvc| pvc.access_modes.clone().unwrap_or_default());
    match of_pvc.as_deref() {
        Some([]) => return cause(FIELD, "Required value: at least 1 access mode is required"),
        Some([_, _, ..]) => return cause(FIELD, "PVC multiple accessModes"),
        _ => {}
    }
    let modes =
        of_pvc.or_else(|| spec.storage.as_ref().map(|storage| storage.access_modes.clone())).unwrap_or_default();
    let unknown = modes.iter().find(|mode| !ACCESS_MODES.contains(&mode.as_str()))?;
    let message = format!(
        "Unsupported value: {unknown:?}: supported values: \"ReadOnlyMany\", \"ReadWriteMany\", \"ReadWriteOnce\", \
         \"ReadWriteOncePod\""
    );
    cause(FIELD, message)
}

fn sources(dv: &DataVolume) -> Option<Cause> {
    let spec = &dv.spec;
    let own = |a: bool, b: bool| a || b;
    let external = spec.pvc.as_ref().is_some_and(|pvc| own(pvc.data_source.is_some(), pvc.data_source_ref.is_some()))
        || spec
            .storage
            .as_ref()
            .is_some_and(|storage| own(storage.data_source.is_some(), storage.data_source_ref.is_some()));
    match (&spec.source, &spec.source_ref) {
        (None, None) if external => None,
        _ if external => cause("spec.source", "External population is incompatible with Source and SourceRef"),
        (None, None) | (Some(_), Some(_)) => {
            cause("spec.source", "Data volume should have either Source or SourceRef, or be externally populated")
        }
        (None, Some(reference)) if reference.kind.is_empty() => cause("spec.sourceRef.Kind", "Missing sourceRef kind"),
        (None, Some(reference)) if reference.kind != DATA_SOURCE => cause(
            "spec.sourceRef.Kind",
            format!("Unsupported sourceRef kind {}, currently only DataSource is supported", reference.kind),
        ),
        (None, Some(reference)) if reference.name.is_empty() => cause("spec.sourceRef.Name", "Missing sourceRef name"),
        (None, Some(_)) => None,
        (Some(source), None) => of_source(dv, source),
    }
}

fn of_source(dv: &DataVolume, source: &DataVolumeSource) -> Option<Cause> {
    let DataVolumeSource { blank, gcs, http, imageio, pvc, registry, s3, snapshot, upload, vddk } = source;
    let set = [
        blank.is_some(),
        gcs.is_some(),
        http.is_some(),
        imageio.is_some(),
        pvc.is_some(),
        registry.is_some(),
        s3.is_some(),
        snapshot.is_some(),
        upload.is_some(),
        vddk.is_some(),
    ];
    match set.into_iter().filter(|is_set| *is_set).count() {
        0 => return cause("spec.source", "Missing Data volume source"),
        1 => {}
        _ => return cause("spec.source", "Multiple Data volume sources"),
    }
    let kind = content_type(dv);
    if ![content::KUBEVIRT, content::ARCHIVE].contains(&kind) {
        return cause("spec.contentType", "ContentType not one of: kubevirt, archive");
    }
    let archive = kind == content::ARCHIVE;
    if blank.is_some() && archive {
        return cause("spec.contentType", "SourceType cannot be blank and the contentType be archive");
    }
    if let Some(http) = http {
        return of_http(http);
    }
    if let Some(registry) = registry {
        return of_registry(registry, archive);
    }
    let nameless = |namespace: &str, name: &str| namespace.is_empty() || name.is_empty();
    if pvc.as_ref().is_some_and(|pvc| nameless(&pvc.namespace, &pvc.name)) {
        return cause("spec.source.PVC", "spec.source.PVC source PVC is not valid");
    }
    if snapshot.as_ref().is_some_and(|snapshot| nameless(&snapshot.namespace, &snapshot.name)) {
        return cause("spec.source.Snapshot", "spec.source.Snapshot source snapshot is not valid");
    }
    None
}

fn of_http(http: &DataVolumeSourceHTTP) -> Option<Cause> {
    const FIELD: &str = "spec.source.HTTP.url";
    if http.url.is_empty() {
        return cause("spec.source.HTTP", "spec.source.HTTP source URL is empty");
    }
    let rest = ["http://", "https://"].iter().find_map(|scheme| http.url.strip_prefix(scheme));
    match rest {
        None => return cause(FIELD, "spec.source.HTTP Invalid source URL scheme: use http:// or https://"),
        Some(rest) if rest.is_empty() || rest.starts_with('/') => {
            return cause(FIELD, "spec.source.HTTP Invalid source URL: it has no host");
        }
        Some(_) => {}
    }
    checksum(http.checksum.as_deref()?)
}

/// Algorithms of checksums, and how many hexadecimal digits they have.
const ALGORITHMS: [(&str, usize); 4] = [("md5", 32), ("sha1", 40), ("sha256", 64), ("sha512", 128)];

fn checksum(text: &str) -> Option<Cause> {
    const FIELD: &str = "spec.source.HTTP.checksum";
    if text.is_empty() {
        return None;
    }
    let Some((algorithm, digits)) = text.split_once(':') else {
        return cause(FIELD, format!("invalid checksum {text:?}: write it as algorithm:hash, such as sha256:…"));
    };
    let known = ALGORITHMS.iter().find(|(name, _)| name.eq_ignore_ascii_case(algorithm));
    match known {
        None => cause(FIELD, format!("unsupported checksum algorithm {algorithm:?}: use md5, sha1, sha256 or sha512")),
        Some((name, length)) if digits.len() != *length || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            cause(FIELD, format!("invalid checksum: {name} has {length} hexadecimal digits"))
        }
        Some(_) => None,
    }
}

fn of_registry(registry: &DataVolumeSourceRegistry, archive: bool) -> Option<Cause> {
    if archive {
        return cause("spec.contentType", "ContentType must be kubevirt when Source is Registry");
    }
    let url = match (&registry.url, &registry.image_stream) {
        (Some(url), None) => url,
        (None, Some(_)) => return None, // refused in the status, with the reason
        _ => return cause("spec.source.Registry", "Source registry should have either URL or ImageStream"),
    };
    if !url.starts_with("docker://") && !url.starts_with("oci-archive:") {
        return cause("spec.source.Registry.URL", format!("Illegal registry source URL scheme {url}"));
    }
    match registry.pull_method.as_deref() {
        None | Some("pod" | "node") => None,
        Some(other) => {
            cause("spec.source.Registry.importMethod", format!("ImportMethod {other} is neither pod, node or \"\""))
        }
    }
}
