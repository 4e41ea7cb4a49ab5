//! The type tables under `types/`, and their parser.
//!
//! A table lists types; a type lists its fields. Each line of a field is name, type and attributes:
//!
//! ```text
//! Disk                                     a type; `atomic` or `open` may follow its name
//!   name!     string max-length=63         `!` marks a required field
//!   disk      DiskTarget                   another type of the tables
//!   tags      [string] set                 a list; `atomic`, `set` or `map(key,…)` say how it merges
//!   options   {quantity nullable}          a map; attributes inside the brackets belong to the items
//!     rule self.size() > 0 -- why          a CEL rule about the field above, with its message
//! ```
//!
//! Plain types are `string`, `time`, `bool`, `int`, `int32`, `int64`, `number`, `quantity`, `int-or-string`, `object`
//! (empty), `any-object` (anything goes) and `metadata` (that of every object). Attributes are `nullable`, `enum(a|b)`,
//! `min=`, `max=`, `min-length=`, `max-length=`, `min-items=`, `max-items=`, `pattern=` (a name of [`Pattern`]) and
//! `default=` JSON.
//!
//! The tables are the single source of the published schemas and of validation; a test compares the Rust types with
//! them.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use serde_json::Value;

use super::pattern::Pattern;

/// Every type by name.
static TYPES: LazyLock<HashMap<&'static str, Type>> = LazyLock::new(|| {
    let tables = [
        include_str!("types/backup.txt"),
        include_str!("types/clone.txt"),
        include_str!("types/configuration.txt"),
        include_str!("types/core.txt"),
        include_str!("types/data_volume.txt"),
        include_str!("types/devices.txt"),
        include_str!("types/domain.txt"),
        include_str!("types/export.txt"),
        include_str!("types/instancetype.txt"),
        include_str!("types/kubevirt.txt"),
        include_str!("types/migration.txt"),
        include_str!("types/migration_policy.txt"),
        include_str!("types/network.txt"),
        include_str!("types/plugin.txt"),
        include_str!("types/pool.txt"),
        include_str!("types/preference.txt"),
        include_str!("types/preset.txt"),
        include_str!("types/replica_set.txt"),
        include_str!("types/restore.txt"),
        include_str!("types/snapshot.txt"),
        include_str!("types/status.txt"),
        include_str!("types/vm.txt"),
        include_str!("types/vmi.txt"),
        include_str!("types/volumes.txt"),
    ];
    let types = tables.into_iter().flat_map(|table| read(table).unwrap_or_else(|line| panic!("schema table: {line}")));
    types.map(|type_| (type_.name, type_)).collect()
});

/// The type of a kind, if the tables have it.
pub(super) fn kind(name: &str) -> Option<&'static Type> {
    TYPES.get(name)
}

/// The type a table mentions.
pub(super) fn named(mention: &Mention) -> &'static Type {
    mention.type_.get_or_init(|| {
        let name = mention.name;
        TYPES.get(name).unwrap_or_else(|| panic!("the schema tables mention {name} and do not define it"))
    })
}

/// A type as a field mentions it. Its table may come later, so it is looked up at the first use, and only then.
#[derive(Debug)]
pub(super) struct Mention {
    name: &'static str,
    type_: OnceLock<&'static Type>,
}

/// An object with known fields.
#[derive(Debug, Default)]
pub(super) struct Type {
    pub(super) name: &'static str,
    /// A writer owns the object as a whole.
    pub(super) atomic: bool,
    /// Fields besides the known ones are kept.
    pub(super) open: bool,
    pub(super) fields: Vec<Field>,
}

impl Type {
    /// The field of this name.
    pub(super) fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) required: bool,
    pub(super) node: Node,
    /// CEL rules with their messages.
    pub(super) rules: Vec<(&'static str, &'static str)>,
}

/// A place a value can be in: its shape and the limits on it.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    pub(super) nullable: bool,
    pub(super) choices: Vec<&'static str>,
    pub(super) min: Option<i64>,
    pub(super) max: Option<i64>,
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    pub(super) min_items: Option<usize>,
    pub(super) max_items: Option<usize>,
    pub(super) pattern: Option<Pattern>,
    pub(super) merge: Merge,
    pub(super) default: Option<Value>,
}

#[derive(Debug)]
pub(super) enum Shape {
    String,
    Time,
    Bool,
    /// Number of bits, where the schema states it.
    Int(Option<u8>),
    Number,
    Quantity,
    IntOrString,
    List(Box<Node>),
    Map(Box<Node>),
    /// An object without fields.
    Object,
    /// An object with any fields.
    AnyObject,
    /// The metadata of every object. Published schemas must leave it to the API server.
    Metadata,
    /// An object of a type of the tables.
    Named(Mention),
}

