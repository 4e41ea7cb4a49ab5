//! One plugin: observes, decides, acts, until it is stopped.

use std::sync::Arc;

use devices::{Action, Failed, Health, Plugin, Registered, Socket, Watch, World, decide};
use kubelet_sockets::{Directory, Made};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::Config;
use crate::error::Error;
use crate::nodes::Nodes;
use crate::server::{Listing, Server};
use crate::{kubelet, socket};

/// Runs a plugin until `stop`, and removes its socket.
pub(crate) async fn run(config: Config, plugin: Plugin, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(config.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut runner = Runner::new(config, plugin);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        let progress = async { while runner.step().await {} };
        if stop.run_until_cancelled(progress).await.is_none() {
            break;
        }
    }
    runner.end(Listing::Withdrawn).await;
    runner.announce(false);
}

/// A server and the socket it listens on.
struct Serving {
    server: Server,
    made: Made,
    listing: Arc<watch::Sender<Listing>>,
}

struct Runner {
    config: Config,
    dir: Directory,
    plugin: Arc<Plugin>,
    started: Instant,
    nodes: Nodes,
    reported: Health,
    serving: Option<Serving>,
    watch: Watch,
    registered: Option<Registered>,
    failed: Option<Failed>,
}

impl Runner {
    fn new(config: Config, plugin: Plugin) -> Runner {
        Runner {
            dir: Directory(config.dir.clone()),
            nodes: Nodes::new(&config),
            plugin: Arc::new(plugin),
            started: Instant::now(),
            reported: Health::Unhealthy("its device nodes have not been checked yet".to_owned()),
            serving: None,
            watch: Watch::Closed { since: std::time::Duration::ZERO },
            registered: None,
            failed: None,
            config,
        }
    }

    /// Observes, decides and acts once. Returns whether there is more to do at once.
    async fn step(&mut self) -> bool {
        let health = self.nodes.health(&self.plugin, self.started).await;
        let ours = match &self.serving {
            None => Socket::None,
            Some(serving) => socket::state(&self.dir, &self.plugin.socket(), serving.made).await,
        };
        self.observe_watch();
        let world = World {
            now: self.started.elapsed(),
            socket: ours,
            kubelet: socket::identity(&self.dir, kubelet::SOCKET),
            watch: self.watch,
            health: &health,
            reported: &self.reported,
            registered: self.registered,
            failed: self.failed,
        };
        let actions = decide(&world);
        let kubelet = world.kubelet;
        let mut more = false;
        for action in actions {
            tracing::debug!(plugin = self.plugin.name, ?action);
            let done = match action {
                Action::Report(health) => {
                    self.report(health);
                    continue;
                }
                Action::Serve { because } => self.serve(because).await,
                Action::Register { because } => self.register(because, kubelet).await,
            };
            match done {
                Ok(()) => more = true,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(plugin = self.plugin.name, error, "failed to register the device plugin");
                    self.failed = Some(Failed::again(self.failed, self.started.elapsed(), kubelet));
                }
            }
        }
        more
    }

    fn observe_watch(&mut self) {
        let open = self.serving.as_ref().is_some_and(|serving| serving.listing.receiver_count() > 0);
        self.watch = match self.watch {
            _ if open => Watch::Open,
            Watch::Closed { since } => Watch::Closed { since },
            Watch::Open => Watch::Closed { since: self.started.elapsed() },
        };
        self.announce(open && self.registered.is_some());
    }

    /// Says whether the kubelet knows the plugin.
    fn announce(&self, known: bool) {
        self.config.registered.send_if_modified(|names| match known {
            true => names.insert(self.plugin.name.clone()),
            false => names.remove(&self.plugin.name),
        });
    }

    fn report(&mut self, health: Health) {
        match &health {
            Health::Healthy => tracing::info!(resource = self.plugin.resource, "the device works"),
            Health::Unhealthy(why) => tracing::warn!(resource = self.plugin.resource, why, "the device does not work"),
        }
        if let Some(serving) = &self.serving {
            serving.listing.send_replace(Listing::Devices(health.clone()));
        }
        self.reported = health;
    }

    async fn serve(&mut self, because: &str) -> Result<(), Error> {
        self.end(Listing::Closed).await;
        let name = self.plugin.socket();
        let (listener, made) = self.dir.listen(&name)?;
        let listing = Arc::new(watch::Sender::new(Listing::Devices(self.reported.clone())));
        let server = match Server::start(listener, self.plugin.clone(), listing.clone()) {
            Ok(server) => server,
            Err(err) => {
                self.dir.remove(&name, made)?;
                return Err(Error::Listen { path: self.dir.path(&name), err });
            }
        };
        tracing::info!(plugin = self.plugin.name, because, "device plugin listening");
        self.serving = Some(Serving { server, made, listing });
        self.failed = None;
        Ok(())
    }

    async fn register(&mut self, because: &str, kubelet: Option<devices::Identity>) -> Result<(), Error> {
        kubelet::register(&self.dir, &self.plugin).await?;
        tracing::info!(plugin = self.plugin.name, because, "the kubelet has registered the device plugin");
        self.registered = Some(Registered { at: self.started.elapsed(), kubelet });
        self.failed = None;
        Ok(())
    }

    /// Ends what is served; watchers get a last word.
    async fn end(&mut self, last: Listing) {
        self.registered = None;
        let Some(Serving { server, made, listing }) = self.serving.take() else { return };
        // First the socket, so that nobody new connects.
        if let Err(error) = self.dir.remove(&self.plugin.socket(), made) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(plugin = self.plugin.name, error, "failed to remove a socket");
        }
        listing.send_replace(last);
        server.stop().await;
    }
}
