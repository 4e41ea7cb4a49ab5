//! What a DataVolume asks for: what is to be done to its claim, or why this importer cannot.

use api::cdi::{DataSource, DataSourceSource, DataVolume};
use api::v1::{DataVolumeSource, DataVolumeSourceHTTP, DataVolumeSourceRef, DataVolumeSourceRegistry};

use crate::cluster::Cluster;
use crate::words::reasons;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Work {
    /// The content is fetched or made.
    Import(Import),
    /// The content is uploaded.
    Upload,
    /// The provisioner copies.
    Clone(Origin),
    /// The claim says itself where its content comes from.
    External,
}

/// What is fetched.
#[derive(Clone, Debug, PartialEq)]
pub enum Import {
    Http(DataVolumeSourceHTTP),
    Registry(DataVolumeSourceRegistry),
    Blank,
}

impl Import {
    /// As the annotation of the claim calls it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Registry(_) => "registry",
            Self::Blank => "none",
        }
    }
}

/// What is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub kind: OriginKind,
    pub namespace: String,
    pub name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginKind {
    Claim,
    Snapshot,
}

impl Origin {
    /// As the importer's messages call its kind.
    pub(crate) fn word(&self) -> &'static str {
        match self.kind {
            OriginKind::Claim => "pvc",
            OriginKind::Snapshot => "snapshot",
        }
    }
}

/// Why a DataVolume is not worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// This importer cannot, and waiting does not help.
    Unsupported(String),
    /// Something is missing that may come; with the reason of an event.
    Missing { reason: &'static str, message: String },
}

/// What the DataVolume asks for.
pub(crate) fn work(dv: &DataVolume, cluster: &dyn Cluster) -> Result<Work, Obstacle> {
    if !dv.spec.checkpoints.is_empty() {
        return Err(Obstacle::Unsupported(
            "spec.checkpoints is not supported: this importer copies a disk in one stage. Remove it, and import a \
             disk that nobody writes to"
                .to_owned(),
        ));
    }
    let namespace = dv.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(reference) = &dv.spec.source_ref {
        return follow(reference, namespace, cluster).map(Work::Clone);
    }
    match &dv.spec.source {
        Some(source) => of_source(source, namespace),
        None if has_own_source(dv) => Ok(Work::External),
        None => {
            Err(Obstacle::Unsupported("the DataVolume has no source; set spec.source or spec.sourceRef".to_owned()))
        }
    }
}

fn has_own_source(dv: &DataVolume) -> bool {
    let pvc = dv.spec.pvc.as_ref().is_some_and(|pvc| pvc.data_source.is_some() || pvc.data_source_ref.is_some());
    let storage = dv
        .spec
        .storage
        .as_ref()
        .is_some_and(|storage| storage.data_source.is_some() || storage.data_source_ref.is_some());
    pvc || storage
}

