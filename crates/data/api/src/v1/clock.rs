//! Clock and timers.

use serde::{Deserialize, Serialize};

/// The guest's clock: its base and its timers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Clock {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timezone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utc: Option<ClockOffsetUTC>,
}

/// Timers of the guest; each may be set on its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Timer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hpet: Option<HPETTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hyperv: Option<HypervTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kvm: Option<KVMTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pit: Option<PITTimer>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtc: Option<RTCTimer>,
}

/// The high precision event timer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HPETTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
}

/// Hyper-V's reference time page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct HypervTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// KVM's paravirtual clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct KVMTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
}

/// The programmable interval timer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PITTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
}

/// The real time clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RTCTimer {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub present: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tick_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track: Option<String>,
}

/// A clock that starts at UTC plus an offset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClockOffsetUTC {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset_seconds: Option<i64>,
}
