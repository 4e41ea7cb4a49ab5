//! Finding the cluster: kubeconfig, context, namespace.
//!
//! The first of these that exists is used: `--kubeconfig`, the files in `$KUBECONFIG`, the kubeconfig of the embedded
//! cluster that `$FERROVIRT_DATA_DIR` names, `~/.kube/config`, the service account of the Pod the program runs in, and
//! the kubeconfig of an embedded cluster in its usual place.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// Default data directory of an embedded cluster, which contains its kubeconfig.
const DATA_DIR: &str = "/var/lib/ferrovirt";

/// Heading that groups the cluster flags in help texts.
const HEADING: &str = "Cluster";

/// The flags that choose a cluster, a user and a namespace, with kubectl's names.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConnectArgs {
    /// Path of the kubeconfig file [default: $KUBECONFIG, $FERROVIRT_DATA_DIR/kubeconfig, ~/.kube/config,
    /// /var/lib/ferrovirt/kubeconfig]
    #[arg(long, global = true, help_heading = HEADING, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Name of the kubeconfig context to use
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    pub context: Option<String>,
    /// Name of the kubeconfig cluster to use
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    pub cluster: Option<String>,
    /// Name of the kubeconfig user to use
    #[arg(long, global = true, help_heading = HEADING, value_name = "NAME")]
    pub user: Option<String>,
    /// Namespace of the objects named on the command line
    #[arg(short, long, global = true, help_heading = HEADING)]
    pub namespace: Option<String>,
    /// Address of the API server, for example https://127.0.0.1:6443
    #[arg(short, long, global = true, help_heading = HEADING, value_name = "URL")]
    pub server: Option<String>,
    /// Bearer token for the API server
    #[arg(long, global = true, help_heading = HEADING)]
    pub token: Option<String>,
    /// User to act as
    #[arg(long = "as", global = true, help_heading = HEADING, value_name = "USER")]
    pub impersonate: Option<String>,
    /// Group to act as; can be repeated
    #[arg(long = "as-group", global = true, help_heading = HEADING, value_name = "GROUP", requires = "impersonate")]
    pub impersonate_groups: Vec<String>,
    /// Do not check the API server's certificate
    #[arg(long, global = true, help_heading = HEADING)]
    pub insecure_skip_tls_verify: bool,
}

/// A client and the namespace of commands.
#[derive(Clone)]
pub struct Session {
    pub client: kube::Client,
    pub namespace: String,
    /// Address of the API server, for messages.
    pub server: String,
}

impl ConnectArgs {
    /// Reads the configuration and creates a client. Nothing is sent yet.
    pub async fn connect(&self) -> anyhow::Result<Session> {
        let mut config = self.load().await?;
        if let Some(server) = &self.server {
            config.cluster_url = server.parse().with_context(|| format!("--server {server} is not an address"))?;
        }
        if let Some(token) = &self.token {
            config.auth_info.token = Some(token.clone().into());
        }
        if self.impersonate.is_some() {
            config.auth_info.impersonate.clone_from(&self.impersonate);
            config.auth_info.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        // "Try again later" should be shown to the user instead of being retried silently.
        config.default_retry = false;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let client = kube::Client::try_from(config).with_context(|| format!("cannot make a client for {server}"))?;
        Ok(Session { client, namespace, server })
    }

    /// The certificates that are trusted to sign the API server's, for other servers of the cluster.
    pub(crate) async fn authorities(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        Ok(self.load().await?.root_cert.unwrap_or_default())
    }

    async fn load(&self) -> anyhow::Result<kube::Config> {
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let surroundings = Surroundings {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            home: home.as_deref(),
            in_cluster: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            data_dir: std::env::var_os("FERROVIRT_DATA_DIR").map(PathBuf::from),
            default_data_dir: Path::new(DATA_DIR),
        };
        match self.source(surroundings) {
            Source::File(path) => {
                let file = Kubeconfig::read_from(&path)
                    .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
                self.with_kubeconfig(file).await.with_context(|| format!("in the kubeconfig {}", path.display()))
            }
            Source::Environment => {
                let files = Kubeconfig::read().context("cannot read the files in $KUBECONFIG")?;
                self.with_kubeconfig(files).await.context("in the files of $KUBECONFIG")
            }
            Source::None if self.server.is_some() => Ok(kube::Config::new(http::Uri::default())),
            Source::None => kube::Config::incluster().map_err(|_| {
                anyhow::anyhow!(
                    "no cluster is configured; start one with `ferrovirt up`, or name a kubeconfig with --kubeconfig or $KUBECONFIG"
                )
            }),
        }
    }

    async fn with_kubeconfig(&self, file: Kubeconfig) -> anyhow::Result<kube::Config> {
        let asks_for_proxy =
            file.clusters.iter().any(|named| named.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some()));
        let options =
            KubeConfigOptions { context: self.context.clone(), cluster: self.cluster.clone(), user: self.user.clone() };
        let mut config = kube::Config::from_custom_kubeconfig(file, &options).await?;
        if !asks_for_proxy {
            // Proxies in the environment are for the Internet; a local cluster is not behind one.
            config.proxy_url = None;
        }
        Ok(config)
    }

