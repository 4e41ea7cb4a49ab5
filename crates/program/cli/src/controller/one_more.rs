//! A controller that exists only here: everything about it is derived from its value in the list.

mod counting;

use std::sync::Arc;

use informer::{Clock, EventType, Key};
use k8s_openapi::api::core::v1::ObjectReference;
use virt_controller::api::KubeApi;
use virt_controller::{ALL, Controller, Controllers, Notes, Settings, Status, Stores, docs};

use super::Threads;

/// The list with one more controller.
fn list() -> Vec<&'static Controller> {
    [ALL, &[&counting::CONTROLLER]].concat()
}

struct Silence;

impl Notes for Silence {
    fn publish(&self, _: &'static str, _: ObjectReference, _: EventType, _: &str, _: String) {}
}

/// The controllers of the list, over empty caches and an API that never answers.
fn controllers(stores: Stores) -> Controllers {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody answers"))
    });
    let api = Arc::new(KubeApi::new(kube::Client::new(nobody, "default")));
    Controllers::new(&list(), stores, api, Arc::new(Silence), Clock::system(), Settings::default())
}

#[test]
fn its_flag_sets_its_workers() {
    let command = Threads::flags(clap::Command::new("controller"), &list());
    let help = command.clone().render_long_help().to_string();
    assert!(help.contains("--counting-controller-threads <NUMBER>"), "{help}");
    assert!(help.contains("Concurrent counts of VirtualMachines [default: 2]"), "{help}");
    let matches = command.try_get_matches_from(["controller", "--counting-controller-threads=5"]).unwrap();
    assert_eq!(Threads::read(&matches, &list()).0["counting-controller-threads"], 5);
    assert_eq!(Threads::read(&matches, &list()).0["vmi-controller-threads"], 10);
}

#[tokio::test]
async fn its_queue_shows_in_the_metrics_and_a_change_that_it_watches_wakes_it() {
    let (stores, mut feeds) = Stores::detached();
    let controllers = controllers(stores);
    let status = Status::default();
    status.watch_queues(&controllers);
    let depth = "workqueue_depth{name=\"virt-controller-counting\"}";
    assert!(status.metrics().contains(&format!("{depth} 0")), "{}", status.metrics());
    feeds.vms.apply(kube::runtime::watcher::Event::Apply(counting::vm("a")));
    assert!(status.metrics().contains(&format!("{depth} 1")), "{}", status.metrics());
    let counting = controllers.named("counting").unwrap();
    let key = counting.queue.try_get().unwrap();
    assert_eq!(*key, Key::new("default", "a"));
    counting.reconcile(&key).await.unwrap();
}

#[test]
fn its_rights_are_among_those_of_the_program() {
    let grants = |controllers: &[&'static virt_controller::Controller]| -> Vec<String> {
        let rights = virt_controller::program(controllers).rights;
        rights.iter().flat_map(|right| right.grants()).map(|grant| grant.to_string()).collect()
    };
    let own = "create configmaps".to_owned();
    assert!(grants(&list()).contains(&own));
    assert!(!grants(virt_controller::ALL).contains(&own));
}

#[test]
fn its_row_is_in_the_documentation() {
    let rows = docs::controllers(&list());
    let row = "| `counting` | 2, `--counting-controller-threads` | virtualmachines.kubevirt.io | create configmaps |";
    assert!(rows.lines().any(|line| line == row), "{rows}");
    let flags = docs::flags(&list());
    let row = "| `--counting-controller-threads` | 2 | concurrent counts of VirtualMachines |";
    assert!(flags.lines().any(|line| line == row), "{flags}");
}