/// How two writers' lists or maps become one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merge {
    Unstated,
    Atomic,
    Set,
    Keyed(Vec<&'static str>),
}

fn read(table: &'static str) -> Result<Vec<Type>, String> {
    let mut types: Vec<Type> = Vec::new();
    for line in table.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let fail = || format!("cannot read {line:?}");
        if let Some(rule) = line.strip_prefix("    rule ") {
            let field = types.last_mut().and_then(|type_| type_.fields.last_mut()).ok_or_else(fail)?;
            field.rules.push(rule.split_once(" -- ").ok_or_else(fail)?);
        } else if let Some(field) = line.strip_prefix("  ") {
            let (name, node) = field.split_once(' ').ok_or_else(fail)?;
            let (node, rest) = read_node(node.trim_start()).ok_or_else(fail)?;
            if !rest.is_empty() {
                return Err(fail());
            }
            let required = name.ends_with('!');
            let field = Field { name: name.trim_end_matches('!'), required, node, rules: Vec::new() };
            types.last_mut().ok_or_else(fail)?.fields.push(field);
        } else {
            let mut words = line.split(' ');
            let mut type_ = Type { name: words.next().ok_or_else(fail)?, ..Type::default() };
            for word in words {
                match word {
                    "atomic" => type_.atomic = true,
                    "open" => type_.open = true,
                    _ => return Err(fail()),
                }
            }
            types.push(type_);
        }
    }
    Ok(types)
}

/// Reads a type and its attributes up to the end or the bracket that closes it.
fn read_node(text: &'static str) -> Option<(Node, &'static str)> {
    let (shape, mut rest) = read_shape(text)?;
    let mut node = Node {
        shape,
        nullable: false,
        choices: Vec::new(),
        min: None,
        max: None,
        min_length: None,
        max_length: None,
        min_items: None,
        max_items: None,
        pattern: None,
        merge: Merge::Unstated,
        default: None,
    };
    while let Some(text) = rest.strip_prefix(' ') {
        let (word, after) = split_word(text);
        node.attribute(word)?;
        rest = after;
    }
    Some((node, rest))
}

fn read_shape(text: &'static str) -> Option<(Shape, &'static str)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (node, rest) = read_node(inner)?;
        return Some((Shape::List(Box::new(node)), rest.strip_prefix(']')?));
    }
    if let Some(inner) = text.strip_prefix('{') {
        let (node, rest) = read_node(inner)?;
        return Some((Shape::Map(Box::new(node)), rest.strip_prefix('}')?));
    }
    let (word, rest) = split_word(text);
    let shape = match word {
        "string" => Shape::String,
        "time" => Shape::Time,
        "bool" => Shape::Bool,
        "int" => Shape::Int(None),
        "int32" => Shape::Int(Some(32)),
        "int64" => Shape::Int(Some(64)),
        "number" => Shape::Number,
        "quantity" => Shape::Quantity,
        "int-or-string" => Shape::IntOrString,
        "object" => Shape::Object,
        "any-object" => Shape::AnyObject,
        "metadata" => Shape::Metadata,
        name if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
            Shape::Named(Mention { name, type_: OnceLock::new() })
        }
        _ => return None,
    };
    Some((shape, rest))
}

/// A word ends at a space or at a bracket that closes a list or map.
fn split_word(text: &'static str) -> (&'static str, &'static str) {
    text.split_at(text.find([' ', ']', '}']).unwrap_or(text.len()))
}

impl Node {
    fn attribute(&mut self, word: &'static str) -> Option<()> {
        match word {
            "nullable" => self.nullable = true,
            "atomic" => self.merge = Merge::Atomic,
            "set" => self.merge = Merge::Set,
            _ => {
                if let Some(list) = word.strip_prefix("enum(") {
                    self.choices = list.strip_suffix(')')?.split('|').collect();
                } else if let Some(keys) = word.strip_prefix("map(") {
                    self.merge = Merge::Keyed(keys.strip_suffix(')')?.split(',').collect());
                } else {
                    let (name, value) = word.split_once('=')?;
                    match name {
                        "min" => self.min = Some(value.parse().ok()?),
                        "max" => self.max = Some(value.parse().ok()?),
                        "min-length" => self.min_length = Some(value.parse().ok()?),
                        "max-length" => self.max_length = Some(value.parse().ok()?),
                        "min-items" => self.min_items = Some(value.parse().ok()?),
                        "pattern" => self.pattern = Some(Pattern::named(value)?),
                        "max-items" => self.max_items = Some(value.parse().ok()?),
                        "default" => self.default = Some(serde_json::from_str(value).ok()?),
                        _ => return None,
                    }
                }
            }
        }
        Some(())
    }
}
