//! What holds for every Pod, however odd its instance.

use std::sync::LazyLock;

use api::annotations;
use api::config::ClusterConfig;
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use machinery::quantity::Quantity;
use proptest::prelude::*;
use proptest::sample::Index;
use render::{COMPUTE, Context};
use serde_json::{Value, json};

use crate::shapes::{self, Shape};

/// The parts of a shape, read once.
struct Parts {
    vmi: Value,
    config: ClusterConfig,
    context: Context,
}

static SHAPES: LazyLock<Vec<Parts>> = LazyLock::new(|| {
    let parts = |shape: &Shape| Parts {
        vmi: serde_json::to_value(shape.vmi()).expect("an instance encodes"),
        config: shape.config(),
        context: shape.context(),
    };
    shapes::all().iter().map(parts).collect()
});

/// An instance with traits of several shapes, in the cluster of the first, with the objects of all.
#[derive(Clone, Debug)]
struct World {
    vmi: VirtualMachineInstance,
    config: ClusterConfig,
    context: Context,
}

fn world(picks: &[Index], oddity: Option<(Index, Value)>) -> Option<World> {
    let picked: Vec<&Parts> = picks.iter().map(|pick| pick.get(&SHAPES)).collect();
    let (mut object, mut context) = (picked[0].vmi.clone(), picked[0].context.clone());
    for shape in &picked[1..] {
        machinery::patch::merge(&mut object["spec"], &shape.vmi["spec"]);
        machinery::patch::merge(&mut object["status"], &shape.vmi["status"]);
        context.claims.extend(shape.context.claims.clone());
        context.backend_claim = context.backend_claim.or_else(|| shape.context.backend_claim.clone());
    }
    if let Some((place, value)) = oddity {
        let mut leaves = vec![];
        pointers(&object["spec"], "/spec".to_owned(), &mut leaves);
        let pointer: &String = place.get(&leaves);
        *object.pointer_mut(pointer).expect("the leaf is there") = value;
    }
    let vmi = serde_json::from_value(object).ok()?;
    Some(World { vmi, config: picked[0].config.clone(), context })
}

fn pointers(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            pointers(value, format!("{at}/{name}"), all);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, value)| pointers(value, format!("{at}/{i}"), all));
        }
        _ => {}
    }
    all.push(at);
}

fn any_world() -> impl Strategy<Value = World> {
    let odd = prop_oneof![
        Just(json!("")),
        Just(json!("-1")),
        Just(json!("9223372036854775807Ei")),
        Just(json!("1e3")),
        Just(json!(null)),
        Just(json!(0)),
        Just(json!(4_294_967_295_u32)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!("näme")),
    ];
    let oddity = proptest::option::of((any::<Index>(), odd));
    (proptest::collection::vec(any::<Index>(), 1..5), oddity)
        .prop_filter_map("it does not decode", |(picks, oddity)| world(&picks, oddity))
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.containers.iter().chain(spec.init_containers.iter().flatten())
}

fn amount(container: &Container, list: &str, name: &str) -> Option<Quantity> {
    let resources = container.resources.as_ref()?;
    let amounts = if list == "requests" { &resources.requests } else { &resources.limits };
    amounts.as_ref()?.get(name)?.try_into().ok()
}

fn overhead(pod: &Pod) -> i64 {
    let text = pod.metadata.annotations.as_ref().and_then(|all| all.get(annotations::MEMORY_OVERHEAD_BYTES));
    text.expect("the Pod tells its overhead").parse().expect("a number")
}

/// What the instance asks for, before the overhead.
fn asked(world: &World) -> Quantity {
    let domain = &world.vmi.spec.domain;
    let read = |amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| -> Quantity {
        amount.try_into().expect("rendering has read it")
    };
    let list = |requests: bool| {
        let resources = domain.resources.as_ref()?;
        let amounts = if requests { &resources.requests } else { &resources.limits };
        amounts.get("memory").map(read).filter(|amount| !amount.is_zero())
    };
    let guest = || domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()).map(read);
    list(true).or_else(|| list(false)).or_else(guest).unwrap_or(Quantity::ZERO)
}

