//! Which objects are sent.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use api::resources::{RESOURCES, Resource};
use http::Method;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use super::differences;
use super::places::{Place, places, schema, thinned};
use super::spoil::{BREAKS, Break, Change};
use super::verdict::{Case, Way};
use crate::cluster::{Cluster, NAMESPACE, item};

/// Objects that are whole, objects broken in each way, so many each, and some of them in two. Most are created, and some
/// take the place of an object that is in order.
pub(crate) fn of_good_objects(cluster: &Cluster, seed: u64, count: usize) -> Vec<Case> {
    let mut rng = StdRng::seed_from_u64(seed);
    let places: Vec<Place> = RESOURCES.iter().flat_map(places).collect();
    let mut cases = Vec::new();
    for resource in RESOURCES {
        for percent in [0, 20, 60, 100] {
            let object = thinned(resource, &[], percent, &mut rng);
            let story = format!("Create {}, {percent} % of it", resource.kind);
            cases.push(Case { resource, way: Way::Create, old: Value::Null, story, object });
        }
    }
    for (name, break_) in BREAKS {
        for spoilt in choose(name, *break_, &places, count, &mut rng) {
            let mut parts = vec![spoilt];
            if rng.random_ratio(1, 4) {
                parts.extend(another(parts[0].place.resource, &places, &mut rng));
            }
            cases.extend(broken(cluster, &parts, &mut rng));
        }
    }
    cases
}

/// Updates of objects that are broken already: what was as wrong before may stay. So many of each way are put into the
/// store, and each is changed in a harmless place, in the broken one, and in another.
pub(crate) async fn of_broken_objects(cluster: &Cluster, seed: u64, count: usize) -> Result<Vec<Case>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let places: Vec<Place> = RESOURCES.iter().flat_map(places).filter(|place| !in_status(place)).collect();
    let mut stored: Vec<(Spoilt<'_>, Value)> = Vec::new();
    for (name, break_) in BREAKS {
        for spoilt in choose(name, *break_, &places, count, &mut rng) {
            let resource = spoilt.place.resource;
            let mut object = thinned(resource, &[&spoilt.place.pointer], 10, &mut rng);
            spoilt.apply(&mut object);
            if differences::is_deliberate_in_store(&schema(resource), &object) || has_fractions(&object) {
                continue;
            }
            let number = stored.len();
            object["metadata"]["name"] = json!(format!("broken-{number}"));
            object["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{number:012}"));
            object["metadata"]["creationTimestamp"] = json!("2020-01-01T00:00:00Z");
            cluster.plane.put_into_etcd(&key(resource, &object), &object)?;
            stored.push((spoilt, object));
        }
    }
    let mut cases = Vec::new();
    for (spoilt, object) in stored {
        let resource = spoilt.place.resource;
        let old = read(cluster, resource, &object).await?;
        let mut update = |change: &str, object: Value| {
            // Whether nothing at all changed is up to what the server notes in metadata, which is its own.
            if object == old || has_fractions(&object) {
                return;
            }
            let story = format!("Update {}, stored with {}, {change}", resource.kind, spoilt.story());
            cases.push(Case { resource, way: Way::Update, old: old.clone(), story, object });
        };
        let mut harmless = old.clone();
        harmless["metadata"]["labels"] = json!({ "key": "text" });
        update("then with a label", harmless);
        for other in choose(spoilt.name, spoilt.break_, [spoilt.place], 1, &mut rng) {
            let mut object = old.clone();
            other.apply(&mut object);
            update("then broken anew", object);
        }
        if let Some(other) = another(resource, &places, &mut rng) {
            let mut object = old.clone();
            other.apply(&mut object);
            update(&format!("then with {}", other.story()), object);
        }
    }
    Ok(cases)
}

/// Whether there is a floating-point number. To the server, 2.0 is another value than 2, and written as 2.
fn has_fractions(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_i64().is_none(),
        Value::Array(items) => items.iter().any(has_fractions),
        Value::Object(fields) => fields.values().any(has_fractions),
        _ => false,
    }
}

