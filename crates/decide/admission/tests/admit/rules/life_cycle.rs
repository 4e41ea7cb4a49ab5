//! Starting, probing, evicting, rebooting.

use serde_json::{Value, json};

use super::{causes, check, domain, row, spec};
use crate::{closed, config};

#[test]
fn starting_and_evicting() {
    let probe = json!({ "guestAgentPing": {} });
    check([
        row(
            "start strategy",
            spec(json!({ "startStrategy": "Later" })),
            "Invalid spec.startStrategy",
            spec(json!({ "startStrategy": "Paused" })),
        ),
        row(
            "a paused guest is not probed",
            spec(json!({ "startStrategy": "Paused", "livenessProbe": probe })),
            "Invalid spec.startStrategy",
            spec(json!({ "startStrategy": "Paused", "readinessProbe": probe })),
        ),
        row(
            "eviction strategy",
            spec(json!({ "evictionStrategy": "Perhaps" })),
            "Invalid spec.evictionStrategy",
            spec(json!({ "evictionStrategy": "External" })),
        ),
    ]);
    let mut cluster = config();
    cluster.configuration.eviction_strategy = Some("Perhaps".to_owned());
    assert_eq!(causes(&spec(json!({})), &cluster), ["Invalid spec.evictionStrategy"], "the cluster's own");
    let policy = domain(json!({ "rebootPolicy": "Terminate" }));
    assert_eq!(causes(&policy, &config()), Vec::<String>::new());
    assert_eq!(causes(&policy, &closed(&["RebootPolicy"])), ["Invalid spec.domain.rebootPolicy"]);
}

#[test]
fn probes() {
    let ready = |probe: Value| spec(json!({ "readinessProbe": probe }));
    let alive = |probe: Value| spec(json!({ "livenessProbe": probe }));
    let http = json!({ "httpGet": { "port": 80 } });
    let tcp = json!({ "tcpSocket": { "port": 80 } });
    let alone = |probe: &Value| {
        let networks = json!([{ "name": "default", "multus": { "networkName": "n" } }]);
        let interfaces = json!([{ "name": "default", "bridge": {} }]);
        let domain = json!({ "devices": { "interfaces": interfaces } });
        spec(json!({ "networks": networks, "domain": domain, "readinessProbe": probe, "livenessProbe": probe }))
    };
    check([
        row(
            "one handler",
            ready(json!({ "httpGet": { "port": 80 }, "guestAgentPing": {} })),
            "Invalid spec.readinessProbe",
            ready(http.clone()),
        ),
        row(
            "some handler",
            alive(json!({})),
            "Required spec.livenessProbe",
            alive(json!({ "exec": { "command": ["ls"] } })),
        ),
        row("over the Pod network", alone(&http), "Invalid spec.readinessProbe.httpGet", ready(http))
            .and("Invalid spec.livenessProbe.httpGet"),
        row(
            "by any protocol",
            alone(&tcp),
            "Invalid spec.readinessProbe.tcpSocket",
            alone(&json!({ "guestAgentPing": {} })),
        )
        .and("Invalid spec.livenessProbe.tcpSocket"),
    ]);
}
