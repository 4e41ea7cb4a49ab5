//! Values grown from a schema: which fields there are is drawn, what stands in them comes from the words.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::rng::Rng;
use super::words::words;
use crate::newer;

/// Fields of which an object has one, or at most one. What is not listed here may stand beside.
struct Choice {
    /// The end of the object's path.
    at: &'static str,
    /// Whether none will do as well.
    optional: bool,
    /// The fields to choose from.
    fields: &'static [&'static str],
    /// Fields that are never right any more, or never right when an object is new.
    never: &'static [&'static str],
}

const fn one(at: &'static str, fields: &'static [&'static str]) -> Choice {
    Choice { at, optional: false, fields, never: &[] }
}

const fn at_most_one(at: &'static str, fields: &'static [&'static str]) -> Choice {
    Choice { at, optional: true, fields, never: &[] }
}

const CHOICES: &[Choice] = &[
    one(
        "volumes[]",
        &[
            "cloudInitConfigDrive",
            "cloudInitNoCloud",
            "configMap",
            "containerDisk",
            "containerDisk",
            "containerPath",
            "dataVolume",
            "downwardAPI",
            "downwardMetrics",
            "emptyDisk",
            "ephemeral",
            "hostDisk",
            "memoryDump",
            "persistentVolumeClaim",
            "persistentVolumeClaim",
            "secret",
            "serviceAccount",
            "sysprep",
        ],
    ),
    one("networks[]", &["pod", "multus"]),
    Choice {
        never: &["slirp", "macvtap", "passt"],
        ..one("interfaces[]", &["bridge", "masquerade", "sriov", "binding", "passtBinding"])
    },
    at_most_one("disks[]", &["disk", "disk", "lun", "cdrom"]),
    one("readinessProbe", &["exec", "guestAgentPing", "httpGet", "tcpSocket"]),
    one("livenessProbe", &["exec", "guestAgentPing", "httpGet", "tcpSocket"]),
    one("accessCredentials[]", &["sshPublicKey", "userPassword"]),
    one("sshPublicKey.propagationMethod", &["configDrive", "noCloud", "qemuGuestAgent"]),
    one("userPassword.propagationMethod", &["qemuGuestAgent"]),
    one("sshPublicKey.source", &["secret"]),
    one("userPassword.source", &["secret"]),
    at_most_one("bootloader", &["bios", "efi"]),
    at_most_one("clock", &["utc", "timezone"]),
    at_most_one("features", &["hyperv", "hyperv", "hypervPassthrough"]),
    one("resourceClaims[]", &["resourceClaimName", "resourceClaimTemplateName"]),
    Choice { never: &["diag288"], ..one("watchdog", &["i6300esb"]) },
    at_most_one("sysprep", &["configMap", "secret"]),
    one("launchSecurity", &["sev", "snp", "tdx"]),
    at_most_one("blockSize", &["custom", "matchVolume"]),
    one("downwardAPI.fields[]", &["fieldRef", "resourceFieldRef"]),
    one("cloudInitNoCloud", &["userData", "userDataBase64", "secretRef"]),
    at_most_one("cloudInitNoCloud", &["networkData", "networkDataBase64", "networkDataSecretRef"]),
    one("cloudInitConfigDrive", &["userData", "userDataBase64", "secretRef"]),
    at_most_one("cloudInitConfigDrive", &["networkData", "networkDataBase64", "networkDataSecretRef"]),
    // The schema can do without these, the rules cannot.
    one("volumes[].configMap", &["name"]),
    one("volumes[].secret", &["secretName"]),
    one("volumes[].serviceAccount", &["serviceAccountName"]),
    one("dnsConfig.options[]", &["name"]),
    one("video", &["type"]),
    one("dataVolumeTemplates[].spec", &["pvc", "storage"]),
    one(
        "dataVolumeTemplates[].spec.source",
        &["blank", "http", "gcs", "imageio", "pvc", "registry", "s3", "snapshot", "upload", "vddk"],
    ),
    Choice { never: &["claimName", "requestName"], ..one("gpus[]", &["deviceName"]) },
    Choice { never: &["claimName", "requestName"], ..one("hostDevices[]", &["deviceName"]) },
    // Labels that name keys to match by need a selector and say too much for most objects; breaking adds them.
    Choice {
        never: &["matchLabelKeys", "mismatchLabelKeys"],
        ..at_most_one("podAffinityTerm", &["namespaces", "namespaceSelector"])
    },
    Choice { never: &["matchLabelKeys"], ..at_most_one("topologySpreadConstraints[]", &[]) },
];

/// The keys that maps have, by the end of the map's path.
const KEYS: &[(&str, &[&str])] = &[
    ("domain.resources.requests", &["cpu", "memory"]),
    ("domain.resources.limits", &["cpu", "memory"]),
    ("requests", &["storage"]),
    ("limits", &["storage"]),
    ("", &["app", "tier", "zone", "kubernetes.io/arch"]),
];

fn ends_with(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|start| start.is_empty() || start.ends_with('.') || end.is_empty())
}

fn schema_of(kind: &str) -> Value {
    api::schema::openapi(kind).unwrap_or_default()
}

/// The schema of an instance.
pub(crate) static VMI: LazyLock<Value> = LazyLock::new(|| schema_of("VirtualMachineInstance"));
/// The schema of a virtual machine.
pub(crate) static VM: LazyLock<Value> = LazyLock::new(|| schema_of("VirtualMachine"));

/// The schema below `schema` at a dotted path, where `[]` enters a list.
pub(crate) fn below<'s>(schema: &'s Value, path: &str) -> &'s Value {
    path.split('.').filter(|name| !name.is_empty()).fold(schema, |schema, name| {
        let field = &schema["properties"][name.trim_end_matches("[]")];
        if name.ends_with("[]") { &field["items"] } else { field }
    })
}

