//! Decodes Kubernetes protobuf bodies, for the small kinds that `kubectl create …` and `kubectl auth can-i` send.
//!
//! Since release 1.32 `kubectl` sends objects it generates in protobuf and does not fall back to JSON. Responses are
//! always JSON, which it accepts. Kinds outside the table are rejected by media type, and unknown fields by number:
//! nothing a client sent is silently dropped.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

/// Prefix of every body; an envelope with type and raw object follows.
const MAGIC: &[u8] = b"k8s\0";

/// Messages by name: field number, JSON name, type. `-` is a field that the server ignores in a request, `?` one whose
/// zero value is significant, `[…]` a list, `{…}` a map from strings.
const MESSAGES: &str = "
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status -
NamespaceSpec: 1 finalizers [string]
ConfigMap: 1 metadata ObjectMeta, 2 data {string}, 3 binaryData {bytes}, 4 immutable bool?
Secret: 1 metadata ObjectMeta, 2 data {bytes}, 3 type string, 4 stringData {string}, 5 immutable bool?
ServiceAccount: 1 metadata ObjectMeta, 2 secrets [ObjectReference], 3 imagePullSecrets [LocalObjectReference], 4 automountServiceAccountToken bool?
Service: 1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status -
ServiceSpec: 1 ports [ServicePort], 2 selector {string}, 3 clusterIP string, 4 type string, 5 externalIPs [string], 7 sessionAffinity string, 8 loadBalancerIP string, 9 loadBalancerSourceRanges [string], 10 externalName string, 11 externalTrafficPolicy string, 12 healthCheckNodePort int, 13 publishNotReadyAddresses bool, 14 sessionAffinityConfig SessionAffinityConfig, 17 ipFamilyPolicy string, 18 clusterIPs [string], 19 ipFamilies [string], 20 allocateLoadBalancerNodePorts bool?, 21 loadBalancerClass string, 22 internalTrafficPolicy string, 23 trafficDistribution string
ServicePort: 1 name string, 2 protocol string, 3 port int, 4 targetPort IntOrString, 5 nodePort int, 6 appProtocol string
SessionAffinityConfig: 1 clientIP ClientIPConfig
ClientIPConfig: 1 timeoutSeconds int?
ResourceQuota: 1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status -
ResourceQuotaSpec: 1 hard {Quantity}, 2 scopes [string], 3 scopeSelector ScopeSelector
ScopeSelector: 1 matchExpressions [ScopedResourceSelectorRequirement]
ScopedResourceSelectorRequirement: 1 scopeName string, 2 operator string, 3 values [string]
Role: 1 metadata ObjectMeta, 2 rules [PolicyRule]
ClusterRole: 1 metadata ObjectMeta, 2 rules [PolicyRule], 3 aggregationRule AggregationRule
AggregationRule: 1 clusterRoleSelectors [LabelSelector]
PolicyRule: 1 verbs [string], 2 apiGroups [string], 3 resources [string], 4 resourceNames [string], 5 nonResourceURLs [string]
RoleBinding: 1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef
ClusterRoleBinding: 1 metadata ObjectMeta, 2 subjects [Subject], 3 roleRef RoleRef
Subject: 1 kind string, 2 apiGroup string, 3 name string, 4 namespace string
RoleRef: 1 apiGroup string, 2 kind string, 3 name string
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status -
PodDisruptionBudgetSpec: 1 minAvailable IntOrString, 2 selector LabelSelector, 3 maxUnavailable IntOrString, 4 unhealthyPodEvictionPolicy string
PriorityClass: 1 metadata ObjectMeta, 2 value int?, 3 globalDefault bool, 4 description string, 5 preemptionPolicy string
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec SelfSubjectAccessReviewSpec, 3 status -
SelfSubjectAccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes
SubjectAccessReview: 1 metadata ObjectMeta, 2 spec SubjectAccessReviewSpec, 3 status -
SubjectAccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes, 3 user string, 4 groups [string], 5 extra -, 6 uid string
ResourceAttributes: 1 namespace string, 2 verb string, 3 group string, 4 version string, 5 resource string, 6 subresource string, 7 name string, 8 fieldSelector -, 9 labelSelector -
NonResourceAttributes: 1 path string, 2 verb string
DeleteOptions: 1 gracePeriodSeconds int?, 2 preconditions Preconditions, 3 orphanDependents bool?, 4 propagationPolicy string, 5 dryRun [string], 6 ignoreStoreReadErrorWithClusterBreakingPotential -
Preconditions: 1 uid string, 2 resourceVersion string
ObjectMeta: 1 name string, 2 generateName string, 3 namespace string, 4 selfLink -, 5 uid string, 6 resourceVersion string, 7 generation -, 8 creationTimestamp -, 9 deletionTimestamp -, 10 deletionGracePeriodSeconds -, 11 labels {string}, 12 annotations {string}, 13 ownerReferences [OwnerReference], 14 finalizers [string], 17 managedFields -
OwnerReference: 1 kind string, 3 name string, 4 uid string, 5 apiVersion string, 6 controller bool?, 7 blockOwnerDeletion bool?
ObjectReference: 1 kind string, 2 namespace string, 3 name string, 4 uid string, 5 apiVersion string, 6 resourceVersion string, 7 fieldPath string
LocalObjectReference: 1 name string
LabelSelector: 1 matchLabels {string}, 2 matchExpressions [LabelSelectorRequirement]
LabelSelectorRequirement: 1 key string, 2 operator string, 3 values [string]
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Ignored,
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    number: u64,
    name: &'static str,
    shape: Shape,
    /// Whether a zero value is kept.
    significant: bool,
    kind: &'static str,
}

