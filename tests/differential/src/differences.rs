//! Where we differ from KubeVirt on purpose. One row is one decision; a difference without a row is a mistake, and so is
//! a row without a difference. Fields that KubeVirt's causes misname are in a list of their own, next door.

use serde_json::Value;

use crate::compare::Difference;
use crate::generate::Case;
use crate::verdict::Verdict;

/// A difference and where it comes from.
pub struct Evidence<'a> {
    /// The object and its cluster.
    pub case: &'a Case,
    /// What we make of it.
    pub ours: &'a Verdict,
    /// What KubeVirt makes of it.
    pub theirs: &'a Verdict,
    /// How these differ.
    pub difference: &'a Difference,
}

/// A deliberate difference.
pub struct Row {
    /// The keys of the differences it speaks for; a `*` stands for any text.
    pub keys: &'static [&'static str],
    /// Why we differ.
    pub reason: &'static str,
    /// When the row speaks for a difference that has one of the keys.
    pub when: fn(&Evidence<'_>) -> bool,
}

const ALWAYS: fn(&Evidence<'_>) -> bool = |_| true;

/// All of them.
pub const ROWS: &[Row] = &[
    Row {
        keys: &["value ours *"],
        reason: "What its owner wrote stays, also where it says what silence would say, and the status repeats it. \
                 KubeVirt passes the object through Go's encoder, which leaves out false, 0, the empty text and empty lists.",
        when: |evidence| {
            let repeated =
                evidence.difference.key.contains(" status.currentCPUTopology.") && evidence.difference.ours == "0";
            repeated || given(evidence).is_some_and(says_nothing)
        },
    },
    Row {
        keys: &["value theirs *"],
        reason: "What nobody wrote is not there. Go's encoder cannot leave out an empty structure or quantity that is \
                 part of another.",
        when: |evidence| {
            let empty = ["{}", "\"0\"", "0"].contains(&evidence.difference.theirs.as_str());
            empty && ALWAYS_THERE.iter().any(|field| evidence.difference.key.ends_with(field))
        },
    },
    Row {
        keys: &[
            "cause ours FieldValueInvalid *ffinity.*atchLabelKeys*",
            "cause ours FieldValueInvalid *topologySpreadConstraints[].matchLabelKeys*",
            "cause ours FieldValueInvalid *topologySpreadConstraints[].minDomains",
        ],
        reason: "Where guests go follows the rules for Pods. KubeVirt holds a copy of them from before these fields.",
        when: ALWAYS,
    },
    Row {
        keys: &["cause ours * *resourceClaims[]*"],
        reason: "Since the judge's release, claims follow the rules for Pods: a name, and one thing to claim.",
        when: ALWAYS,
    },
    Row {
        keys: &[
            "cause ours FieldValueInvalid *devices.gpus",
            "cause theirs * *devices.gpus*",
            "cause theirs * *resourceClaims",
        ],
        reason: "Since the judge's release, GPUs come all from claims or all by name, and if not, no more is said.",
        when: |evidence| {
            let said = evidence.ours.causes.iter().find(|cause| cause.field.ends_with("devices.gpus"));
            said.is_some_and(|cause| cause.message.contains("either all"))
        },
    },
    Row {
        keys: &["cause ours FieldValueDuplicate *devices.hostDevices[]"],
        reason: "Since the judge's release, a claim's request serves one device, not one of each list.",
        when: |evidence| evidence.difference.ours.contains("gpus["),
    },
    Row {
        keys: &[
            "cause ours FieldValueInvalid *devices.interfaces[]",
            "cause ours FieldValueInvalid *devices.interfaces[].binding",
        ],
        reason: "Since the judge's release, an interface has exactly one binding.",
        when: |evidence| evidence.difference.ours.contains("binding"),
    },
    Row {
        keys: &["cause ours FieldValueInvalid *devices.interfaces[].ports[]"],
        reason: "The last port is 65535; KubeVirt counts one more.",
        when: |evidence| evidence.difference.ours.contains("65536"),
    },
    Row {
        keys: &["cause ours FieldValueInvalid *domain.memory.guest"],
        reason: "A guest with more memory than its Pod may have is killed for using it. KubeVirt looks at this only where \
                 changes wait for a restart.",
        when: |evidence| evidence.difference.ours.contains("memory limit"),
    },
    Row {
        keys: &["cause theirs FieldValueInvalid *bootloader.efi.secureBoot"],
        reason: "Since the judge's release, secure boot does without SMM where TDX takes its place.",
        when: |evidence| evidence.case.object.to_string().contains("\"tdx\""),
    },
    Row {
        keys: &["cause ours FieldValueInvalid *memory.hugepages.pageSize"],
        reason: "A page has a size. KubeVirt takes a negative one, and memory is always a multiple of it.",
        when: |evidence| evidence.difference.ours.contains("\"-"),
    },
    Row {
        keys: &[
            "value ours *cpu.*ockets",
            "value ours status.currentCPUTopology.sockets",
            "cause * FieldValueNotFound *",
        ],
        reason: "A guest has one socket at least. KubeVirt turns a request for no CPU, or less, into a topology of no \
                 sockets, or billions.",
        when: |evidence| asks_for_no_cpu(evidence.case),
    },
    Row {
        keys: &["value theirs *metadata*"],
        reason: "Since the judge's release, the PCI topology is noted only for machines that have PCI Express.",
        when: |evidence| evidence.difference.theirs.contains("v3"),
    },
    Row {
        keys: &["value ours metadata.annotations*"],
        reason: "Since the judge's release, a guest with TDX is told where to have itself attested.",
        when: |evidence| evidence.difference.key.contains("qgs") || evidence.difference.ours.contains("qgs"),
    },
    Row {
        keys: &[
            "cause theirs FieldValueNotSupported *bootloader.efi.secureboot",
            "value ours *bootloader.efi.secureBoot",
            "cause theirs FieldValueInvalid *bootloader.efi.secureBoot",
        ],
        reason: "Since the judge's release, an ARM guest may have secure boot, and goes without unless it asks for it.",
        when: |evidence| runs_on_arm(evidence.case),
    },
    Row {
        keys: &["schema theirs"],
        reason: "An empty text where one of several words is due is no word.",
        when: |evidence| evidence.difference.theirs.contains("should be one of"),
    },
];

fn runs_on_arm(case: &Case) -> bool {
    case.object
        .pointer("/spec/architecture")
        .map_or(case.cluster.config.default_architecture() == "arm64", |given| given == "arm64")
}

fn asks_for_no_cpu(case: &Case) -> bool {
    let specs = ["/spec", "/spec/template/spec"].iter();
    let mut amounts = specs.flat_map(|spec| {
        ["requests", "limits"].map(|list| case.object.pointer(&format!("{spec}/domain/resources/{list}/cpu")))
    });
    amounts.any(|cpu| cpu.is_some_and(|cpu| cpu == "0" || cpu.as_i64().is_some_and(|cpu| cpu <= 0)))
}

/// Fields that Go writes whether or not they say anything.
const ALWAYS_THERE: &[&str] = &[
    " status.guestOSInfo",
    " status.runtimeUser",
    " spec.template.metadata",
    ".domain.resources",
    ".domain.features.acpi",
    ".dataVolumeTemplates[].metadata",
    ".spec.pvc.resources",
    ".spec.storage.resources",
    ".hostDisk.capacity",
    ".resourceFieldRef.divisor",
];

/// What the owner wrote in the field that differs.
fn given<'a>(evidence: &Evidence<'a>) -> Option<&'a Value> {
    let pointer = format!("/{}", evidence.difference.path.replace(['.', '['], "/").replace(']', ""));
    evidence.case.object.pointer(&pointer)
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(says_nothing),
    }
}

/// The row that speaks for a difference.
pub fn row(evidence: &Evidence<'_>) -> Option<usize> {
    let key = &evidence.difference.key;
    ROWS.iter().position(|row| row.keys.iter().any(|shape| matches(shape, key)) && (row.when)(evidence))
}

/// Whether a text has the shape of a key with stars.
pub(crate) fn matches(key: &str, text: &str) -> bool {
    match key.split_once('*') {
        None => key == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|text| {
            (0..=text.len()).filter(|end| text.is_char_boundary(*end)).any(|end| matches(rest, &text[end..]))
        }),
    }
}
