//! Infers instance type and preference from the labels of a volume, or of the volume's source.
//!
//! ```text
//! claim ─► labels
//! DataVolume template ─► labels ─► source
//! DataVolume ─► labels ─► source            (gone: the claim of its name)
//! source: claim ─► labels, snapshot ─► labels, or DataSource ─► labels ─► its claim or snapshot ─► labels
//! ```
//!
//! There are two kinds of failure: the chain ends without a result, which the VM's owner may have chosen to ignore; or
//! an object in the chain does not exist, which is always an error.

use api::cdi::GROUP as CDI;
use api::labels;
use api::v1::{
    DataVolumeSource, DataVolumeSourceRef, InstancetypeMatcher, PreferenceMatcher, VirtualMachine, VolumeSource,
};
use instancetype::Subject;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::meta;
use serde::Deserialize;

use super::lookup::Lookup;
use super::matchers::{self, IGNORE, SUBJECTS};
use super::resolve::data_source;
use crate::Refusal;

/// Why nothing was inferred.
#[derive(Debug)]
enum Failure {
    /// The chain ends without a result.
    Silent(String),
    /// An object in the chain does not exist.
    Broken(String),
}

/// The name and the kind that were found.
type Inferred = (String, Option<String>);

/// Any object, decoded for its labels.
#[derive(Deserialize)]
struct Labelled {
    metadata: ObjectMeta,
}

/// A DataVolume, decoded for its labels and its source.
#[derive(Deserialize)]
struct DataVolume {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Origin,
}

/// The source of a DataVolume.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Origin {
    source: Option<DataVolumeSource>,
    source_ref: Option<DataVolumeSourceRef>,
}

/// Replaces matchers that refer to a volume with matchers that name an object.
pub(super) fn infer(vm: &mut VirtualMachine, lookup: &Lookup<'_>) -> Result<(), Refusal> {
    for subject in SUBJECTS {
        let Some(matcher) = matchers::matcher(&vm.spec, subject) else { continue };
        if matcher.infer_from_volume.is_empty() {
            continue;
        }
        let ignore = matcher.failure_policy == Some(IGNORE);
        match (Chain { vm, subject, lookup }).volume(matcher.infer_from_volume) {
            Ok(inferred) => {
                if ignore && subject == Subject::Instancetype {
                    // It was only set for the case that nothing is inferred.
                    vm.spec.template.spec.domain.memory = None;
                }
                replace(vm, subject, Some(inferred));
            }
            Err(Failure::Silent(_)) if ignore => replace(vm, subject, None),
            Err(Failure::Silent(why) | Failure::Broken(why)) => {
                let volume = matcher.infer_from_volume;
                let message = format!("cannot infer the {subject} from the volume {volume:?}: {why}");
                return Err(Refusal::BadRequest(message));
            }
        }
    }
    Ok(())
}

fn replace(vm: &mut VirtualMachine, subject: Subject, inferred: Option<Inferred>) {
    match subject {
        Subject::Instancetype => {
            let matcher = |(name, kind)| InstancetypeMatcher { name: Some(name), kind, ..Default::default() };
            vm.spec.instancetype = inferred.map(matcher);
        }
        Subject::Preference => {
            let matcher = |(name, kind)| PreferenceMatcher { name: Some(name), kind, ..Default::default() };
            vm.spec.preference = inferred.map(matcher);
        }
    }
}

/// The namespace of a DataSource: the VM's, if the reference names none.
pub(super) fn namespace_of<'a>(vm: &'a VirtualMachine, reference: &'a DataVolumeSourceRef) -> &'a str {
    let named = reference.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    named.unwrap_or_else(|| vm.metadata.namespace.as_deref().unwrap_or_default())
}

/// A walk from a volume to labels.
struct Chain<'a> {
    vm: &'a VirtualMachine,
    subject: Subject,
    lookup: &'a Lookup<'a>,
}

