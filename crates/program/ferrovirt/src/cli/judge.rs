//! Admission without a cluster: what a manifest becomes, or why it is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admission::{Admitted, Operation, Request, User};
use api::config::ClusterConfig;
use api::v1::{KubeVirt, RunStrategy, VirtualMachine, VirtualMachineInstance};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::{Cause, FieldError, FieldPath};
use plan::vm::{Action, World, decide};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifest::{self, Document, ReadError};

/// The UID of objects that have none, as they were never stored. What is derived from it shows as made up.
const MADE_UP_UID: &str = "00000000-0000-4000-8000-000000000000";

/// Where manifests come from, and the configuration they are judged under.
#[derive(Debug, clap::Args)]
pub(crate) struct Source {
    /// File or directory with manifests; - is standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,
    /// Also read the directories below
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Manifest of a KubeVirt object whose configuration counts, instead of the defaults
    #[arg(long, value_name = "FILE")]
    kubevirt_config: Option<PathBuf>,
}

impl Source {
    pub(crate) fn documents(&self) -> Result<Vec<Document>, ReadError> {
        manifest::read(&self.filename, self.recursive)
    }

    pub(crate) fn judge(&self) -> Result<Judge, ReadError> {
        let config = match &self.kubevirt_config {
            Some(path) => configuration(path)?,
            None => ClusterConfig::default(),
        };
        // Whole seconds, as the API keeps times.
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap_or(Timestamp::UNIX_EPOCH);
        Ok(Judge { config, now: Time(now) })
    }
}

fn configuration(path: &Path) -> Result<ClusterConfig, ReadError> {
    let documents = manifest::read(&[path.to_owned()], false)?;
    let Some(document) = documents.into_iter().find(|document| document.kind() == "KubeVirt") else {
        let origin = manifest::Origin { file: path.display().to_string(), document: 1, line: 1 };
        return Err(ReadError::Object { origin, problem: "has no KubeVirt object".to_owned() });
    };
    let refuse = |problem: String| ReadError::Object { origin: document.origin.clone(), problem };
    let kubevirt: KubeVirt =
        serde_json::from_value(document.object.clone()).map_err(|error| refuse(error.to_string()))?;
    ClusterConfig::from_kubevirt(&kubevirt).map_err(|error| refuse(error.to_string()))
}

/// Judges manifests as an API server with this configuration would when a user creates them.
pub(crate) struct Judge {
    pub(crate) config: ClusterConfig,
    now: Time,
}

impl Judge {
    /// The object with its defaults, or what is wrong with it. `None` for kinds that are not ours to judge.
    pub(crate) fn admit(&self, object: &Value) -> Option<Result<Admitted, Vec<FieldError>>> {
        let resource = match (object["apiVersion"].as_str()?, object["kind"].as_str()?) {
            (api::v1::API_VERSION, "VirtualMachine") => "virtualmachines",
            (api::v1::API_VERSION, "VirtualMachineInstance") => "virtualmachineinstances",
            (api::v1::API_VERSION, "VirtualMachineInstanceMigration") => "virtualmachineinstancemigrations",
            (api::v1::API_VERSION, "KubeVirt") => "kubevirts",
            (version, kind) if is_of_kubevirt(version) => {
                let kind = format!("{kind} of {version}");
                return Some(Err(vec![FieldError::unsupported(FieldPath::new("kind"), kind)]));
            }
            _ => return None,
        };
        let user = User { name: "kubernetes-admin".into(), groups: vec!["system:masters".into()], ..User::default() };
        let request = Request {
            operation: Operation::Create,
            version: api::v1::VERSION,
            resource,
            subresource: "",
            user: &user,
            old: None,
            object,
            now: self.now.clone(),
        };
        let verdict = admission::admit(&request, &self.config, &admission::World::default());
        Some(verdict.map_err(|refusal| match refusal {
            admission::Refusal::Invalid(errors) => errors,
            admission::Refusal::BadRequest(message) => {
                vec![FieldError::new(Cause::Forbidden, FieldPath::root(), message)]
            }
        }))
    }

    /// The instance that the manifest of a virtual machine or an instance leads to.
    pub(crate) fn instance(&self, object: &Value) -> Result<VirtualMachineInstance, Vec<FieldError>> {
        let admitted = match self.admit(object) {
            Some(verdict) => stored(verdict?.object),
            None => return Err(vec![not_a_machine(object)]),
        };
        match object["kind"].as_str() {
            Some("VirtualMachine") => {
                let vmi = self.start(decode(admitted)?)?;
                let vmi = serde_json::to_value(vmi).map_err(|error| vec![undecodable(&error)])?;
                // The controller's creation is judged like any other.
                let judged = self.admit(&vmi).ok_or_else(|| vec![not_a_machine(&vmi)])??;
                decode(stored(judged.object))
            }
            Some("VirtualMachineInstance") => decode(admitted),
            _ => Err(vec![not_a_machine(object)]),
        }
    }

    /// The instance that the controller makes of a virtual machine, by asking the controller's own decision until it
    /// creates one.
    fn start(&self, mut vm: VirtualMachine) -> Result<VirtualMachineInstance, Vec<FieldError>> {
        vm.spec.running = None;
        vm.spec.run_strategy = Some(RunStrategy::Always);
        // One pass to prepare the machine, one to start it, and one to spare.
        for _ in 0..3 {
            let actions = decide(&World {
                vm: Arc::new(vm.clone()),
                vmi: None,
                revisions: Vec::new(),
                behind: None,
                hold_starts: false,
                failed: None,
                now: self.now.clone(),
            });
            for action in actions {
                match action {
                    Action::CreateVmi { vmi, because: _ } => return Ok(*vmi),
                    Action::PatchVm(patch) => {
                        let mut object = serde_json::to_value(&vm).map_err(|error| vec![undecodable(&error)])?;
                        machinery::patch::apply(&mut object, &patch).map_err(|error| vec![undecodable(&error)])?;
                        vm = decode(object)?;
                    }
                    _ => {}
                }
            }
        }
        let message = "the controller would not start this virtual machine";
        Err(vec![FieldError::new(Cause::Invalid, FieldPath::new("spec"), message)])
    }
}

/// Whether the kind belongs to the system we stand in for, so that leaving it alone would be a promise broken.
fn is_of_kubevirt(api_version: &str) -> bool {
    let group = api_version.split('/').next().unwrap_or_default();
    group == api::v1::GROUP || group.ends_with(&format!(".{}", api::v1::GROUP))
}

/// An object as it would be after it was stored.
fn stored(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("uid").or_insert_with(|| json!(MADE_UP_UID));
        metadata.entry("namespace").or_insert_with(|| json!("default"));
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
        Judge { config: ClusterConfig::default(), now: Time(Timestamp::UNIX_EPOCH) }
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
        assert!(judge().admit(&example("client-pod.yaml")).is_none(), "a Pod is not ours to judge");
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
    fn kinds_of_kubevirt_that_are_missing_here_are_unsupported() {
        for version in ["kubevirt.io/v1", "pool.kubevirt.io/v1beta1", "kubevirt.io/v1alpha3"] {
            let verdict = judge().admit(&json!({"apiVersion": version, "kind": "VirtualMachinePool"}));
            assert_eq!(verdict.unwrap().unwrap_err()[0].cause, Cause::Unsupported, "{version}");
        }
        assert!(judge().admit(&json!({"apiVersion": "notkubevirt.io/v1", "kind": "A"})).is_none());
    }
}
