//! Polls the guest agent and parses its answers defensively.
//!
//! The agent runs inside the guest and is not trusted. Its answers are limited in size and number, strings are
//! truncated and sanitized, and anything malformed is dropped. Nothing here is decided by it.

use std::time::Duration;

use api::v1::VirtualMachineInstanceGuestOSInfo;
use launcher_contract::types::{DomainStatus, GuestAgent, GuestInterface};
use libvirt_io::{Connection, Domain};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::error::{Error, chain};
use crate::session::Session;
use crate::state::StateStore;

/// Addresses change, and users wait for them after a start.
const INTERFACES_EVERY: Duration = Duration::from_secs(5);
/// The OS name changes only with a reboot, after which the agent is queried again anyway.
const SYSTEM_EVERY: Duration = Duration::from_secs(120);
/// Timeout of one agent command, in seconds.
const ANSWER_WITHIN: u32 = 5;
/// More than a sane agent returns.
const ANSWER_MAX: usize = 256 << 10;
const INTERFACES_MAX: usize = 32;
const ADDRESSES_MAX: usize = 16;
const TEXT_MAX: usize = 256;

/// Polls for ever, whenever the agent of a running guest is connected.
pub(crate) async fn poll(session: Session, state: StateStore, domain_name: String) {
    let there = |state: &launcher_contract::types::LauncherState| {
        let domain = state.domain.as_ref();
        domain.is_some_and(|domain| domain.agent_connected && domain.status == DomainStatus::Running)
    };
    let mut system_due = Instant::now();
    loop {
        if !there(&state.get()) {
            state.until(there).await;
            system_due = Instant::now();
        }
        let with_system = Instant::now() >= system_due;
        match ask(&session, &domain_name, with_system).await {
            Ok(answers) => {
                if with_system {
                    system_due = Instant::now() + SYSTEM_EVERY;
                }
                state.update(|state| {
                    if there(state) {
                        answers.into_state(state.guest_agent.get_or_insert_default());
                    }
                });
            }
            Err(error) => tracing::debug!(error = chain(&error), "the guest agent does not answer"),
        }
        tokio::time::sleep(INTERFACES_EVERY).await;
    }
}

struct Answers {
    interfaces: Vec<GuestInterface>,
    system: Option<System>,
}

struct System {
    version: Option<String>,
    hostname: Option<String>,
    os: Option<VirtualMachineInstanceGuestOSInfo>,
}

impl Answers {
    fn into_state(self, agent: &mut GuestAgent) {
        agent.interfaces = self.interfaces;
        if let Some(System { version, hostname, os }) = self.system {
            (agent.version, agent.hostname, agent.os) = (version, hostname, os);
        }
    }
}

async fn ask(session: &Session, domain_name: &str, with_system: bool) -> Result<Answers, Error> {
    let connection = session.connection().await?;
    let failed = |source| Error::Libvirt { action: "look up the domain", source };
    let domain = connection.lookup_by_name(domain_name).await.map_err(failed)?.ok_or(Error::NoDomain)?;
    let command = async |name: &str| {
        let command = serde_json::json!({ "execute": name });
        execute(&connection, &domain, &command, ANSWER_WITHIN).await
    };
    let interfaces = interfaces(&command("guest-network-get-interfaces").await?);
    let mut system = None;
    if with_system {
        // An old agent may support only some of these.
        let version = command("guest-info").await.ok().and_then(|info| text(info.get("version")?));
        let hostname = command("guest-get-host-name").await.ok().and_then(|name| text(name.get("host-name")?));
        let os = command("guest-get-osinfo").await.ok().map(|info| os_info(&info));
        system = Some(System { version, hostname, os });
    }
    Ok(Answers { interfaces, system })
}

/// Sends one command and parses the answer into its result or error.
pub(crate) async fn execute(
    connection: &Connection,
    domain: &Domain,
    command: &Value,
    timeout_seconds: u32,
) -> Result<Value, Error> {
    let answer = connection
        .agent_command(domain, &command.to_string(), timeout_seconds)
        .await
        .map_err(|source| Error::Libvirt { action: "reach the guest agent", source })?;
    unwrap_answer(&answer)
}

fn unwrap_answer(answer: &str) -> Result<Value, Error> {
    #[derive(Deserialize)]
    struct Answer {
        #[serde(rename = "return")]
        result: Option<Value>,
        error: Option<Value>,
    }
    if answer.len() > ANSWER_MAX {
        return Err(Error::Agent(format!("response of {} bytes exceeds the limit", answer.len())));
    }
    let answer: Answer = serde_json::from_str(answer).map_err(|_| Error::Agent("cannot parse the response".into()))?;
    match (answer.result, answer.error) {
        (Some(result), _) => Ok(result),
        (None, Some(error)) => {
            let complaint = error.get("desc").and_then(text).unwrap_or_else(|| "no reason given".into());
            Err(Error::Agent(complaint))
        }
        (None, None) => Err(Error::Agent("empty response".into())),
    }
}