impl Chain<'_> {
    fn volume(&self, name: &str) -> Result<Inferred, Failure> {
        let volumes = &self.vm.spec.template.spec.volumes;
        let Some(volume) = volumes.iter().find(|volume| volume.name == name) else {
            return Err(Failure::Broken("the template has no volume of this name".to_owned()));
        };
        match volume.source() {
            VolumeSource::PersistentVolumeClaim(claim) => self.claim(self.namespace(), &claim.claim_name),
            VolumeSource::DataVolume(data_volume) => self.data_volume(&data_volume.name),
            VolumeSource::CloudInitConfigDrive(_)
            | VolumeSource::CloudInitNoCloud(_)
            | VolumeSource::ConfigMap(_)
            | VolumeSource::ContainerDisk(_)
            | VolumeSource::ContainerPath(_)
            | VolumeSource::DownwardApi(_)
            | VolumeSource::DownwardMetrics
            | VolumeSource::EmptyDisk(_)
            | VolumeSource::Ephemeral(_)
            | VolumeSource::HostDisk(_)
            | VolumeSource::MemoryDump(_)
            | VolumeSource::Secret(_)
            | VolumeSource::ServiceAccount(_)
            | VolumeSource::Sysprep(_)
            | VolumeSource::Unset => {
                Err(Failure::Silent("only claims and DataVolumes have labels to infer from".to_owned()))
            }
        }
    }

    fn data_volume(&self, name: &str) -> Result<Inferred, Failure> {
        let of_name =
            |metadata: &Option<ObjectMeta>| metadata.as_ref().and_then(|meta| meta.name.as_deref()) == Some(name);
        let mut templates = self.vm.spec.data_volume_templates.iter();
        if let Some(template) = templates.find(|template| of_name(&template.metadata)) {
            let own = template.metadata.as_ref().and_then(|metadata| self.labels(metadata));
            return own.map_or_else(|| self.origin(&template.spec.source, &template.spec.source_ref), Ok);
        }
        match self.lookup.get::<DataVolume>(CDI, "DataVolume", self.namespace(), name) {
            Some(found) => {
                self.labels(&found.metadata).map_or_else(|| self.origin(&found.spec.source, &found.spec.source_ref), Ok)
            }
            // A DataVolume may be garbage collected once its claim is populated.
            None => self.claim(self.namespace(), name),
        }
    }

    fn origin(
        &self,
        source: &Option<DataVolumeSource>,
        reference: &Option<DataVolumeSourceRef>,
    ) -> Result<Inferred, Failure> {
        if let Some(claim) = source.as_ref().and_then(|source| source.pvc.as_ref()) {
            return self.claim(&claim.namespace, &claim.name);
        }
        if let Some(snapshot) = source.as_ref().and_then(|source| source.snapshot.as_ref()) {
            return self.snapshot(&snapshot.namespace, &snapshot.name);
        }
        match reference {
            Some(reference) if reference.kind == "DataSource" => {
                self.data_source(namespace_of(self.vm, reference), &reference.name)
            }
            Some(reference) => Err(Failure::Silent(format!("a source of kind {:?} has no labels", reference.kind))),
            None => Err(Failure::Silent("the source of the DataVolume has no labels".to_owned())),
        }
    }

    fn data_source(&self, namespace: &str, name: &str) -> Result<Inferred, Failure> {
        let Some(found) = data_source(self.lookup, namespace, name) else {
            return Err(missing("DataSource", namespace, name));
        };
        if let Some(inferred) = self.labels(&found.metadata) {
            return Ok(inferred);
        }
        match (&found.spec.source.pvc, &found.spec.source.snapshot) {
            (Some(claim), _) => self.claim(&claim.namespace, &claim.name),
            (None, Some(snapshot)) => self.snapshot(&snapshot.namespace, &snapshot.name),
            (None, None) => {
                Err(Failure::Silent(format!("the DataSource {namespace}/{name} names no claim or snapshot")))
            }
        }
    }

    fn claim(&self, namespace: &str, name: &str) -> Result<Inferred, Failure> {
        self.labels_of("", "PersistentVolumeClaim", namespace, name)
    }

    fn snapshot(&self, namespace: &str, name: &str) -> Result<Inferred, Failure> {
        self.labels_of("snapshot.storage.k8s.io", "VolumeSnapshot", namespace, name)
    }

    /// The end of a chain.
    fn labels_of(
        &self,
        group: &'static str,
        kind: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<Inferred, Failure> {
        let namespace = if namespace.is_empty() { self.namespace() } else { namespace };
        let Some(found) = self.lookup.get::<Labelled>(group, kind, namespace, name) else {
            return Err(missing(kind, namespace, name));
        };
        let (label, _) = self.label_names();
        let silent = || Failure::Silent(format!("the {kind} {namespace}/{name} has no label {label}"));
        self.labels(&found.metadata).ok_or_else(silent)
    }

    fn labels(&self, metadata: &ObjectMeta) -> Option<Inferred> {
        let (name, kind) = self.label_names();
        let text = |label: &str| meta::label(metadata, label).filter(|value| !value.is_empty()).map(str::to_owned);
        Some((text(name)?, text(kind)))
    }

    fn label_names(&self) -> (&'static str, &'static str) {
        match self.subject {
            Subject::Instancetype => (labels::DEFAULT_INSTANCETYPE, labels::DEFAULT_INSTANCETYPE_KIND),
            Subject::Preference => (labels::DEFAULT_PREFERENCE, labels::DEFAULT_PREFERENCE_KIND),
        }
    }

    fn namespace(&self) -> &str {
        self.vm.metadata.namespace.as_deref().unwrap_or_default()
    }
}

fn missing(kind: &str, namespace: &str, name: &str) -> Failure {
    Failure::Broken(format!("the {kind} {namespace}/{name} does not exist"))
}