/// Grows values.
pub(crate) struct Grower<'r> {
    pub(crate) rng: &'r mut Rng,
    /// How many of a hundred optional fields are there.
    pub(crate) density: usize,
    /// Fields that are made elsewhere.
    pub(crate) without: &'static [&'static str],
}

impl Grower<'_> {
    /// A value of this schema at this path.
    pub(crate) fn grow(&mut self, schema: &Value, path: &str) -> Value {
        if schema["properties"].is_null()
            && let Some(words) = words(path)
            && !words.good.is_empty()
        {
            return fit(schema, self.rng.pick(&words.good).clone());
        }
        match schema["type"].as_str() {
            Some("object") => Value::Object(self.object(schema, path)),
            Some("array") => {
                let count = 1 + self.rng.below(2);
                (0..count).map(|_| self.grow(&schema["items"], &format!("{path}[]"))).collect()
            }
            Some("boolean") => json!(self.rng.chance(70)),
            Some("integer" | "number") => json!(1 + self.rng.below(8)),
            Some("string") if schema["enum"].is_array() => match schema["enum"].as_array() {
                Some(choices) if !choices.is_empty() => self.rng.pick(choices).clone(),
                _ => json!(""),
            },
            Some("string") => json!(*self.rng.pick(&["text", "a", "another-one"])),
            _ if !schema["pattern"].is_null() => json!(*self.rng.pick(&["1Gi", "2", "512Mi"])),
            _ => json!(1 + self.rng.below(8)),
        }
    }

    fn object(&mut self, schema: &Value, path: &str) -> Map<String, Value> {
        let mut object = Map::new();
        if let Some(entry) = schema.get("additionalProperties") {
            let keys = KEYS.iter().find(|(end, _)| ends_with(path, end)).map(|(_, keys)| *keys).unwrap_or_default();
            for key in keys {
                if self.rng.chance(40) {
                    object.insert((*key).to_owned(), self.grow(entry, &format!("{path}.{key}")));
                }
            }
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let chosen = self.chosen(path);
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let made_elsewhere = self.without.contains(&below.as_str()) || newer::is_newer(&below);
            let wanted = match chosen.iter().find(|(field, _)| field == name) {
                Some((_, wanted)) => *wanted,
                None => required.contains(&name.as_str()) || self.rng.chance(self.density),
            };
            if wanted && !made_elsewhere {
                object.insert(name.clone(), self.grow(field, &below));
            }
        }
        object
    }

    /// The fields of all choices to be made here, each with whether it was chosen.
    fn chosen(&mut self, path: &str) -> Vec<(&'static str, bool)> {
        let mut fields = Vec::new();
        for choice in CHOICES.iter().filter(|choice| ends_with(path, choice.at)) {
            let none = choice.optional && (choice.fields.is_empty() || self.rng.chance(50));
            let chosen = if none { "" } else { *self.rng.pick(choice.fields) };
            fields.extend(choice.fields.iter().map(|field| (*field, *field == chosen)));
            fields.extend(choice.never.iter().map(|field| (*field, false)));
        }
        fields
    }
}

/// A word as the schema wants it: a number where text is due becomes text.
pub(crate) fn fit(schema: &Value, word: Value) -> Value {
    match (schema["type"].as_str(), &word) {
        (Some("string"), Value::Number(number)) => json!(number.to_string()),
        (Some("string"), Value::Bool(flag)) => json!(flag.to_string()),
        _ => word,
    }
}
