//! The control plane that all tests share, with our definitions in it and one object of each kind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::resources::{RESOURCES, Resource};
use control_plane::ControlPlane;
use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::schema::objects::stored_object;

/// The namespace of all objects; every cluster has it.
pub(crate) const NAMESPACE: &str = "default";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How long the server may take to serve a kind once its definition is there.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    client: Client,
    /// The definitions as the server holds them once they are established or refused, by kind.
    pub(crate) definitions: BTreeMap<&'static str, Value>,
    /// One object of each kind, as the server holds it. They have a value for each column that `kubectl get` shows.
    pub(crate) objects: BTreeMap<&'static str, Value>,
}

/// What the server answers.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) warnings: Vec<String>,
    pub(crate) body: Value,
}

static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
static CLUSTER: Mutex<Slot> = Mutex::new(Slot::Empty);

enum Slot {
    Empty,
    Started(Arc<Cluster>),
    Failed,
}

/// One runtime for all: the connections outlive a test.
pub(crate) fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime can be made"))
}

/// Says where etcd and kube-apiserver are.
pub(crate) fn use_programs(folder: PathBuf) {
    let _ = PROGRAMS.set(folder);
}

/// Where they are.
pub(crate) fn programs() -> Result<&'static Path> {
    PROGRAMS.get().map(PathBuf::as_path).context("nobody said where the programs are")
}

/// The cluster; the first to ask waits for its start, and is told if it fails.
pub(crate) fn cluster() -> Result<Arc<Cluster>> {
    let mut slot = CLUSTER.lock();
    match &*slot {
        Slot::Started(cluster) => return Ok(cluster.clone()),
        Slot::Failed => bail!("the control plane did not start; another test says why"),
        Slot::Empty => *slot = Slot::Failed,
    }
    let cluster = Arc::new(runtime().block_on(Cluster::start())?);
    *slot = Slot::Started(cluster.clone());
    Ok(cluster)
}

/// Ends the cluster, if there is one.
pub(crate) fn take_away() {
    *CLUSTER.lock() = Slot::Empty;
}

impl Cluster {
    async fn start() -> Result<Cluster> {
        let started = Instant::now();
        let plane = ControlPlane::start(programs()?).await?;
        let ready = started.elapsed();
        let client = plane.client()?;
        let (definitions, objects) = (BTreeMap::new(), BTreeMap::new());
        let mut cluster = Cluster { plane, client, definitions, objects };
        futures::future::try_join_all(api::crds().into_iter().map(|crd| cluster.define(crd))).await?;
        // All at once: the server takes a second to begin with each kind, most of it waiting.
        let judged = RESOURCES.iter().map(async |resource| cluster.judged_definition(resource).await);
        let judged = futures::future::try_join_all(judged).await?;
        let stored = RESOURCES.iter().map(async |resource| cluster.store(resource).await);
        let stored = futures::future::try_join_all(stored).await?;
        let kinds = || RESOURCES.iter().map(|resource| resource.kind);
        cluster.definitions = kinds().zip(judged).collect();
        cluster.objects = kinds().zip(stored).collect();
        eprintln!(
            "kube-apiserver ready after {:.1} s, {} kinds served and stored after {:.1} s",
            ready.as_secs_f32(),
            RESOURCES.len(),
            started.elapsed().as_secs_f32()
        );
        Ok(cluster)
    }

    async fn define(&self, definition: Value) -> Result<()> {
        // Strict: a word that the server does not know is our mistake.
        let answer =
            self.ask(Method::POST, &format!("{DEFINITIONS}?fieldValidation=Strict"), Some(&definition)).await?;
        ensure!(answer.code == 201, "{} is refused: {}", definition["metadata"]["name"], answer.body["message"]);
        Ok(())
    }

    /// The definition once the server has made up its mind, and serves the kind if it does.
    async fn judged_definition(&self, resource: &Resource) -> Result<Value> {
        let deadline = Instant::now() + PATIENCE;
        let name = resource.full_name();
        loop {
            let definition = self.ask(Method::GET, &format!("{DEFINITIONS}/{name}"), None).await?.body;
            let collection = self.ask(Method::GET, &collection(resource), None).await?;
            let refused = condition(&definition, "NamesAccepted") == Some("False");
            let served = condition(&definition, "Established") == Some("True") && collection.code == 200;
            if refused || served {
                return Ok(definition);
            }
            if Instant::now() > deadline {
                bail!("{name} is not served after {} s: {}", PATIENCE.as_secs(), definition["status"]);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn store(&self, resource: &Resource) -> Result<Value> {
        let object = stored_object(resource);
        let doing = || format!("the {} to start with", resource.kind);
        let path = format!("{}?fieldValidation=Strict", collection(resource));
        let mut stored = self.ask(Method::POST, &path, Some(&object)).await?.expect(201).with_context(doing)?;
        if resource.status {
            stored["status"] = object["status"].clone();
            let path = format!("{}/status?fieldValidation=Strict", item(resource, &stored));
            stored = self.ask(Method::PUT, &path, Some(&stored)).await?.expect(200).with_context(doing)?;
        }
        Ok(stored)
    }

    /// Sends a request and takes whatever answer comes.
    pub(crate) async fn ask(&self, method: Method, path: &str, object: Option<&Value>) -> Result<Answer> {
        let body = object.map(ToString::to_string).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let request = request.body(Body::from(body.into_bytes())).with_context(|| format!("cannot ask for {path}"))?;
        let answer = self.client.send(request).await.with_context(|| format!("no answer to {path}"))?;
        let (head, body) = answer.into_parts();
        let warnings = head.headers.get_all("warning").iter();
        let warnings = warnings.map(|warning| String::from_utf8_lossy(warning.as_bytes()).into_owned()).collect();
        let body = body.collect_bytes().await.with_context(|| format!("the answer to {path} breaks off"))?;
        // What is not served is answered with plain text.
        let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!(String::from_utf8_lossy(&body)));
        Ok(Answer { code: head.status.as_u16(), warnings, body })
    }
}

impl Answer {
    fn expect(self, code: u16) -> Result<Value> {
        ensure!(self.code == code, "answered with {} instead of {code}: {}", self.code, self.body);
        Ok(self.body)
    }
}

/// Where objects of a kind are.
pub(crate) fn collection(resource: &Resource) -> String {
    let namespace = if resource.namespaced { format!("/namespaces/{NAMESPACE}") } else { String::new() };
    format!("/apis/{}{namespace}/{}", resource.api_version(), resource.plural)
}

/// Where an object is.
pub(crate) fn item(resource: &Resource, object: &Value) -> String {
    format!("{}/{}", collection(resource), object["metadata"]["name"].as_str().unwrap_or_default())
}

/// The status of a condition, if it is stated.
pub(crate) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == json!(type_))?["status"].as_str()
}