fn in_status(place: &Place) -> bool {
    place.resource.status && place.pointer.starts_with("/status")
}

/// Where an object is in the store.
fn key(resource: &Resource, object: &Value) -> String {
    let namespace = if resource.namespaced { format!("{NAMESPACE}/") } else { String::new() };
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    format!("/registry/{}/{}/{namespace}{name}", resource.group, resource.plural)
}

/// The object as the server reads it from the store, as soon as it knows of it.
async fn read(cluster: &Cluster, resource: &Resource, object: &Value) -> Result<Value> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = cluster.ask(Method::GET, &item(resource, object), None).await?;
        if answer.code == 200 {
            return Ok(answer.body);
        }
        ensure!(Instant::now() < deadline, "{} is not in the store: {}", key(resource, object), answer.body);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A place, and what is done to it.
struct Spoilt<'a> {
    name: &'static str,
    break_: Break,
    place: &'a Place,
    change: Change,
}

impl Spoilt<'_> {
    fn story(&self) -> String {
        format!("{} at {}", self.name, self.place.pointer)
    }

    fn apply(&self, object: &mut Value) {
        match &self.change {
            Change::Set(value) => _ = object.pointer_mut(&self.place.pointer).map(|place| *place = value.clone()),
            Change::Remove => {
                let Some((parent, name)) = self.place.pointer.rsplit_once('/') else { return };
                if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
                    fields.remove(name);
                }
            }
        }
    }
}

/// So many of all that can be broken in this way. A schema that occurs in many places counts once, or those with limits would
/// drown in those without.
fn choose<'a>(
    name: &'static str,
    break_: Break,
    places: impl IntoIterator<Item = &'a Place>,
    count: usize,
    rng: &mut StdRng,
) -> Vec<Spoilt<'a>> {
    let mut by_schema: BTreeMap<String, Vec<&Place>> = BTreeMap::new();
    for place in places.into_iter().filter(|place| !break_(place).is_empty()) {
        by_schema.entry(place.schema.to_string()).or_default().push(place);
    }
    let mut all = Vec::new();
    for places in by_schema.values() {
        let Some(place) = places.choose(rng) else { continue };
        let changes = break_(place).into_iter().filter(|change| !differences::is_deliberate(place, change));
        all.extend(changes.map(|change| Spoilt { name, break_, place, change }));
    }
    all.shuffle(rng);
    all.truncate(count);
    all
}

/// Any other thing that can be broken in a kind.
fn another<'a>(resource: &Resource, places: &'a [Place], rng: &mut StdRng) -> Option<Spoilt<'a>> {
    let (name, break_) = BREAKS.choose(rng)?;
    choose(name, *break_, places.iter().filter(|place| place.resource == resource), 1, rng).pop()
}

fn broken(cluster: &Cluster, parts: &[Spoilt<'_>], rng: &mut StdRng) -> Option<Case> {
    let Place { resource, .. } = parts.first()?.place;
    let pointers: Vec<&str> = parts.iter().map(|spoilt| spoilt.place.pointer.as_str()).collect();
    let percent = *[0, 0, 5, 20].choose(rng)?;
    let mut object = thinned(resource, &pointers, percent, rng);
    let way = match in_status(parts[0].place) {
        true => Way::Status,
        false if rng.random_ratio(1, 5) => Way::Update,
        false => Way::Create,
    };
    parts.iter().for_each(|spoilt| spoilt.apply(&mut object));
    let old = cluster.objects[resource.kind].clone();
    if way != Way::Create {
        object["metadata"] = old["metadata"].clone();
    }
    let parts: Vec<String> = parts.iter().map(Spoilt::story).collect();
    let story = format!("{way:?} {}, {}", resource.kind, parts.join(", "));
    Some(Case { resource, way, old, story, object })
}
