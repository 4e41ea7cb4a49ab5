//! The kinds other than VMs and VMIs, one file each.
//!
//! A file holds the rules of its kind: a function from an object, and the previous version of it, to errors. Common
//! code is here: decoding and encoding, the status, deletions, and which kinds this build supports.
//!
//! Some rules need other objects. They only apply to objects that the world was asked about: a manifest that is
//! validated without a cluster gets no errors about objects that were not looked up.

mod backup;
mod clone;
mod export;
mod instancetype;
mod kubevirt;
mod migration;
mod migration_policy;
mod plugin;
mod pool;
mod preference;
mod preset;
mod replica_set;
mod restore;
mod snapshot;

use api::config::ClusterConfig;
use api::instancetype::{
    VirtualMachineClusterInstancetype, VirtualMachineClusterPreference, VirtualMachineInstancetype,
    VirtualMachinePreference,
};
use api::schema;
use api::snapshot::VirtualMachineSnapshotContent;
use k8s_openapi::Resource;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use machinery::field::{Cause, FieldError, FieldPath};
use machinery::selector::Selector;
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::decode::{decode, encode, stored};
use crate::{Judged, Operation, Refusal, Review, Shape, Wanted, World, accounts, unsupported};

/// One write, with everything needed to validate it.
struct Case<'a> {
    review: &'a Review<'a>,
    shape: Shape,
    config: &'a ClusterConfig,
    world: &'a World,
}

/// The findings of a kind's rules.
#[derive(Default)]
struct Found {
    causes: Vec<FieldError>,
    warnings: Vec<String>,
    /// Requested features that this build does not support.
    unsupported: Vec<FieldError>,
}

impl From<Vec<FieldError>> for Found {
    fn from(causes: Vec<FieldError>) -> Self {
        Found { causes, ..Found::default() }
    }
}

/// The other objects that the rules of a kind need.
pub(crate) fn wanted(review: &Review<'_>, world: &World) -> Vec<Wanted> {
    match (review.operation, review.resource) {
        _ if !review.subresource.is_empty() => Vec::new(),
        (Operation::Create, "virtualmachineinstancemigrations") => migration::wanted(review.object),
        (Operation::Create, "virtualmachinerestores") => restore::wanted(review.object, world),
        (Operation::Create, "virtualmachinebackups") => backup::wanted(review.object),
        (Operation::Create, "kubevirts") => kubevirt::wanted_to_create(),
        (Operation::Delete, "kubevirts") => kubevirt::wanted_to_delete(review.object),
        _ => Vec::new(),
    }
}

/// Validates a write of a kind other than VM and VMI.
pub(crate) fn judge(
    review: &Review<'_>,
    shape: Shape,
    config: &ClusterConfig,
    world: &World,
) -> Result<Judged, Refusal> {
    let case = Case { review, shape, config, world };
    match review.resource {
        "kubevirts" if review.operation == Operation::Delete => kubevirt::deletion(&case),
        "kubevirts" => case.judge_spec(kubevirt::rules),
        "migrationpolicies" => case.judge_spec(migration_policy::rules),
        "plugins" => case.judge_spec(plugin::rules),
        "virtualmachinebackups" => case.judge_spec(backup::rules),
        "virtualmachinebackuptrackers" => case.judge_spec(backup::tracker_rules),
        "virtualmachineclones" => case.judge_spec(clone::rules),
        "virtualmachineclusterinstancetypes" => {
            case.judge_spec::<VirtualMachineClusterInstancetype>(|_, object, _| Ok(instancetype::rules(&object.spec)))
        }
        "virtualmachineclusterpreferences" => {
            case.judge_spec::<VirtualMachineClusterPreference>(|_, object, _| Ok(preference::rules(&object.spec)))
        }
        "virtualmachineexports" => case.judge_spec(export::rules),
        "virtualmachineinstancemigrations" => case.judge(migration::rules),
        "virtualmachineinstancepresets" => case.judge_spec(preset::rules),
        "virtualmachineinstancereplicasets" => case.judge_spec(replica_set::rules),
        "virtualmachineinstancetypes" => {
            case.judge_spec::<VirtualMachineInstancetype>(|_, object, _| Ok(instancetype::rules(&object.spec)))
        }
        "virtualmachinepools" => pool::judge(&case),
        "virtualmachinepreferences" => {
            case.judge_spec::<VirtualMachinePreference>(|_, object, _| Ok(preference::rules(&object.spec)))
        }
        "virtualmachinerestores" => case.judge_spec(restore::rules),
        // Contents belong to the snapshot controller; only their schema applies.
        "virtualmachinesnapshotcontents" => {
            case.judge_spec::<VirtualMachineSnapshotContent>(|_, _, _| Ok(Found::default()))
        }
        "virtualmachinesnapshots" => case.judge_spec(snapshot::rules),
        other => Err(Refusal::BadRequest(format!("{other} is not a resource of this API"))),
    }
}

