//! Changes that keep an object an object.

use std::sync::LazyLock;

use api::resources::{RESOURCES, Resource};
use serde_json::{Value, json};

/// A kind, and what it offers to choose from.
pub struct Kind {
    pub resource: &'static Resource,
    full: Value,
    pub least: Value,
    fields: Vec<String>,
}

impl Kind {
    /// The kind an object says it is of.
    pub fn of(object: &Value) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| object["kind"] == kind.resource.kind)
    }
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let of = |resource: &'static Resource| {
        let mut fields = objects::fields(resource);
        fields.retain(|field| field != "/apiVersion" && field != "/kind");
        Kind { resource, full: objects::full(resource), least: objects::least(resource), fields }
    };
    RESOURCES.iter().map(of).collect()
});

/// The kinds that have more rules than all others together.
const MACHINES: [&str; 2] = ["VirtualMachine", "VirtualMachineInstance"];

/// Values at the edges of what fields hold.
static VALUES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let texts = [
        "",
        "0",
        "-1",
        "1e400",
        "9223372036854775808",
        "0.5",
        "1Ei",
        "100m",
        "1.5Gi",
        "-1Ki",
        "+",
        ".",
        "a/b",
        "/",
        "/a",
        "A",
        "a.b",
        "virtio",
        "sata",
        "host-model",
        "q35",
        "amd64",
        "arm64",
        "Always",
        "None",
        "10.0.2.0/24",
        "10.0.0.0/33",
        "fd00::/64",
        "::1",
        "02:00:00:00:00:07",
        "2001-02-03T04:05:06Z",
        "1h",
        "99999999999h",
        "default",
        "text",
        "=",
        "\u{0}",
        "é\u{1f600}",
        "%s",
        "{}",
        "*",
    ];
    let numbers = [0, 1, -1, 2, 65_535, 65_536, i64::from(i32::MAX) + 1, i64::MIN, i64::MAX];
    let texts = texts.into_iter().map(Value::from);
    let others = [json!(null), json!(true), json!(false), json!({}), json!([]), json!(1.5), json!(u64::MAX)];
    let long = [json!("a".repeat(300)), json!([null]), json!([{}, {}]), json!({"key": "text"})];
    texts.chain(numbers.map(Value::from)).chain(others).chain(long).collect()
});

/// A number stream that is the same for the same seed (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % limit.max(1)
    }

    fn pick<'a, T>(&mut self, among: &'a [T]) -> &'a T {
        &among[self.below(among.len())]
    }
}

/// The text with a few changes, or nothing if its bytes are to be changed instead.
pub fn text(data: &[u8], seed: u32) -> Option<String> {
    let mut rng = Rng(u64::from(seed) << 1 | 1);
    if rng.below(16) == 0 {
        return None;
    }
    let object: Option<Value> = serde_json::from_slice(data).ok().filter(Value::is_object);
    let mut object = match object {
        Some(object) if rng.below(64) > 0 => object,
        _ => {
            let machines = KINDS.iter().filter(|kind| MACHINES.contains(&kind.resource.kind));
            let kinds: Vec<&Kind> = KINDS.iter().chain(machines.cycle().take(RESOURCES.len())).collect();
            let kind = rng.pick(&kinds);
            if rng.below(4) == 0 { kind.full.clone() } else { kind.least.clone() }
        }
    };
    for _ in 0..=rng.below(4) {
        change(&mut object, &mut rng);
    }
    Some(object.to_string())
}

fn change(object: &mut Value, rng: &mut Rng) {
    let Some(kind) = Kind::of(object) else { return };
    let field = rng.pick(&kind.fields);
    match rng.below(8) {
        0..3 => objects::put(object, field, rng.pick(&VALUES).clone()),
        3..6 => {
            let value = kind.full.pointer(field).cloned().unwrap_or_default();
            objects::put(object, field, value);
        }
        6 => remove(object, field),
        _ => {
            // A second item, often the same as the first.
            let items = object.pointer_mut(field).and_then(Value::as_array_mut);
            if let Some((items, first)) = items.and_then(|items| Some((items.clone(), items.first()?.clone()))) {
                let grown = items.into_iter().chain([first]).collect();
                objects::put(object, field, Value::Array(grown));
            }
        }
    }
}

fn remove(object: &mut Value, field: &str) {
    let Some((above, name)) = field.rsplit_once('/') else { return };
    match object.pointer_mut(above) {
        Some(Value::Object(fields)) => drop(fields.remove(name)),
        Some(Value::Array(items)) => drop(items.pop()),
        _ => {}
    }
}