static TABLE: LazyLock<HashMap<&'static str, Vec<Field>>> = LazyLock::new(|| {
    let lines = MESSAGES.lines().filter_map(|line| line.split_once(": "));
    lines.map(|(name, fields)| (name, fields.split(", ").filter_map(field).collect())).collect()
});

fn field(text: &'static str) -> Option<Field> {
    let mut words = text.split(' ');
    let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let significant = kind.ends_with('?');
    let kind = kind.trim_end_matches('?');
    let (shape, kind) = match (kind.strip_prefix('['), kind.strip_prefix('{')) {
        (Some(kind), _) => (Shape::List, kind.trim_end_matches(']')),
        (_, Some(kind)) => (Shape::Map, kind.trim_end_matches('}')),
        _ if kind == "-" => (Shape::Ignored, kind),
        _ => (Shape::One, kind),
    };
    Some(Field { number, name, shape, significant, kind })
}

/// Why a body is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("kind {0:?} is not read from protobuf here")]
    UnknownKind(String),
    #[error("field {number} of {message} is not known")]
    UnknownField { message: String, number: u64 },
    #[error("the protobuf message is malformed")]
    Malformed,
}

/// A value on the wire.
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    fn bytes(&self) -> Result<&'a [u8], Error> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) => Err(Error::Malformed),
        }
    }

    fn text(&self) -> Result<&'a str, Error> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Error::Malformed)
    }

    fn number(&self) -> Result<u64, Error> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Bytes(_) => Err(Error::Malformed),
        }
    }
}

fn varint(input: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = input.split_first().ok_or(Error::Malformed)?;
        *input = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Error::Malformed)
}

fn take<'a>(input: &mut &'a [u8], length: u64) -> Result<&'a [u8], Error> {
    let length = usize::try_from(length).map_err(|_| Error::Malformed)?;
    let (taken, rest) = input.split_at_checked(length).ok_or(Error::Malformed)?;
    *input = rest;
    Ok(taken)
}

/// Number and value of the next field; `None` at the end.
fn next_field<'a>(input: &mut &'a [u8]) -> Result<Option<(u64, Wire<'a>)>, Error> {
    if input.is_empty() {
        return Ok(None);
    }
    let tag = varint(input)?;
    let value = match tag & 7 {
        0 => Wire::Number(varint(input)?),
        2 => {
            let length = varint(input)?;
            Wire::Bytes(take(input, length)?)
        }
        1 => Wire::Bytes(take(input, 8)?),
        5 => Wire::Bytes(take(input, 4)?),
        _ => return Err(Error::Malformed),
    };
    Ok(Some((tag >> 3, value)))
}