fn of_source(source: &DataVolumeSource, own: &str) -> Result<Work, Obstacle> {
    let DataVolumeSource { blank, gcs, http, imageio, pvc, registry, s3, snapshot, upload, vddk } = source;
    let unsupported =
        [("gcs", gcs.is_some()), ("imageio", imageio.is_some()), ("s3", s3.is_some()), ("vddk", vddk.is_some())];
    if let Some((name, _)) = unsupported.into_iter().find(|(_, is_set)| *is_set) {
        return Err(Obstacle::Unsupported(format!(
            "the source {name} is not supported by this importer; use http, registry, upload, blank, pvc or snapshot"
        )));
    }
    let origin = |kind, namespace: &str, name: &str| {
        let namespace = if namespace.is_empty() { own } else { namespace };
        Work::Clone(Origin { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    };
    if let Some(http) = http {
        return Ok(Work::Import(Import::Http(http.clone())));
    }
    if let Some(registry) = registry {
        return of_registry(registry).map(|()| Work::Import(Import::Registry(registry.clone())));
    }
    if let Some(pvc) = pvc {
        return Ok(origin(OriginKind::Claim, &pvc.namespace, &pvc.name));
    }
    if let Some(snapshot) = snapshot {
        return Ok(origin(OriginKind::Snapshot, &snapshot.namespace, &snapshot.name));
    }
    if upload.is_some() {
        return Ok(Work::Upload);
    }
    if blank.is_some() {
        return Ok(Work::Import(Import::Blank));
    }
    Err(Obstacle::Unsupported("spec.source names no source that this importer knows".to_owned()))
}

fn of_registry(registry: &DataVolumeSourceRegistry) -> Result<(), Obstacle> {
    let refused = |what: &str| Err(Obstacle::Unsupported(what.to_owned()));
    if registry.image_stream.is_some() {
        return refused("spec.source.registry.imageStream is not supported; set spec.source.registry.url");
    }
    if registry.pull_method.as_deref() == Some("node") {
        return refused(
            "spec.source.registry.pullMethod node is not supported: images are not fetched through a node. Remove it",
        );
    }
    let platform = registry.platform.as_ref().and_then(|platform| platform.architecture.as_deref());
    if platform.is_some_and(|architecture| !architecture.is_empty()) {
        return refused(
            "spec.source.registry.platform is not supported: images of this machine's architecture are fetched. Remove it",
        );
    }
    if registry.url.as_deref().unwrap_or_default().is_empty() {
        return refused("spec.source.registry.url is empty");
    }
    Ok(())
}

/// The claim or snapshot at the end of a reference.
fn follow(reference: &DataVolumeSourceRef, own: &str, cluster: &dyn Cluster) -> Result<Origin, Obstacle> {
    if reference.kind != DATA_SOURCE {
        return Err(Obstacle::Unsupported(format!(
            "Unsupported sourceRef kind {}, currently only {DATA_SOURCE} is supported",
            reference.kind
        )));
    }
    let namespace = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or(own);
    let Some(found) = cluster.data_source(namespace, &reference.name) else {
        let message = format!("The source dataSource {namespace}/{} doesn't exist", reference.name);
        return Err(Obstacle::Missing { reason: reasons::CLONE_WITHOUT_SOURCE, message });
    };
    let end = end_of(&found, cluster)
        .map_err(|broken| Obstacle::Missing { reason: broken.reason, message: broken.message })?;
    match end {
        End::Origin(origin) => Ok(origin),
        End::Empty => Err(Obstacle::Missing {
            reason: reasons::CLONE_WITHOUT_SOURCE,
            message: format!("DataSource {namespace}/{} names no claim and no snapshot", reference.name),
        }),
    }
}

/// The kind that `spec.sourceRef` can name.
pub(crate) const DATA_SOURCE: &str = "DataSource";

/// Where a DataSource leads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    Origin(Origin),
    Empty,
}

/// Why a DataSource leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// Follows a DataSource, at most through one other in the same namespace, as upstream does.
pub(crate) fn end_of(found: &DataSource, cluster: &dyn Cluster) -> Result<End, Broken> {
    let namespace = found.metadata.namespace.as_deref().unwrap_or_default();
    let Some(next) = &found.spec.source.data_source else {
        return Ok(end(&found.spec.source, namespace));
    };
    let broken = |reason, message: &str| Err(Broken { reason, message: message.to_owned() });
    if !next.namespace.is_empty() && next.namespace != namespace {
        return broken(
            reasons::CROSS_NAMESPACE_REFERENCE,
            "DataSource cannot reference a DataSource in another namespace",
        );
    }
    if Some(next.name.as_str()) == found.metadata.name.as_deref() {
        return broken(reasons::SELF_REFERENCE, "DataSource cannot self-reference");
    }
    let Some(second) = cluster.data_source(namespace, &next.name) else {
        let message = format!("datasources.cdi.kubevirt.io \"{}\" not found", next.name);
        return Err(Broken { reason: reasons::NOT_FOUND, message });
    };
    if second.spec.source.data_source.is_some() {
        return broken(reasons::MAX_REFERENCE_DEPTH, "DataSource reference chain exceeds maximum depth of 1");
    }
    Ok(end(&second.spec.source, namespace))
}

fn end(source: &DataSourceSource, own: &str) -> End {
    let origin = |kind, namespace: &str, name: &str| {
        let namespace = if namespace.is_empty() { own } else { namespace };
        End::Origin(Origin { kind, namespace: namespace.to_owned(), name: name.to_owned() })
    };
    match (&source.pvc, &source.snapshot) {
        (Some(pvc), _) => origin(OriginKind::Claim, &pvc.namespace, &pvc.name),
        (None, Some(snapshot)) => origin(OriginKind::Snapshot, &snapshot.namespace, &snapshot.name),
        (None, None) => End::Empty,
    }
}
