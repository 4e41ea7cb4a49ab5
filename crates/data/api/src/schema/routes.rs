//! Precomputed paths to the few places of an object that need more than a check of one value: lists with unique items,
//! and fields with rules. They are computed once per kind, so that objects without such places cost nothing.

use std::sync::OnceLock;

use kube_cel::CompiledSchema;
use machinery::field::Path;
use serde_json::Value;

use super::KINDS;
use super::check::ItemsBefore;
use super::table::{self, Field, Merge, Node, Shape, Type, named};

/// A value on the way to such a place, or the place itself.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// How the items of the list here relate, if it is a list.
    pub(super) merge: Option<&'static Merge>,
    pub(super) rules: Option<Rules>,
    fields: Vec<(&'static str, Route)>,
    items: Option<Box<Route>>,
    entries: Option<Box<Route>>,
}

/// The rules about a field; compiled when first needed.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) field: &'static Field,
    pub(super) compiled: OnceLock<CompiledSchema>,
}

/// A value that a route passes through.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop<'a> {
    pub(super) route: &'static Route,
    pub(super) value: &'a Value,
    /// The value before an update, if it can be identified.
    pub(super) old: Option<&'a Value>,
    /// The nearest enclosing value that has an old value, and that old value.
    pub(super) around: Option<(&'a Value, &'a Value)>,
}

/// The routes of a kind, from the object itself.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) start: Route,
    /// Whether there is a rule anywhere on the way.
    pub(super) has_rules: bool,
}

/// The routes of a kind; `None` if it is not ours.
pub(super) fn of_kind(kind: &str) -> Option<&'static Routes> {
    static ROUTES: [OnceLock<Routes>; KINDS.len()] = [const { OnceLock::new() }; KINDS.len()];
    let index = KINDS.iter().position(|known| *known == kind)?;
    let type_ = table::kind(kind)?;
    Some(ROUTES[index].get_or_init(|| {
        let start = Route { fields: of_type(type_), ..Route::default() };
        Routes { has_rules: start.leads_to_rules(), start }
    }))
}

fn of_type(type_: &'static Type) -> Vec<(&'static str, Route)> {
    type_
        .fields
        .iter()
        .map(|field| (field.name, of_field(field)))
        .filter(|(_, route)| route.leads_somewhere())
        .collect()
}

fn of_field(field: &'static Field) -> Route {
    let rules = (!field.rules.is_empty()).then(|| Rules { field, compiled: OnceLock::new() });
    Route { rules, ..of_node(&field.node) }
}

fn of_node(node: &'static Node) -> Route {
    let inner = |node| Some(Box::new(of_node(node))).filter(|route| route.leads_somewhere());
    match &node.shape {
        Shape::Named(name) => Route { fields: of_type(named(name)), ..Route::default() },
        Shape::List(item) => Route { merge: Some(&node.merge), items: inner(item), ..Route::default() },
        Shape::Map(entry) => Route { entries: inner(entry), ..Route::default() },
        _ => Route::default(),
    }
}

impl Route {
    fn leads_somewhere(&self) -> bool {
        matches!(self.merge, Some(Merge::Set | Merge::Keyed(_)))
            || self.rules.is_some()
            || !self.fields.is_empty()
            || self.items.is_some()
            || self.entries.is_some()
    }

    fn leads_to_rules(&self) -> bool {
        self.rules.is_some()
            || self.fields.iter().any(|(_, route)| route.leads_to_rules())
            || self.items.iter().chain(&self.entries).any(|route| route.leads_to_rules())
    }
}

/// Calls `visit` for every value the route passes through.
pub(super) fn walk(stop: Stop<'_>, path: &Path<'_>, visit: &mut impl FnMut(Stop<'_>, &Path<'_>)) {
    visit(stop, path);
    let Stop { route, value, old, around } = stop;
    let around = old.map(|old| (value, old)).or(around);
    match value {
        Value::Object(fields) => {
            for (name, route) in &route.fields {
                if let Some(value) = fields.get(*name) {
                    let old = old.and_then(|old| old.get(name));
                    walk(Stop { route, value, old, around }, &path.child(name), visit);
                }
            }
            if let Some(route) = &route.entries {
                for (key, value) in fields {
                    let old = old.and_then(|old| old.get(key));
                    walk(Stop { route, value, old, around }, &path.key(key), visit);
                }
            }
        }
        Value::Array(items) => {
            if let (Some(merge), Some(route)) = (route.merge, &route.items) {
                let before = ItemsBefore::new(merge, old);
                for (index, value) in items.iter().enumerate() {
                    walk(Stop { route, value, old: before.of(value), around }, &path.index(index), visit);
                }
            }
        }
        _ => {}
    }
}