    fn source(&self, around: Surroundings<'_>) -> Source {
        if let Some(path) = &self.kubeconfig {
            return Source::File(path.clone());
        }
        if around.kubeconfig.is_some_and(|paths| !paths.is_empty()) {
            return Source::Environment;
        }
        if let Some(path) = around.data_dir.map(|dir| dir.join("kubeconfig")).filter(|path| path.exists()) {
            return Source::File(path);
        }
        let embedded = around.default_data_dir.join("kubeconfig");
        match around.home.map(|home| home.join(".kube/config")) {
            Some(path) if path.exists() => Source::File(path),
            _ if !around.in_cluster && self.server.is_none() && embedded.exists() => Source::File(embedded),
            _ => Source::None,
        }
    }
}

/// The environment of the program.
struct Surroundings<'a> {
    kubeconfig: Option<OsString>,
    home: Option<&'a Path>,
    in_cluster: bool,
    /// The data directory of the user's embedded cluster.
    data_dir: Option<PathBuf>,
    default_data_dir: &'a Path,
}

/// Where the configuration comes from.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    /// The list of files in `$KUBECONFIG`.
    Environment,
    /// No kubeconfig: the Pod's service account, or flags alone.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_cluster_is_found_only_when_nothing_else_is_configured() {
        let dir = tempfile::tempdir().unwrap();
        let (home, embedded) = (dir.path().join("home"), dir.path().join("kubeconfig"));
        std::fs::create_dir_all(home.join(".kube")).unwrap();
        std::fs::write(&embedded, "").unwrap();
        let args = ConnectArgs::default();
        let around = |kubeconfig: Option<&str>, in_cluster| Surroundings {
            kubeconfig: kubeconfig.map(Into::into),
            home: Some(&home),
            in_cluster,
            data_dir: None,
            default_data_dir: dir.path(),
        };
        let source = |kubeconfig| args.source(around(kubeconfig, false));

        assert_eq!(source(None), Source::File(embedded.clone()));
        assert_eq!(source(Some("")), Source::File(embedded.clone()), "an empty variable is no variable");
        assert_eq!(args.source(around(None, true)), Source::None, "a Pod has a service account");
        std::fs::write(home.join(".kube/config"), "").unwrap();
        assert_eq!(source(None), Source::File(home.join(".kube/config")));
        assert_eq!(source(Some("/a:/b")), Source::Environment);

        let chosen = Surroundings { data_dir: Some(dir.path().to_owned()), ..around(None, true) };
        assert_eq!(args.source(chosen), Source::File(embedded), "a cluster named by its directory");
        let named = ConnectArgs { kubeconfig: Some("/named".into()), ..Default::default() };
        assert_eq!(named.source(around(Some("/a"), false)), Source::File("/named".into()));
    }

    #[tokio::test]
    async fn flags_override_the_kubeconfig() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        std::fs::write(
            &path,
            "{apiVersion: v1, kind: Config, current-context: a,
              clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}],
              contexts: [{name: a, context: {cluster: c, user: u, namespace: from-a}},
                         {name: b, context: {cluster: c, user: u, namespace: from-b}}]}",
        )
        .unwrap();
        let args = |context: Option<&str>, namespace: Option<&str>| ConnectArgs {
            kubeconfig: Some(path.clone()),
            context: context.map(Into::into),
            namespace: namespace.map(Into::into),
            ..Default::default()
        };
        assert_eq!(args(None, None).connect().await.unwrap().namespace, "from-a");
        assert_eq!(args(Some("b"), None).connect().await.unwrap().namespace, "from-b");
        assert_eq!(args(Some("b"), Some("n")).connect().await.unwrap().namespace, "n");

        let Err(error) = args(Some("missing"), None).connect().await else { panic!("there is no such context") };
        let text = format!("{error:#}");
        assert!(text.contains("missing") && text.contains(path.to_str().unwrap()), "{text}");
    }
}
