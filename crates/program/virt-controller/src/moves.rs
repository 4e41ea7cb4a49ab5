//! Migrations created by controllers. At most one is in progress per VMI, whichever controller creates it.

use std::time::Duration;

use api::labels;
use api::v1::VirtualMachineInstanceMigration as Migration;
use informer::{Clock, Key};
use machinery::names;
use plan::object::{Kind, Object};
use tokio::sync::Mutex;

use crate::Error;
use crate::context::Context;
use crate::execute::creating;
use crate::writer::Done;

/// Timeout for waiting for the lock and holding it, so that a hung request does not block all others.
const LIMIT: Duration = Duration::from_secs(30);

/// Serializes check and act within the process, so that what was checked still holds when it is acted on.
#[derive(Default)]
pub(crate) struct OneAtATime(Mutex<()>);

impl OneAtATime {
    pub(crate) async fn run<T>(
        &self,
        clock: &Clock,
        start: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let alone = async {
            let _alone = self.0.lock().await;
            start.await
        };
        tokio::select! {
            biased;
            done = alone => done,
            () = clock.sleep(LIMIT) => Err(Error::StartHung { seconds: LIMIT.as_secs() }),
        }
    }
}

impl Context {
    /// Creates a migration on behalf of `owner`, unless the VMI already has an unfinished one.
    ///
    /// Derived names prevent a second one of the same controller, but two controllers derive different names.
    pub(crate) async fn create_migration(&self, owner: &Key, migration: &Migration) -> Result<Done, Error> {
        self.one_at_a_time.run(&self.clock, self.look_and_create(owner, migration)).await
    }

    async fn look_and_create(&self, owner: &Key, migration: &Migration) -> Result<Done, Error> {
        let namespace = migration.metadata.namespace.clone().unwrap_or_default();
        let key = Key::new(namespace, migration.metadata.name.clone().unwrap_or_default());
        if self.has_migration(&key.namespace, migration.spec.vmi_name.as_deref()).await? {
            return Ok(Done::Before);
        }
        let same = |found: &Object| matches!(found, Object::Migration(found) if found.spec.vmi_name == migration.spec.vmi_name);
        let (object, expected) = (migration.clone().into(), self.memory.expects_creation(Kind::Migration));
        creating(expected, owner, &key, self.writer.create_unless(&key, &object, same)).await
    }

    /// Whether the VMI has an unfinished migration, by a live read.
    async fn has_migration(&self, namespace: &str, vmi: Option<&str>) -> Result<bool, Error> {
        let of_instance = vmi.filter(|name| name.len() <= names::LABEL_MAX);
        let labels = of_instance.map(|name| format!("{}={name}", labels::VMI_NAME)).unwrap_or_default();
        let all: Vec<Migration> = self.writer.list(namespace, &labels).await?;
        Ok(all.iter().any(|other| other.spec.vmi_name.as_deref() == vmi && !other.is_final()))
    }
}
