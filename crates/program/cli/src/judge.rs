//! Admission without a cluster: the admitted form of a manifest, or why it is rejected.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use admission::{Judged, Operation, Refusal, Review, Shape, User, Wanted, World};
use api::config::ClusterConfig;
use api::resources::{self, RESOURCES, Resource};
use api::v1::{KubeVirt, VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::{Cause, FieldError, FieldPath};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifest::{self, Document, Origin, ReadError};

/// UID of objects that were never stored; recognizably fake, also in what is derived from it.
const MADE_UP_UID: &str = "00000000-0000-4000-8000-000000000000";

/// Default namespace of objects.
const NAMESPACE: &str = "default";

/// Where manifests come from, and the configuration they are judged under.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// File or directory that contains the manifests; - for standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,
    /// Process the directory recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Manifest of the KubeVirt object whose configuration applies [default: KubeVirt's defaults]
    #[arg(long, value_name = "FILE")]
    kubevirt_config: Option<PathBuf>,
    /// Check for an embedded cluster [default: accept what only Kubernetes supports, with a warning]
    #[arg(long)]
    embedded: bool,
}

impl Source {
    pub(crate) fn documents(&self) -> Result<Vec<Document>, ReadError> {
        manifest::read(&self.filename, self.recursive)
    }

    /// A judge with these objects.
    pub(crate) fn judge(&self, documents: &[Document]) -> Result<Judge, ReadError> {
        let config = self.kubevirt_config.as_deref().map(configuration).transpose()?;
        Ok(Judge { embedded: self.embedded, ..Judge::new(config, documents) })
    }
}

fn configuration(path: &Path) -> Result<ClusterConfig, ReadError> {
    let documents = manifest::read(&[path.to_owned()], false)?;
    let Some(document) = documents.into_iter().find(|document| document.kind() == "KubeVirt") else {
        let origin = Origin { file: path.display().to_string(), document: 1, line: 1 };
        return Err(unusable(origin, "has no KubeVirt object".to_owned()));
    };
    let refuse = |problem: String| unusable(document.origin.clone(), problem);
    let kubevirt: KubeVirt =
        serde_json::from_value(document.object.clone()).map_err(|error| refuse(error.to_string()))?;
    ClusterConfig::from_kubevirt(&kubevirt).map_err(|error| refuse(error.to_string()))
}

fn all_gates_open() -> ClusterConfig {
    let mut config = ClusterConfig::default();
    let developer = config.configuration.developer_configuration.get_or_insert_default();
    developer.feature_gates = api::gates::names().map(str::to_owned).collect();
    config
}

/// The time for objects that are never stored. Recognizably fake, and the same in every run.
fn now() -> Time {
    Time(Timestamp::UNIX_EPOCH)
}

fn unusable(origin: Origin, problem: String) -> ReadError {
    manifests::ReadError::Object { origin, problem }.into()
}

/// An object with its defaults and remarks, or why it is rejected.
pub(crate) type Verdict = Result<Judged, Vec<FieldError>>;

/// Judges manifests one by one, as an API server with this configuration would when a user creates them.
pub(crate) struct Judge {
    pub(crate) config: ClusterConfig,
    /// The same with every feature gate enabled, if no configuration was given.
    open: Option<ClusterConfig>,
    /// Whether what only Kubernetes supports is unsupported.
    embedded: bool,
    /// All objects of the input, which may refer to each other.
    objects: Vec<Value>,
}

impl Judge {
    fn new(config: Option<ClusterConfig>, documents: &[Document]) -> Self {
        let open = config.is_none().then(all_gates_open);
        let objects = documents.iter().map(|document| received(resource_of(&document.object), &document.object));
        Judge { config: config.unwrap_or_default(), open, embedded: false, objects: objects.collect() }
    }

    /// The object with its defaults and remarks, or why it is rejected. `None` for kinds that are not ours.
    pub(crate) fn judge(&self, object: &Value) -> Option<Verdict> {
        let resource = match served(object)? {
            Ok(resource) => resource,
            Err(error) => return Some(Err(vec![error])),
        };
        let user = User { name: "kubernetes-admin".into(), groups: vec!["system:masters".into()], ..User::default() };
        let (version, received) = (resource.storage_version(), received(Some(resource), object));
        let creation = Review::of(Operation::Create, version, resource.plural, &user, &received, now());
        let world = self.world(&creation);
        let verdict = admission::judge(&creation, self.shape(), &self.config, &world).map_err(causes);
        let verdict = self.with_gates_open(verdict, &creation, &world);
        Some(verdict.map(|mut judged| {
            as_written(&mut judged.object, object);
            judged.warnings.extend(self.only_on_kubernetes(&creation, &world, &judged));
            judged.warnings.extend(deprecation(resource, object).map(str::to_owned));
            judged
        }))
    }