/// Sanitizes a string from the guest: no control characters, limited length.
fn text(value: &Value) -> Option<String> {
    let clean: String = value.as_str()?.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect();
    (!clean.is_empty()).then_some(clean)
}

fn os_info(info: &Value) -> VirtualMachineInstanceGuestOSInfo {
    let field = |name: &str| info.get(name).and_then(text);
    VirtualMachineInstanceGuestOSInfo {
        id: field("id"),
        kernel_release: field("kernel-release"),
        kernel_version: field("kernel-version"),
        machine: field("machine"),
        name: field("name"),
        pretty_name: field("pretty-name"),
        version: field("version"),
        version_id: field("version-id"),
    }
}

/// The guest's interfaces, except loopback and those without a MAC address.
fn interfaces(list: &Value) -> Vec<GuestInterface> {
    let entries = list.as_array().map(Vec::as_slice).unwrap_or_default();
    entries.iter().filter_map(interface).take(INTERFACES_MAX).collect()
}

fn interface(entry: &Value) -> Option<GuestInterface> {
    let name = text(entry.get("name")?)?;
    let mac: netplan::MacAddr = entry.get("hardware-address")?.as_str()?.parse().ok()?;
    if name == "lo" || mac == netplan::MacAddr([0; 6]) {
        return None;
    }
    let addresses = entry.get("ip-addresses").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let address = |entry: &Value| -> Option<String> {
        let address: std::net::IpAddr = entry.get("ip-address")?.as_str()?.parse().ok()?;
        Some(address.to_string())
    };
    let ips = addresses.iter().filter_map(address).take(ADDRESSES_MAX).collect();
    Some(GuestInterface { name, mac: mac.to_string(), ips })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn interfaces_are_read_without_loopback_and_nonsense() {
        let list = json!([
            { "name": "lo", "hardware-address": "00:00:00:00:00:00", "ip-addresses": [{ "ip-address": "127.0.0.1" }] },
            { "name": "eth0", "hardware-address": "02:00:00:00:00:01", "statistics": {}, "ip-addresses": [
                { "ip-address": "10.0.2.2", "ip-address-type": "ipv4", "prefix": 24 },
                { "ip-address": "fe80::1", "prefix": 64 },
                { "ip-address": "<script>" }, { "prefix": 1 }, 7 ] },
            { "name": "sit0" },
            { "name": "bad", "hardware-address": "zz" },
            { "name": 5, "hardware-address": "02:00:00:00:00:02" },
            "nothing",
        ]);
        let expected = GuestInterface {
            name: "eth0".into(),
            mac: "02:00:00:00:00:01".into(),
            ips: vec!["10.0.2.2".into(), "fe80::1".into()],
        };
        assert_eq!(interfaces(&list), [expected]);
    }

    #[test]
    fn a_talkative_guest_is_cut_short() {
        let address = json!({ "ip-address": "10.0.0.1" });
        let entry = |n: usize| {
            let mac = format!("02:00:00:00:{:02x}:{:02x}", n >> 8, n & 255);
            json!({ "name": "e".repeat(5000), "hardware-address": mac, "ip-addresses": vec![address.clone(); 500] })
        };
        let seen = interfaces(&Value::Array((1..1000).map(entry).collect()));
        assert_eq!((seen.len(), seen[0].ips.len(), seen[0].name.len()), (INTERFACES_MAX, ADDRESSES_MAX, TEXT_MAX));
        assert!(matches!(unwrap_answer(&"x".repeat(ANSWER_MAX + 1)), Err(Error::Agent(_))));
    }

    #[test]
    fn texts_lose_their_control_characters() {
        let info = os_info(&json!({ "id": "debian\u{1b}[31m\n", "name": "", "version": 12 }));
        assert_eq!((info.id.as_deref(), info.name, info.version), (Some("debian[31m"), None, None));
    }

    #[test]
    fn a_complaint_is_told_apart_from_an_answer() {
        assert_eq!(unwrap_answer(r#"{"return": {}}"#).unwrap(), json!({}));
        let complaint = unwrap_answer(r#"{"error": {"class": "X", "desc": "no such command"}}"#).unwrap_err();
        assert_eq!(complaint.to_string(), "the guest agent refused: no such command");
        for nonsense in ["", "[]", "{}", "\u{0}", r#"{"return""#] {
            assert!(unwrap_answer(nonsense).is_err(), "{nonsense:?}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,20}".prop_map(Value::from),
        ];
        let keys = "name|hardware-address|ip-addresses|ip-address|id|return|error|desc";
        leaf.prop_recursive(4, 32, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(keys, inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_answer_makes_the_launcher_panic(value in any_json()) {
            let _ = interfaces(&value);
            let _ = os_info(&value);
            let _ = unwrap_answer(&value.to_string());
        }
    }
}
