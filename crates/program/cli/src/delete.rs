//! `delete`: deletes objects and waits until they are gone.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use api::v1::VirtualMachineInstance;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use kube::core::DynamicObject;
use tokio::time::Instant;
use virtctl::connect::{ConnectArgs, Session};
use waits::guest::Seen;

use super::errors::server_error;
use super::manifest;
use super::resources::{self, Catalogue, ResourceType};
use super::targets;

/// Waits longer than this are explained: most deletions are faster.
const QUIET: Duration = Duration::from_secs(1);

/// Delete objects and wait until they are gone
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// What to delete: KIND NAME… or KIND/NAME…
    #[arg(value_name = "KIND NAME", required_unless_present = "filename", conflicts_with = "filename")]
    targets: Vec<String>,
    /// File or directory that contains the objects to delete; - for standard input
    #[arg(short, long = "filename", value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,
    /// Process the directory recursively
    #[arg(short = 'R', long, requires = "filename")]
    recursive: bool,
    /// Label selector of the objects of KIND to delete
    #[arg(short = 'l', long, conflicts_with = "filename")]
    selector: Option<String>,
    /// Delete all objects of KIND in the namespace
    #[arg(long, conflicts_with_all = ["filename", "selector"])]
    all: bool,
    /// Seconds given to the object to terminate gracefully
    #[arg(long, value_name = "SECONDS")]
    grace_period: Option<u32>,
    /// Wait until the objects are gone
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    wait: bool,
    /// Seconds to wait before giving up; 0 waits forever
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    timeout: u64,
    /// Do not fail if an object does not exist
    #[arg(long)]
    ignore_not_found: bool,
}

/// One object to delete.
struct Doomed {
    resource: ResourceType,
    namespace: String,
    name: String,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let documents = manifest::read(&args.filename, args.recursive)?;
    let session = args.connect.connect().await?;
    let doomed = if args.filename.is_empty() {
        named(&session, &args).await?
    } else {
        let mut doomed = Vec::new();
        for document in documents {
            let resource = resources::by_kind(&session, document.api_version(), document.kind())
                .await
                .with_context(|| document.origin.to_string())?;
            let namespace = document.namespace().unwrap_or(&session.namespace).to_owned();
            doomed.push(Doomed { resource, namespace, name: document.name().to_owned() });
        }
        doomed
    };
    let mut code = ExitCode::SUCCESS;
    let mut waiting = Vec::new();
    for object in doomed {
        match request(&session, &args, &object).await {
            Ok(Some(uid)) => {
                println!("{} \"{}\" deleted", object.resource.singular_with_group(), object.name);
                waiting.push((object, uid));
            }
            Ok(None) => {}
            Err(error) => {
                eprintln!("error: {error:#}");
                code = ExitCode::FAILURE;
            }
        }
    }
    if args.wait {
        let deadline = (args.timeout > 0).then(|| Instant::now() + Duration::from_secs(args.timeout));
        for (object, uid) in &waiting {
            until_gone(&session, object, uid, deadline).await?;
        }
    }
    Ok(code)
}

/// The objects named on the command line, or matched by the selector.
async fn named(session: &Session, args: &Args) -> anyhow::Result<Vec<Doomed>> {
    let catalogue = Catalogue::load(session).await?;
    let mut doomed = Vec::new();
    for target in targets::resolve(&catalogue, &args.targets)? {
        let mut names = target.names;
        if names.is_empty() {
            anyhow::ensure!(
                args.all || args.selector.is_some(),
                "name the objects to delete, or use --selector or --all"
            );
            let params = ListParams { label_selector: args.selector.clone(), ..Default::default() };
            let list = target.resource.objects(session, &session.namespace).list_metadata(&params).await;
            let list = list.map_err(|error| server_error(error, &session.server))?;
            names = list.items.into_iter().filter_map(|object| object.metadata.name).collect();
        }
        let resource = &target.resource;
        doomed.extend(names.into_iter().map(|name| Doomed {
            resource: resource.clone(),
            namespace: session.namespace.clone(),
            name,
        }));
    }
    Ok(doomed)
}

/// Requests a deletion. Returns the object's UID, so that a successor of the same name is not waited for; `None` if
/// there was nothing to delete and that is allowed.
async fn request(session: &Session, args: &Args, object: &Doomed) -> anyhow::Result<Option<String>> {
    let objects = object.resource.objects(session, &object.namespace);
    let params = DeleteParams { grace_period_seconds: args.grace_period, ..DeleteParams::background() };
    let gone = match objects.get(&object.name).await {
        Ok(live) => objects.delete(&object.name, &params).await.map(|_| live.metadata.uid),
        Err(error) => Err(error),
    };
    match gone {
        Ok(uid) => Ok(Some(uid.unwrap_or_default())),
        Err(kube::Error::Api(status)) if status.code == 404 && args.ignore_not_found => Ok(None),
        Err(error) => Err(server_error(error, &session.server)),
    }
}

/// Waits until the object is gone, reporting what it waits for.
async fn until_gone(session: &Session, object: &Doomed, uid: &str, deadline: Option<Instant>) -> anyhow::Result<()> {
    let objects = object.resource.objects(session, &object.namespace);
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let live = objects.get_opt(&object.name).await.map_err(|error| server_error(error, &session.server))?;
        let Some(live) = live.filter(|live| live.metadata.uid.as_deref() == Some(uid)) else { return Ok(()) };
        let sentence = explain(session, object, &live).await;
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            anyhow::bail!("timed out: {sentence}");
        }
        if begun.elapsed() >= QUIET && sentence != told {
            eprintln!("{sentence} …");
            told = sentence;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// What blocks the deletion, as far as it is cheap to look up: a VM's VMI, a VMI's Pod.
async fn explain(session: &Session, object: &Doomed, live: &DynamicObject) -> String {
    let session = Session { namespace: object.namespace.clone(), ..session.clone() };
    let kind = object.resource.kind.as_str();
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(session.client.clone(), &session.namespace);
    let vmi = match kind {
        "VirtualMachine" | "VirtualMachineInstance" => vmis.get_opt(&object.name).await.ok().flatten(),
        _ => None,
    };
    let pod = match (&vmi, kind) {
        (Some(vmi), "VirtualMachineInstance") => virtctl::guest::launcher(&session, vmi).await,
        _ => None,
    };
    let left = Seen { vmi: vmi.as_ref().filter(|_| kind == "VirtualMachine"), pod: pod.as_ref(), vm: None };
    waits::guest::deletion(kind, &live.metadata, left)
        .unwrap_or_else(|| format!("{kind} {} has not been marked for deletion yet", object.name))
}