    fn shape(&self) -> Shape {
        if self.embedded { Shape::Embedded } else { Shape::Kubernetes }
    }

    /// Feature gates belong to the cluster, not to the object: without a given configuration, an objection that is only
    /// due to a disabled gate becomes a warning.
    fn with_gates_open(&self, verdict: Verdict, creation: &Review<'_>, world: &World) -> Verdict {
        let errors = match &verdict {
            Ok(judged) => &judged.causes,
            Err(errors) => errors,
        };
        let Some(open) = self.open.as_ref().filter(|_| !errors.is_empty()) else { return verdict };
        let Ok(mut again) = admission::judge(creation, self.shape(), open, world) else { return verdict };
        let gated: Vec<&FieldError> = errors.iter().filter(|error| !again.causes.contains(error)).collect();
        if gated.is_empty() {
            return verdict;
        }
        again.warnings.extend(gated.iter().map(|error| format!("{error} (unless --kubevirt-config says otherwise)")));
        Ok(again)
    }

    /// The manifest does not say where it is going to be applied: what only one shape supports is a warning.
    fn only_on_kubernetes(&self, creation: &Review<'_>, world: &World, judged: &Judged) -> Vec<String> {
        if self.embedded {
            return Vec::new();
        }
        let config = self.open.as_ref().unwrap_or(&self.config);
        let Ok(there) = admission::judge(creation, Shape::Embedded, config, world) else { return Vec::new() };
        let more =
            there.unsupported.iter().filter(|error| judged.unsupported.iter().all(|known| known.field != error.field));
        // About an installation there are only warnings.
        let warnings = there.warnings.iter().filter(|warning| !judged.warnings.contains(warning));
        more.map(ToString::to_string).chain(warnings.cloned()).collect()
    }

    /// The other objects that a judgement needs. Missing ones are treated as unknown: they may exist in the cluster.
    fn world(&self, creation: &Review<'_>) -> World {
        let mut world = World::default();
        let mut asked = BTreeSet::new();
        loop {
            let mut wanted = admission::wanted(creation, &world);
            wanted.retain(|wanted| asked.insert(wanted.clone()));
            if wanted.is_empty() {
                return world;
            }
            for wanted in wanted {
                let others = self.objects.iter().filter(|other| key(other) != key(creation.object));
                let found: Vec<Value> = others.filter(|other| is_wanted(&wanted, other)).cloned().collect();
                if !found.is_empty() {
                    world.learn(wanted, found);
                }
            }
        }
    }

    /// The object with its defaults, if it is valid and fully supported by this build.
    fn admit(&self, object: &Value) -> Result<Value, Vec<FieldError>> {
        let judged = self.judge(object).unwrap_or_else(|| Err(vec![not_a_machine(object)]))?;
        let Judged { object, causes, unsupported, warnings: _ } = judged;
        let errors = admission::unsupported::with_rules(unsupported, causes);
        if errors.is_empty() { Ok(object) } else { Err(errors) }
    }

    /// The VMI that results from the manifest of a VM or a VMI.
    pub(crate) fn instance(&self, object: &Value) -> Result<VirtualMachineInstance, Vec<FieldError>> {
        let admitted = stored(self.admit(object)?);
        match object["kind"].as_str() {
            Some("VirtualMachine") => {
                let vmi = self.start(decode(admitted)?)?;
                let vmi = serde_json::to_value(vmi).map_err(|error| vec![undecodable(&error)])?;
                // What the controller creates is admitted like anything else.
                decode(stored(self.admit(&vmi)?))
            }
            Some("VirtualMachineInstance") => decode(admitted),
            _ => Err(vec![not_a_machine(object)]),
        }
    }

    /// The VMI that the controller creates for a VM.
    fn start(&self, vm: VirtualMachine) -> Result<VirtualMachineInstance, Vec<FieldError>> {
        let started = super::start::instance(vm, &self.objects, &self.config);
        started.map_err(|error| vec![undecodable(&error)])?.ok_or_else(|| {
            let message = "the controller would not start this virtual machine";
            vec![FieldError::new(Cause::Invalid, FieldPath::new("spec"), message)]
        })
    }
}

/// What identifies an object.
fn key(object: &Value) -> [&str; 4] {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let group = text("/apiVersion").split_once('/').map_or("", |(group, _)| group);
    [group, text("/kind"), text("/metadata/namespace"), text("/metadata/name")]
}

