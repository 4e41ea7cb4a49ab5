//! Instances of all kinds, with the objects around them, from files.

#![allow(clippy::disallowed_methods, reason = "this test reads the shapes beside it")]

use std::path::{Path, PathBuf};

use api::config::ClusterConfig;
use api::v1::{KubeVirt, VirtualMachineInstance, VirtualMachineInstanceMigration};
use k8s_openapi::api::core::v1::{Node, Pod};
use manifests::Document;
use render::{Attachment, Context, Error, Source};
use serde::de::DeserializeOwned;

/// One file of `shapes`.
pub(crate) struct Shape {
    /// The kind of Pod it is for: its folder.
    pub(crate) kind: String,
    /// The file's name.
    pub(crate) name: String,
    documents: Vec<Document>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/launcher")
}

/// Where a shape's Pod is written down.
pub(crate) fn golden(shape: &Shape) -> PathBuf {
    folder().join("golden").join(format!("{}-{}.yaml", shape.kind, shape.name))
}

/// All shapes, by kind and name.
pub(crate) fn all() -> Vec<Shape> {
    let mut files = vec![];
    for kind in std::fs::read_dir(folder().join("shapes")).expect("there are shapes") {
        let kind = kind.expect("a folder").path();
        files.extend(std::fs::read_dir(&kind).expect("a folder").map(|file| file.expect("a file").path()));
    }
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

/// The launcher's shape of this name.
pub(crate) fn launcher(name: &str) -> Shape {
    read(&folder().join(format!("shapes/launcher/{name}.yaml")))
}

fn read(file: &Path) -> Shape {
    let text = std::fs::read_to_string(file).expect("a file that can be read");
    let shown = file.display().to_string();
    let documents = manifests::parse(&shown, &text).unwrap_or_else(|error| panic!("{error}"));
    let part = |part: Option<&std::ffi::OsStr>| part.expect("a name").to_string_lossy().into_owned();
    let kind = part(file.parent().and_then(Path::file_name));
    Shape { kind, name: part(file.file_stem()), documents }
}

impl Shape {
    fn find<T: DeserializeOwned>(&self, kind: &str) -> Option<T> {
        let document = self.documents.iter().find(|document| document.kind() == kind)?;
        let read = serde_json::from_value(document.object.clone());
        Some(read.unwrap_or_else(|error| panic!("{}: {kind}: {error}", self.name)))
    }

    fn need<T: DeserializeOwned>(&self, kind: &str) -> T {
        self.find(kind).unwrap_or_else(|| panic!("{} has no {kind}", self.name))
    }

    pub(crate) fn vmi(&self) -> VirtualMachineInstance {
        self.need("VirtualMachineInstance")
    }

    pub(crate) fn config(&self) -> ClusterConfig {
        let kubevirt: Option<KubeVirt> = self.find("KubeVirt");
        let config = kubevirt.map(|kubevirt| ClusterConfig::from_kubevirt(&kubevirt));
        let config = config.transpose().unwrap_or_else(|error| panic!("{}: {error}", self.name)).unwrap_or_default();
        ClusterConfig { launcher_image: "registry.example/virt-launcher:v1".to_owned(), ..config }
    }

    pub(crate) fn context(&self) -> Context {
        let mut context = Context::default();
        for document in &self.documents {
            let learnt = context.learn(&self.vmi(), &document.object);
            learnt.unwrap_or_else(|error| panic!("{}: {}: {error}", self.name, document.kind()));
        }
        context
    }

    pub(crate) fn render(&self) -> Result<Pod, Error> {
        let (vmi, config, context) = (self.vmi(), self.config(), self.context());
        let plugged = || -> Vec<Attachment> { vmi.spec.volumes.iter().filter_map(Attachment::of).collect() };
        match self.kind.as_str() {
            "launcher" => render::launcher_pod(&vmi, &config, &context),
            "first-consumer" => render::first_consumer_pod(&vmi, &config, &context),
            "attachment" => render::attachment_pod(&vmi, &self.need("Pod"), &plugged(), &config, &context),
            "trigger" => render::trigger_pod(&vmi, &self.need("Pod"), &plugged()[0], &config, &context),
            "migration-target" => {
                let migration: VirtualMachineInstanceMigration = self.need("VirtualMachineInstanceMigration");
                let (pod, node): (Pod, Option<Node>) = (self.need("Pod"), self.find("Node"));
                let source = Source { pod: &pod, node: node.as_ref() };
                render::migration_target_pod(&vmi, &migration, source, &config, &context)
            }
            kind => panic!("{kind} is no kind of Pod"),
        }
    }
}
