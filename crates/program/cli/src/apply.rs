//! `apply`: creates or updates objects from manifests.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, Request};
use kube::core::DynamicObject;
use virtctl::connect::{ConnectArgs, Session};

use super::errors::server_error;
use super::manifest::{self, Document};
use super::resources::{self, ResourceType};
use super::three_way;

/// Field manager in the objects' managed fields.
const MANAGER: &str = "ferrovirt-apply";

/// Create or update objects from manifests
///
/// Removes fields that were in the last applied manifest and no longer are; keeps fields that the cluster or others have
/// added. If an object fails, the others are still applied.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,
    /// File or directory that contains the manifests; - for standard input
    #[arg(short, long = "filename", required = true, value_name = "FILE|DIR|-")]
    filename: Vec<PathBuf>,
    /// Process the directory recursively
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Submit a server-side dry run: nothing is changed
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let documents = manifest::read(&args.filename, args.recursive)?;
    let session = args.connect.connect().await?;
    let mut code = ExitCode::SUCCESS;
    for document in documents {
        match apply(&session, &args, &document).await {
            Ok((name, outcome)) => println!("{name} {outcome}{}", if args.dry_run { " (dry run)" } else { "" }),
            Err(error) => {
                eprintln!("error: {}: {error:#}", document.origin);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

/// Applies one object; returns its name and the outcome.
async fn apply(session: &Session, args: &Args, document: &Document) -> anyhow::Result<(String, &'static str)> {
    let name = document.name();
    anyhow::ensure!(!name.is_empty(), "metadata.name is not set; an object without a name cannot be found again");
    let resource = resources::by_kind(session, document.api_version(), document.kind()).await?;
    let namespace = namespace(session, args, &resource, document)?;
    let shown = format!("{}/{name}", resource.singular_with_group());
    let objects = resource.objects(session, &namespace);
    let wanted = three_way::with_memory(&document.object, resource.namespaced.then_some(namespace.as_str()));
    let failed = |error| server_error(error, &session.server);

    let Some(live) = objects.get_opt(name).await.map_err(failed)? else {
        let object: DynamicObject = serde_json::from_value(wanted).context("is not a Kubernetes object")?;
        let params = PostParams { dry_run: args.dry_run, field_manager: Some(MANAGER.into()) };
        create_strictly(session, &objects, &params, &object).await?.map_err(failed)?;
        return Ok((shown, "created"));
    };
    if live.metadata.deletion_timestamp.is_some() {
        eprintln!("warning: {shown} is being deleted; the applied changes will be lost");
    }
    let before = live.metadata.resource_version.clone();
    let live = serde_json::to_value(&live).context("cannot read the object back")?;
    let Some(patch) = three_way::patch(three_way::last_applied(&live).as_ref(), &wanted, &live) else {
        return Ok((shown, "unchanged"));
    };
    let params = PatchParams { dry_run: args.dry_run, field_manager: Some(MANAGER.into()), ..Default::default() }
        .validation_strict();
    let after = objects.patch(name, &params, &Patch::Merge(patch)).await.map_err(failed)?;
    let changed = args.dry_run || after.metadata.resource_version != before;
    Ok((shown, if changed { "configured" } else { "unchanged" }))
}

/// Creates an object; an unknown field is an error instead of a warning, as with kubectl. kube's own create parameters
/// do not support that.
async fn create_strictly(
    session: &Session,
    objects: &Api<DynamicObject>,
    params: &PostParams,
    object: &DynamicObject,
) -> anyhow::Result<kube::Result<DynamicObject>> {
    let body = serde_json::to_vec(object).context("cannot serialise the object")?;
    let mut request = Request::new(objects.resource_url()).create(params, body).context("cannot make the request")?;
    let strict = format!("{}&fieldValidation=Strict", request.uri());
    *request.uri_mut() = strict.parse().context("cannot make the request's address")?;
    Ok(session.client.request(request).await)
}

/// The namespace of an object: its own, which must not contradict the one on the command line, or the session's.
fn namespace(session: &Session, args: &Args, resource: &ResourceType, document: &Document) -> anyhow::Result<String> {
    match (document.namespace(), &args.connect.namespace) {
        _ if !resource.namespaced => Ok(session.namespace.clone()),
        (Some(own), Some(asked)) if own != asked => {
            anyhow::bail!("metadata.namespace is {own}, but --namespace is {asked}; remove one")
        }
        (Some(own), _) => Ok(own.to_owned()),
        (None, _) => Ok(session.namespace.clone()),
    }
}