fn is_wanted(wanted: &Wanted, object: &Value) -> bool {
    let [group, kind, namespace, name] = key(object);
    (group, kind) == (wanted.group, wanted.kind)
        && (wanted.namespace.is_empty() || wanted.namespace == namespace)
        && wanted.name.as_deref().is_none_or(|wanted| wanted == name)
}

fn causes(refusal: Refusal) -> Vec<FieldError> {
    match refusal {
        Refusal::Invalid(errors) => errors,
        Refusal::BadRequest(message) => vec![FieldError::new(Cause::Forbidden, FieldPath::root(), message)],
    }
}

fn resource_of(object: &Value) -> Option<&'static Resource> {
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    resources::of_kind(group, object["kind"].as_str()?)
}

/// The object's kind among ours, or why no server would know it. `None` for groups that are not ours.
fn served(object: &Value) -> Option<Result<&'static Resource, FieldError>> {
    let api_version = object["apiVersion"].as_str()?;
    let (group, version) = api_version.split_once('/')?;
    let Some(resource) = resource_of(object) else {
        let ours = RESOURCES.iter().filter(|resource| resource.group == group).map(|resource| resource.kind);
        let kinds: Vec<&str> = ours.collect();
        let kind = object["kind"].as_str().unwrap_or_default();
        return (!kinds.is_empty()).then(|| Err(FieldError::not_supported(FieldPath::new("kind"), kind, &kinds)));
    };
    if resource.version(version).is_none() {
        let served: Vec<String> = resource.versions.iter().map(|version| format!("{group}/{}", version.name)).collect();
        let served: Vec<&str> = served.iter().map(String::as_str).collect();
        return Some(Err(FieldError::not_supported(FieldPath::new("apiVersion"), api_version, &served)));
    }
    Some(Ok(resource))
}

/// The object as admission receives it: in its stored version, and with a namespace.
fn received(resource: Option<&Resource>, object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(resource) = resource {
        object["apiVersion"] = json!(resource.api_version());
    }
    if resource.is_none_or(|resource| resource.namespaced)
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.entry("namespace").or_insert_with(|| json!(NAMESPACE));
    }
    object
}

/// The deprecation warning of an old version.
fn deprecation(resource: &Resource, object: &Value) -> Option<&'static str> {
    let (_, version) = object["apiVersion"].as_str()?.split_once('/')?;
    resource.version(version)?.deprecated
}

/// Restores the version and a missing namespace as they were in the manifest.
fn as_written(judged: &mut Value, written: &Value) {
    judged["apiVersion"] = written["apiVersion"].clone();
    if written.pointer("/metadata/namespace").is_none()
        && let Some(metadata) = judged.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("namespace");
    }
}

/// An object as it would be once stored.
pub(crate) fn stored(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("uid").or_insert_with(|| json!(MADE_UP_UID));
        metadata.entry("namespace").or_insert_with(|| json!(NAMESPACE));
        metadata.entry("generation").or_insert_with(|| json!(1));
    }
    object
}

fn decode<T: DeserializeOwned>(object: Value) -> Result<T, Vec<FieldError>> {
    serde_json::from_value(object).map_err(|error| vec![undecodable(&error)])
}

fn undecodable(error: &dyn std::error::Error) -> FieldError {
    FieldError::new(Cause::TypeInvalid, FieldPath::root(), error.to_string())
}