fn is_dedicated(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.domain.cpu.as_ref().is_some_and(|cpu| cpu.dedicated_cpu_placement == Some(true))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_instance_gives_the_same_pod_each_time_or_the_same_reason(world in any_world()) {
        let World { vmi, config, context } = &world;
        prop_assert_eq!(render::launcher_pod(vmi, config, context), render::launcher_pod(vmi, config, context));
    }

    #[test]
    fn every_pod_runs_once_and_takes_no_rights(world in any_world()) {
        let World { vmi, config, context } = &world;
        let Ok(pod) = render::launcher_pod(vmi, config, context) else { return Ok(()) };
        let spec = pod.spec.expect("a spec");
        prop_assert_eq!(&spec.containers[0].name, COMPUTE);
        prop_assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
        prop_assert_eq!(spec.readiness_gates.as_ref().map(Vec::len), Some(1));
        let root = vmi.status.as_ref().and_then(|status| status.runtime_user).unwrap_or(0) == 0;
        for container in containers(&spec) {
            let context = container.security_context.as_ref().expect("a security context");
            prop_assert_ne!(context.privileged, Some(true));
            let capabilities = context.capabilities.clone().unwrap_or_default();
            let own = container.name == COMPUTE || container.name.starts_with("hook-sidecar");
            if !(root && own) {
                prop_assert_eq!(context.allow_privilege_escalation.or(root.then_some(false)), Some(false));
                prop_assert_eq!(capabilities.drop, Some(vec!["ALL".to_owned()]), "{}", container.name);
            }
            let known = ["NET_BIND_SERVICE", "SYS_NICE"];
            prop_assert!(capabilities.add.iter().flatten().all(|added| known.contains(&added.as_str())));
        }
    }

    #[test]
    fn a_pod_with_dedicated_cpus_is_guaranteed(world in any_world()) {
        let World { vmi, config, context } = &world;
        let Ok(pod) = render::launcher_pod(vmi, config, context) else { return Ok(()) };
        let cpus = vmi.spec.domain.cpu.as_ref();
        let counted = cpus.is_some_and(|cpu| [cpu.cores, cpu.sockets, cpu.threads].iter().flatten().any(|&n| n > 0));
        let overcommits = vmi.spec.domain.resources.as_ref().is_some_and(|r| r.overcommit_guest_overhead == Some(true));
        // Admission lets nobody have dedicated CPUs whose number is not known, or memory that is not.
        if !is_dedicated(vmi) || !counted || overcommits || amount_written(vmi, "memory") {
            return Ok(());
        }
        for container in containers(&pod.spec.expect("a spec")) {
            for name in ["cpu", "memory"] {
                let (request, limit) = (amount(container, "requests", name), amount(container, "limits", name));
                prop_assert!(request.is_some() && request == limit, "{} {name}: {request:?} {limit:?}", container.name);
            }
        }
    }

    #[test]
    fn memory_is_what_was_asked_for_and_the_overhead_the_pod_tells(world in any_world()) {
        let World { vmi, config, context } = &world;
        let Ok(pod) = render::launcher_pod(vmi, config, context) else { return Ok(()) };
        let overcommits = vmi.spec.domain.resources.as_ref().is_some_and(|r| r.overcommit_guest_overhead == Some(true));
        let huge = vmi.spec.domain.memory.as_ref().is_some_and(|memory| memory.hugepages.is_some());
        if overcommits || huge || config.memory_overcommit() != 100 {
            return Ok(());
        }
        let compute = &pod.spec.as_ref().expect("a spec").containers[0];
        let request = amount(compute, "requests", "memory").expect("a memory request");
        prop_assert_eq!(request.value(), asked(&world).value().saturating_add(overhead(&pod)));
    }

    #[test]
    fn a_first_consumer_is_scheduled_as_the_guest_would_be(world in any_world()) {
        let World { vmi, config, context } = &world;
        let (Ok(guest), Ok(consumer)) =
            (render::launcher_pod(vmi, config, context), render::first_consumer_pod(vmi, config, context))
        else {
            return Ok(());
        };
        prop_assert_ne!(&guest.metadata.name, &consumer.metadata.name);
        let (guest, consumer) = (guest.spec.expect("a spec"), consumer.spec.expect("a spec"));
        prop_assert_eq!(&guest.containers[0].resources, &consumer.containers[0].resources);
        let mut same = consumer.clone();
        same.containers[0].command = guest.containers[0].command.clone();
        same.containers[0].args = guest.containers[0].args.clone();
        prop_assert_eq!(same, guest);
    }
}

/// Whether the instance writes a request or a limit itself.
fn amount_written(vmi: &VirtualMachineInstance, name: &str) -> bool {
    vmi.spec.domain.resources.as_ref().is_some_and(|r| r.requests.contains_key(name) || r.limits.contains_key(name))
}
