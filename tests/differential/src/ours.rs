//! Our side.

use std::panic::{self, AssertUnwindSafe};
use std::sync::LazyLock;

use admission::{Judged, Operation, Refusal, Review, Shape, User, World};
use api::config::ClusterConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinery::field::FieldError;
use serde_json::Value;

use crate::generate::Case;
use crate::verdict::{Cause, Verdict};

static SOMEBODY: LazyLock<User> = LazyLock::new(User::default);
static NOW: LazyLock<Time> =
    LazyLock::new(|| serde_json::from_str("\"2026-01-01T00:00:00Z\"").expect("a constant that is a time"));

/// What our admission makes of a new object, or of one that takes the place of another.
pub(crate) fn judged(
    object: &Value,
    old: Option<&Value>,
    config: &ClusterConfig,
    world: &World,
) -> Result<Judged, Refusal> {
    let vm = object["kind"] == "VirtualMachine";
    let operation = if old.is_some() { Operation::Update } else { Operation::Create };
    let resource = if vm { "virtualmachines" } else { "virtualmachineinstances" };
    let request = Review { old, ..Review::of(operation, "v1", resource, &SOMEBODY, object, NOW.clone()) };
    admission::judge(&request, Shape::Kubernetes, config, world)
}

/// Our verdict on a case.
pub fn judge(case: &Case) -> Verdict {
    let Case { object, old, cluster } = case;
    // A panic is a difference like any other: it has an object that shows it.
    let judged =
        panic::catch_unwind(AssertUnwindSafe(|| judged(object, old.as_ref(), &cluster.config, &cluster.world)));
    let verdict = match judged {
        Ok(Ok(judged)) => Verdict { object: Some(judged.object), causes: causes(judged.causes), ..Verdict::default() },
        Ok(Err(Refusal::Invalid(errors))) => Verdict { causes: causes(errors), ..Verdict::default() },
        Ok(Err(Refusal::BadRequest(message))) => Verdict { refusal: Some(message), ..Verdict::default() },
        Err(_) => Verdict { panicked: true, ..Verdict::default() },
    };
    verdict.without_chance(object)
}

/// Our verdicts on these cases, in their order, with all processors at work.
pub fn judge_all(cases: &[Case]) -> Vec<Verdict> {
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    let share = cases.len().div_ceil(workers).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            cases.chunks(share).map(|cases| scope.spawn(move || cases.iter().map(judge).collect::<Vec<_>>())).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("judging catches panics")).collect()
    })
}

fn causes(errors: Vec<FieldError>) -> Vec<Cause> {
    let cause = |error: FieldError| Cause {
        type_: error.cause.as_str().to_owned(),
        field: error.field.to_string(),
        message: error.message,
    };
    errors.into_iter().map(cause).collect()
}