/// Decodes the object in a body, including its type.
pub(super) fn decode(body: &[u8]) -> Result<Value, Error> {
    let mut envelope = body.strip_prefix(MAGIC).ok_or(Error::Malformed)?;
    let (mut api_version, mut kind, mut raw) = ("", "", &[][..]);
    while let Some((number, value)) = next_field(&mut envelope)? {
        match number {
            1 => {
                let mut type_meta = value.bytes()?;
                while let Some((number, value)) = next_field(&mut type_meta)? {
                    match number {
                        1 => api_version = value.text()?,
                        2 => kind = value.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = value.bytes()?,
            _ => {}
        }
    }
    let (name, fields) = TABLE.get_key_value(kind).ok_or_else(|| Error::UnknownKind(kind.into()))?;
    let mut object = message(name, fields, raw)?;
    object.insert("apiVersion".into(), json!(api_version));
    object.insert("kind".into(), json!(kind));
    Ok(Value::Object(object))
}

fn message(name: &str, fields: &[Field], mut input: &[u8]) -> Result<Map<String, Value>, Error> {
    let mut object = Map::new();
    while let Some((number, wire)) = next_field(&mut input)? {
        let unknown = || Error::UnknownField { message: name.into(), number };
        let field = fields.iter().find(|field| field.number == number).ok_or_else(unknown)?;
        match field.shape {
            Shape::Ignored => {}
            Shape::One => {
                if let Some(value) = value(field.kind, field.significant, &wire)? {
                    object.insert(field.name.into(), value);
                }
            }
            Shape::List => {
                let item = value(field.kind, true, &wire)?.unwrap_or(Value::Null);
                let list = object.entry(field.name).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(item);
                }
            }
            Shape::Map => {
                let (key, item) = entry(field.kind, wire.bytes()?)?;
                object.entry(field.name).or_insert_with(|| json!({}))[key] = item;
            }
        }
    }
    Ok(object)
}

/// A map entry is a message of key and value.
fn entry(kind: &str, mut input: &[u8]) -> Result<(String, Value), Error> {
    let (mut key, mut item) = (String::new(), value(kind, true, &Wire::Bytes(&[]))?.unwrap_or(Value::Null));
    while let Some((number, wire)) = next_field(&mut input)? {
        match number {
            1 => key = wire.text()?.to_owned(),
            _ => item = value(kind, true, &wire)?.unwrap_or(Value::Null),
        }
    }
    Ok((key, item))
}

/// `None` for a zero that means "not set": Go always sends values that are not pointers.
fn value(kind: &str, significant: bool, wire: &Wire<'_>) -> Result<Option<Value>, Error> {
    let keep = |zero: bool, value: Value| (!zero || significant).then_some(value);
    Ok(match kind {
        "string" => keep(wire.text()?.is_empty(), json!(wire.text()?)),
        // Negative numbers are encoded as two's complement.
        "int" => keep(wire.number()? == 0, json!(wire.number()?.cast_signed())),
        "bool" => keep(wire.number()? == 0, json!(wire.number()? != 0)),
        "bytes" => Some(json!(BASE64.encode(wire.bytes()?))),
        "Quantity" => Some(json!(first_text(wire.bytes()?)?)),
        "IntOrString" => Some(int_or_string(wire.bytes()?)?),
        name => {
            let (name, fields) = TABLE.get_key_value(name).ok_or(Error::Malformed)?;
            Some(Value::Object(message(name, fields, wire.bytes()?)?))
        }
    })
}

fn first_text(mut input: &[u8]) -> Result<String, Error> {
    while let Some((number, wire)) = next_field(&mut input)? {
        if number == 1 {
            return Ok(wire.text()?.to_owned());
        }
    }
    Ok(String::new())
}

fn int_or_string(mut input: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, "");
    while let Some((field, wire)) = next_field(&mut input)? {
        match field {
            1 => is_text = wire.number()? == 1,
            2 => number = wire.number()?.cast_signed(),
            3 => text = wire.text()?,
            _ => {}
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Length-delimited field.
    fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
        assert!(content.len() < 128);
        let mut field = vec![number << 3 | 2, content.len() as u8];
        field.extend_from_slice(content);
        field
    }

    fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, api_version.as_bytes()), bytes(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw), bytes(3, b""), bytes(4, b"")].concat()
    }

    #[test]
    fn every_type_that_is_named_is_there() {
        let basic = ["string", "int", "bool", "bytes", "Quantity", "IntOrString", "-"];
        for (message, fields) in TABLE.iter() {
            assert!(!fields.is_empty(), "{message}");
            for field in fields {
                assert!(basic.contains(&field.kind) || TABLE.contains_key(field.kind), "{message}.{}", field.name);
            }
        }
    }

    #[test]
    fn an_object_is_read_with_lists_maps_and_bytes() {
        let label = bytes(11, &[bytes(1, b"a"), bytes(2, b"b")].concat());
        let meta = [bytes(1, b"s"), bytes(2, b""), bytes(8, b""), vec![7 << 3, 0], label, bytes(14, b"f/1")].concat();
        let data = bytes(2, &[bytes(1, b"k"), bytes(2, b"v")].concat());
        let raw = [bytes(1, &meta), data, bytes(3, b"Opaque"), vec![5 << 3, 0]].concat();
        let secret = decode(&envelope("v1", "Secret", &raw)).unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "s", "labels": {"a": "b"}, "finalizers": ["f/1"]},
            "data": {"k": "dg=="}, "type": "Opaque", "immutable": false,
        });
        assert_eq!(secret, expected);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert_eq!(decode(&envelope("v1", "Pod", b"")), Err(Error::UnknownKind("Pod".into())));
        let raw = bytes(9, b"x");
        let unknown = Error::UnknownField { message: "ConfigMap".into(), number: 9 };
        assert_eq!(decode(&envelope("v1", "ConfigMap", &raw)), Err(unknown));
        for broken in [&b"{}"[..], b"k8s\0\xff", b"k8s\0\x0a\x7f", b"k8s\0\x0b"] {
            assert_eq!(decode(broken), Err(Error::Malformed));
        }
    }

    proptest::proptest! {
        #[test]
        fn no_body_makes_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _any = decode(&[MAGIC, &body].concat());
            let _any = decode(&envelope("v1", "Service", &body[..body.len().min(100)]));
        }
    }
}