fn not_a_machine(object: &Value) -> FieldError {
    let kind = object["kind"].as_str().unwrap_or_default();
    let message =
        format!("{kind} is neither a VirtualMachine nor a VirtualMachineInstance of {}", api::v1::API_VERSION);
    FieldError::new(Cause::Invalid, FieldPath::new("kind"), message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge() -> Judge {
        Judge::new(None, &[])
    }

    /// The manifests that users are told to try.
    fn example(name: &str) -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples").join(name);
        manifest::read(&[path], false).unwrap().remove(0).object
    }

    #[test]
    fn the_examples_are_accepted_and_lead_to_instances() {
        for (file, name) in
            [("vm.yaml", "demo"), ("vm-halted.yaml", "halted"), ("vmi-containerdisk.yaml", "containerdisk")]
        {
            let vmi = judge().instance(&example(file)).unwrap_or_else(|errors| panic!("{file}: {errors:?}"));
            assert_eq!(vmi.metadata.name.as_deref(), Some(name));
            assert_eq!(vmi.metadata.uid.as_deref(), Some(MADE_UP_UID));
            assert_eq!(
                vmi.spec.domain.memory.and_then(|memory| memory.guest).map(|guest| guest.0).as_deref(),
                Some("256Mi")
            );
        }
        assert!(judge().judge(&example("client-pod.yaml")).is_none(), "a Pod is not ours to judge");
    }

    #[test]
    fn a_refusal_names_the_field_also_of_a_template() {
        let mut vm = example("vm.yaml");
        vm["spec"]["template"]["spec"]["domain"]["devices"]["interfaces"][0] = json!({"name": "default", "bridge": {}});
        let errors = judge().instance(&vm).unwrap_err();
        let field = "spec.template.spec.domain.devices.interfaces[0].bridge";
        assert!(errors.iter().any(|error| error.field.as_str() == field), "{errors:?}");
    }

    #[test]
    fn a_network_of_multus_is_for_kubernetes_and_the_user_is_told() {
        let mut vm = example("vm.yaml");
        let spec = &mut vm["spec"]["template"]["spec"];
        spec["networks"] = json!([{"name": "blue", "multus": {"networkName": "second"}}]);
        spec["domain"]["devices"]["interfaces"] = json!([{"name": "blue", "bridge": {}}]);
        let judged = judge().judge(&vm).unwrap().unwrap();
        assert_eq!((judged.causes, judged.unsupported), (vec![], vec![]));
        let fields = ["domain.devices.interfaces[0].bridge", "networks[0].multus.networkName"];
        for (told, field) in judged.warnings.iter().zip(fields) {
            assert!(told.starts_with(&format!("spec.template.spec.{field}: ")), "{told}");
            assert!(told.contains("not supported on an embedded cluster") && told.contains("install"), "{told}");
        }
        assert_eq!(judged.warnings.len(), fields.len());

        let strict = Judge { embedded: true, ..judge() }.judge(&vm).unwrap().unwrap();
        assert_eq!((strict.unsupported.len(), strict.warnings.len()), (fields.len(), 0));
    }

    #[test]
    fn settings_of_an_installation_are_for_kubernetes_and_the_user_is_told() {
        let kubevirt = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
            "spec": {"imageTag": "v1", "synchronizationPort": "9185"},
        });
        let told = judge().judge(&kubevirt).unwrap().unwrap().warnings;
        let fields: Vec<_> = told.iter().filter_map(|warning| warning.split_once(": ")).collect();
        let [(everywhere, _), (embedded, why)] = fields[..] else { panic!("{told:?}") };
        assert_eq!((everywhere, embedded), ("spec.synchronizationPort", "spec.imageTag"));
        assert!(why.contains("not supported on an embedded cluster"), "{why}");
    }

    #[test]
    fn kinds_and_versions_that_no_server_knows_are_refused() {
        let of = |api_version: &str, kind: &str| judge().judge(&json!({"apiVersion": api_version, "kind": kind}));
        let refused = |api_version, kind| of(api_version, kind).unwrap().unwrap_err().remove(0).to_string();
        let told = refused("kubevirt.io/v1", "VirtualMachinePool");
        assert!(told.starts_with("kind: Unsupported value: \"VirtualMachinePool\""), "{told}");
        assert_eq!(
            refused("pool.kubevirt.io/v1", "VirtualMachinePool"),
            "apiVersion: Unsupported value: \"pool.kubevirt.io/v1\": \
             supported values: \"pool.kubevirt.io/v1alpha1\", \"pool.kubevirt.io/v1beta1\""
        );
        assert!(of("notkubevirt.io/v1", "VirtualMachine").is_none());
        assert!(of("cdi.kubevirt.io/v1beta1", "DataVolume").is_none());
    }

    #[test]
    fn a_closed_gate_stands_against_an_object_only_where_gates_are_known() {
        let mut vmi = example("vmi-containerdisk.yaml");
        vmi["spec"]["volumes"][0] = json!({"name": "root", "hostDisk": {"path": "/d", "type": "Disk"}});
        let judged = judge().judge(&vmi).unwrap().unwrap();
        assert_eq!(judged.causes, []);
        assert!(judged.warnings.iter().any(|warning| warning.contains("--kubevirt-config")), "{:?}", judged.warnings);
        let closed = Judge::new(Some(ClusterConfig::default()), &[]).judge(&vmi).unwrap().unwrap();
        assert!(!closed.causes.is_empty());
    }

    #[test]
    fn an_object_is_given_back_in_the_version_and_namespace_it_was_written_with() {
        let mut vm = example("vm.yaml");
        vm["apiVersion"] = json!("kubevirt.io/v1alpha3");
        let judged = judge().judge(&vm).unwrap().unwrap();
        assert_eq!(judged.object["apiVersion"], "kubevirt.io/v1alpha3");
        assert_eq!(judged.object.pointer("/metadata/namespace"), None);
        assert!(judged.warnings.iter().any(|warning| warning.contains("deprecated")), "{:?}", judged.warnings);
    }
}