impl Case<'_> {
    /// Validates a write against its kind's schema and rules. The rules may change the object, and get the previous
    /// version of it if this is an update.
    fn judge<T>(
        &self,
        rules: impl FnOnce(&Case<'_>, &mut T, Option<&T>) -> Result<Found, Refusal>,
    ) -> Result<Judged, Refusal>
    where
        T: Resource + Serialize + DeserializeOwned + Default,
    {
        let own = accounts::is_own(self.review.user, self.config);
        if self.review.operation == Operation::Delete {
            return Ok(Judged::valid(self.review.object.clone()));
        }
        if self.review.subresource == "status" {
            return Ok(self.status(T::KIND, own));
        }
        let mut object: T = decode(T::KIND, self.review.object, own)?;
        let creating = self.review.operation == Operation::Create;
        let old = (!creating).then(|| self.before::<T>());
        let Found { causes, warnings, mut unsupported } = rules(self, &mut object, old.as_ref())?;
        unsupported.extend(unsupported::kind(T::KIND).filter(|_| creating));
        Ok(Judged { object: self.written(&object), warnings, causes, unsupported })
    }

    /// Like [`Case::judge`], for rules about the spec alone. An update that does not change the spec is admitted: it
    /// was validated when it was written, and a newer rule or configuration must not prevent changes to labels or
    /// finalizers.
    fn judge_spec<T>(
        &self,
        rules: impl FnOnce(&Case<'_>, &mut T, Option<&T>) -> Result<Found, Refusal>,
    ) -> Result<Judged, Refusal>
    where
        T: Resource + Serialize + DeserializeOwned + Default,
    {
        self.judge(|case, object: &mut T, old| match old {
            Some(old) if encode(old)["spec"] == encode(object)["spec"] => Ok(Found::default()),
            _ => rules(case, object, old),
        })
    }

    /// The object before an update, decoded with the current schema.
    fn before<T>(&self) -> T
    where
        T: Resource + DeserializeOwned + Default,
    {
        let mut old = self.review.old.cloned().unwrap_or_default();
        schema::apply_defaults(T::KIND, &mut old);
        schema::respell_quantities(T::KIND, &mut old);
        stored(&old).unwrap_or_default()
    }

    /// A status belongs to its controller; it only has to be decodable.
    fn status(&self, kind: &str, own: bool) -> Judged {
        let mut object = self.review.object.clone();
        let unknown = schema::prune(kind, &mut object);
        let mut causes = schema::check(kind, &object);
        if !own {
            causes.extend(unknown.into_iter().map(|field| FieldError::new(Cause::Invalid, field, "unknown field")));
        }
        causes.retain(|cause| cause.field.as_str().starts_with("status"));
        Judged::with_causes(object, causes)
    }

    /// The object as it is returned to the client, in the client's API version.
    fn written(&self, object: &impl Serialize) -> Value {
        let mut written = encode(object);
        if let Some(version) = self.review.object.get("apiVersion").filter(|version| version.is_string()) {
            written["apiVersion"] = version.clone();
        }
        written
    }

    /// Rejects new objects of a kind whose feature gate is disabled.
    fn gate(&self, name: &str) -> Result<(), Refusal> {
        if self.review.operation != Operation::Create || self.config.feature_gate(name) {
            return Ok(());
        }
        let remedy = "add it to spec.configuration.developerConfiguration.featureGates of the KubeVirt object";
        Err(Refusal::BadRequest(format!("{name} feature gate not enabled: {remedy}")))
    }
}

/// The string at a JSON pointer of an object that is not decoded yet; empty if there is none.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The object's namespace; empty if it has none.
fn namespace(metadata: &ObjectMeta) -> &str {
    metadata.namespace.as_deref().unwrap_or_default()
}

/// Whether a text is JSON of any kind.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// An error if the immutable spec has changed.
fn immutable<T: PartialEq>(new: &T, old: &T) -> Vec<FieldError> {
    let changed = (new != old).then(|| {
        let message = "spec is immutable after creation: delete the object and create another";
        FieldError::new(Cause::Invalid, FieldPath::new("spec"), message)
    });
    changed.into_iter().collect()
}

/// A selector must match the labels of its template.
fn selects(field: &FieldPath, selector: &LabelSelector, template: Option<&ObjectMeta>) -> Option<FieldError> {
    let invalid = |message: String| Some(FieldError::new(Cause::Invalid, field.clone(), message));
    let labels = template.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    match Selector::from_label_selector(selector) {
        Err(error) => invalid(error.to_string()),
        Ok(selector) if !selector.matches(&labels) => {
            invalid("selector does not match the template's labels".to_owned())
        }
        Ok(_) => None,
    }
}
