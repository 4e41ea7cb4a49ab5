//! What must hold among the objects of an installation, whatever its settings are.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

use std::collections::{BTreeMap, BTreeSet};

use api::rights::{Identity, Program, Right, Scope, Verb, rules};
use api::v1::{NodePlacement, VirtualMachineInstance};
use install::owner::Owner;
use install::{Former, Manifest, Programs, Settings, Step, managed, names, with_operator, without_operator};
use k8s_openapi::api::core::v1::{LocalObjectReference, Node, Pod};
use serde_json::{Value, json};

/// Stand-ins with rights of both scopes.
fn programs() -> Programs {
    let program = |name, rights: &[Right]| Program { name, identity: Identity::Account, rights: rights.to_vec() };
    Programs {
        api: program(names::account::API, &[Right::on::<Pod>(&[Verb::List]).in_installation()]),
        controller: program(names::account::CONTROLLER, &[Right::on::<Pod>(&[Verb::Create, Verb::Delete])]),
        handler: program(
            names::account::HANDLER,
            &[Right::watch::<VirtualMachineInstance>(), Right::on::<Node>(&[Verb::Get, Verb::Patch])],
        ),
    }
}

/// Settings that differ in whatever objects depend on.
fn cases() -> Vec<Settings> {
    let elsewhere = Settings {
        namespace: "elsewhere".to_owned(),
        image_prefix: "registry.example/vms".to_owned(),
        image_tag: "v9".to_owned(),
        image_pull_secrets: vec![LocalObjectReference { name: "pull".to_owned() }],
        replicas: Some(1),
        infra: Some(NodePlacement {
            node_selector: [("a".to_owned(), "b".to_owned())].into(),
            ..NodePlacement::default()
        }),
        migration_network: Some("fast".to_owned()),
        kubelet_root: "/data/kubelet/".to_owned(),
        node_certificates: true,
        ca_bundle: Some("-----BEGIN CERTIFICATE-----".to_owned()),
        ..Settings::default()
    };
    vec![Settings::default(), elsewhere]
}

/// Every list of objects, each complete in itself: with virt-operator, what it makes belongs to what is applied.
fn installations() -> Vec<(Settings, Vec<Value>)> {
    let objects = |manifests: Vec<Manifest>| manifests.into_iter().map(|manifest| manifest.object);
    let both = |settings: Settings| {
        let operated = objects(with_operator(&settings, &programs())).chain(objects(managed(&settings, &programs())));
        let alone = objects(without_operator(&settings, &programs()));
        [(settings.clone(), operated.collect()), (settings, alone.collect())]
    };
    cases().into_iter().flat_map(both).collect()
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn named(objects: &[Value], kind: &str) -> BTreeSet<String> {
    of_kind(objects, kind).into_iter().map(|object| text(object, "/metadata/name").to_owned()).collect()
}

fn workloads(objects: &[Value]) -> Vec<&Value> {
    let found: Vec<&Value> = [of_kind(objects, "Deployment"), of_kind(objects, "DaemonSet")].concat();
    assert!(found.len() >= 3);
    found
}

const POD: &str = "/spec/template/spec";

#[test]
fn objects_are_in_the_order_of_application_and_none_is_there_twice() {
    for settings in cases() {
        for manifests in [
            managed(&settings, &programs()),
            with_operator(&settings, &programs()),
            without_operator(&settings, &programs()),
        ] {
            assert!(manifests.is_sorted_by_key(|manifest| manifest.step));
            let mut seen = BTreeSet::new();
            for Manifest { object, .. } in &manifests {
                let part = |pointer| text(object, pointer).to_owned();
                let identity = (part("/kind"), part("/metadata/namespace"), part("/metadata/name"));
                assert!(!identity.0.is_empty() && !identity.2.is_empty() && !part("/apiVersion").is_empty());
                assert!(seen.insert(identity.clone()), "{identity:?} is there twice");
            }
        }
    }
}

#[test]
fn the_kubevirt_object_comes_before_the_webhooks_that_review_it() {
    let manifests = without_operator(&Settings::default(), &programs());
    let step = |kind: &str| manifests.iter().find(|manifest| manifest.object["kind"] == kind).unwrap().step;
    assert!(step("CustomResourceDefinition") < step("KubeVirt"));
    assert!(step("KubeVirt") < step("ValidatingWebhookConfiguration"));
    assert!(step("ValidatingWebhookConfiguration") < Step::Api);
}

#[test]
fn every_object_is_marked_but_the_users_own() {
    for (settings, objects) in installations() {
        for object in objects.iter().filter(|object| object["kind"] != "KubeVirt") {
            assert_eq!(text(object, "/metadata/labels/app.kubernetes.io~1managed-by"), "virt-operator", "{object}");
            assert_eq!(Owner::of(object), Owner::Installation(settings.namespace.clone()), "{object}");
            let id = text(object, "/metadata/annotations/kubevirt.io~1install-strategy-identifier");
            assert_eq!(id, settings.identifier(), "{object}");
        }
        for workload in workloads(&objects) {
            let id = text(workload, "/spec/template/metadata/annotations/kubevirt.io~1install-strategy-identifier");
            assert_eq!(id, settings.identifier());
        }
        let kubevirt = of_kind(&objects, "KubeVirt")[0];
        assert!(kubevirt["metadata"]["labels"].is_null());
    }
}

#[test]
fn namespaced_objects_are_in_the_installation_or_lend_a_role_of_kube_system() {
    for (settings, objects) in installations() {
        for object in &objects {
            let namespace = text(object, "/metadata/namespace");
            let lent = namespace == names::KUBE_SYSTEM && text(object, "/kind").starts_with("Role");
            assert!(namespace.is_empty() || namespace == settings.namespace || lent, "{object}");
        }
    }
}

#[test]
fn pods_run_with_accounts_secrets_and_a_priority_that_exist() {
    for (settings, objects) in installations() {
        let accounts = named(&objects, "ServiceAccount");
        let classes = named(&objects, "PriorityClass");
        for workload in workloads(&objects) {
            let pod = workload.pointer(POD).unwrap();
            assert!(accounts.contains(text(pod, "/serviceAccountName")), "{workload}");
            assert!(classes.contains(text(pod, "/priorityClassName")), "{workload}");
            for volume in list(pod, "/volumes") {
                let secret = text(volume, "/secret/secretName");
                let known = names::CERTIFICATES.iter().any(|certificate| certificate.secret == secret);
                let trusted = text(volume, "/configMap/name") == names::config_map::CA;
                assert!(known || trusted || volume["hostPath"].is_object(), "{volume}");
            }
            // virt-handler needs what only the launcher's image has.
            let is_handler = text(workload, "/metadata/name") == names::app::HANDLER;
            let image = if is_handler { settings.launcher_image() } else { settings.image() };
            assert_eq!(text(pod, "/containers/0/image"), image);
        }
    }
}

#[test]
fn nodes_have_certificates_of_their_own_where_somebody_signs_them() {
    for signed in [true, false] {
        let settings = Settings { node_certificates: signed, ..Settings::default() };
        let objects: Vec<Value> = managed(&settings, &programs()).into_iter().map(|manifest| manifest.object).collect();
        for (name, flags) in [
            (names::app::API, &["--require-node-certificates"][..]),
            (names::app::HANDLER, &["--require-node-certificates", "--certificate-signer=ferrovirt.io/virt-handler"]),
        ] {
            let mut all = workloads(&objects).into_iter();
            let workload = all.find(|workload| text(workload, "/metadata/name") == name).unwrap();
            let args: Vec<&str> =
                list(workload.pointer(POD).unwrap(), "/containers/0/args").filter_map(Value::as_str).collect();
            assert!(flags.iter().all(|flag| args.contains(flag) == signed), "{name}: {args:?}");
        }
    }
}

#[test]
fn a_mount_has_a_volume_and_a_volume_a_mount() {
    for (_, objects) in installations() {
        for workload in workloads(&objects) {
            let pod = workload.pointer(POD).unwrap();
            let names = |pointer| -> BTreeSet<&str> { list(pod, pointer).map(|each| text(each, "/name")).collect() };
            assert_eq!(names("/volumes"), names("/containers/0/volumeMounts"));
        }
    }
}

#[test]
fn only_the_handler_is_privileged() {
    for (_, objects) in installations() {
        for workload in workloads(&objects) {
            let pod = workload.pointer(POD).unwrap();
            let context = &pod["containers"][0]["securityContext"];
            if text(workload, "/metadata/name") == names::app::HANDLER {
                assert_eq!((&context["privileged"], &pod["hostPID"]), (&json!(true), &json!(true)));
                continue;
            }
            assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
            assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
            assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
            assert_eq!(
                (&context["allowPrivilegeEscalation"], &context["readOnlyRootFilesystem"]),
                (&json!(false), &json!(true))
            );
            for shared in ["hostPID", "hostNetwork", "hostIPC"] {
                assert!(pod[shared].is_null(), "{shared}");
            }
            assert!(list(pod, "/volumes").all(|volume| volume["hostPath"].is_null()));
        }
    }
}

#[test]
fn services_and_budgets_select_pods_that_exist_by_ports_they_have() {
    for (_, objects) in installations() {
        let pods: Vec<&Value> = workloads(&objects).into_iter().map(|workload| &workload["spec"]["template"]).collect();
        let selected = |selector: &Value| -> Vec<&Value> {
            let labels = |pod: &Value| pod["metadata"]["labels"].as_object().unwrap().clone();
            let selector = selector.as_object().unwrap();
            let fits = |pod: &&&Value| selector.iter().all(|(key, value)| labels(pod).get(key) == Some(value));
            pods.iter().filter(fits).copied().collect()
        };
        for service in of_kind(&objects, "Service") {
            let pods = selected(&service["spec"]["selector"]);
            assert!(!pods.is_empty(), "{service}");
            let target = &service["spec"]["ports"][0]["targetPort"];
            for pod in pods {
                let fits = |port: &Value| port["name"] == *target || port["containerPort"] == *target;
                assert!(list(pod, "/spec/containers/0/ports").any(fits), "{service}");
            }
        }
        for budget in of_kind(&objects, "PodDisruptionBudget") {
            assert_eq!(selected(&budget["spec"]["selector"]["matchLabels"]).len(), 1);
        }
    }
}

#[test]
fn a_single_replica_has_no_budget_that_would_keep_it_on_its_node() {
    let single = Settings { replicas: Some(1), ..Settings::default() };
    let count = |settings: &Settings| {
        let manifests = managed(settings, &programs());
        manifests.iter().filter(|manifest| manifest.object["kind"] == "PodDisruptionBudget").count()
    };
    assert_eq!((count(&single), count(&Settings::default())), (0, 2));
}

#[test]
fn a_single_replica_goes_when_its_successor_is_ready() {
    for (replicas, unavailable) in [(Some(1), 0), (None, 1), (Some(3), 1)] {
        let settings = Settings { replicas, ..Settings::default() };
        let manifests = [managed(&settings, &programs()), with_operator(&settings, &programs())].concat();
        let objects: Vec<Value> = manifests.into_iter().map(|manifest| manifest.object).collect();
        let deployments = of_kind(&objects, "Deployment");
        assert!(!deployments.is_empty());
        for deployment in deployments {
            let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
            assert_eq!(rolling["maxUnavailable"], unavailable, "{replicas:?}: {deployment}");
        }
    }
}

/// Each webhook of a list of objects, by its name.
fn webhooks(objects: &[Value]) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        for webhook in of_kind(objects, kind).into_iter().flat_map(|object| list(object, "/webhooks")) {
            let before = found.insert(text(webhook, "/name").to_owned(), webhook.clone());
            assert!(before.is_none(), "{webhook}");
        }
    }
    found
}

#[test]
fn each_rule_has_a_webhook_and_each_webhook_a_rule() {
    for (settings, objects) in installations() {
        let webhooks = webhooks(&objects);
        let rules: BTreeSet<&str> = hooks::RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(webhooks.keys().map(String::as_str).collect::<BTreeSet<_>>(), rules);
        let services = named(&objects, "Service");
        for rule in hooks::RULES {
            let webhook = &webhooks[rule.name];
            let service = &webhook["clientConfig"]["service"];
            assert_eq!(service["path"], hooks::path(rule));
            assert!(
                services.contains(text(service, "/name")) && service["namespace"] == settings.namespace,
                "{service}"
            );
            let resource = match rule.subresource {
                "" => rule.resource.to_owned(),
                subresource => format!("{}/{subresource}", rule.resource),
            };
            let registered = list(webhook, "/rules").find(|one| one["resources"][0] == resource).unwrap();
            assert_eq!(registered["apiGroups"], json!([rule.group]));
            assert_eq!(list(registered, "/operations").count(), rule.operations.len());
        }
        let count: usize = webhooks.values().map(|webhook| list(webhook, "/rules").count()).sum();
        assert_eq!(count, hooks::RULES.len());
    }
}

#[test]
fn nothing_is_deleted_or_let_go_of_by_our_leave() {
    for (_, objects) in installations() {
        for (name, webhook) in webhooks(&objects) {
            let operations: Vec<&str> =
                list(&webhook, "/rules").flat_map(|rule| list(rule, "/operations")).filter_map(Value::as_str).collect();
            let deletes = operations.contains(&"DELETE");
            assert_eq!(webhook["failurePolicy"], if deletes { "Ignore" } else { "Fail" }, "{name}");
            let conditions: Vec<&str> = list(&webhook, "/matchConditions").map(|one| text(one, "/name")).collect();
            assert_eq!(conditions.contains(&"deletion-goes-on"), operations.contains(&"UPDATE"), "{name}");
            let evicts = list(&webhook, "/rules").any(|rule| rule["resources"][0] == "pods/eviction");
            assert_eq!(conditions.contains(&"ours"), evicts, "{name}: evictions of others are not our business");
            assert_eq!(webhook["sideEffects"], if evicts { "NoneOnDryRun" } else { "None" }, "{name}");
        }
    }
}

#[test]
fn the_given_ca_is_trusted_wherever_the_api_server_calls_us() {
    let settings = Settings { ca_bundle: Some("ca".to_owned()), ..Settings::default() };
    let objects: Vec<Value> = managed(&settings, &programs()).into_iter().map(|manifest| manifest.object).collect();
    for (name, webhook) in webhooks(&objects) {
        assert_eq!(webhook["clientConfig"]["caBundle"], "Y2E=", "{name}");
    }
    let services = of_kind(&objects, "APIService");
    assert_eq!(services.len(), names::SUBRESOURCES_VERSIONS.len());
    for service in services {
        assert_eq!(service["spec"]["caBundle"], "Y2E=");
    }
}

#[test]
fn the_roles_of_programs_are_what_they_declare_and_none_has_a_wildcard() {
    for (_, objects) in installations() {
        for program in programs().all() {
            let found = |kind: &str| {
                let mut of_kind = of_kind(&objects, kind).into_iter();
                let object = of_kind.find(|object| text(object, "/metadata/name") == program.name);
                object.map_or(json!([]), |object| object["rules"].clone())
            };
            assert_eq!(found("ClusterRole"), json!(rules(&program.rights, Scope::Cluster)), "{}", program.name);
            assert_eq!(found("Role"), json!(rules(&program.rights, Scope::Installation)), "{}", program.name);
        }
        for kind in ["ClusterRole", "Role"] {
            for role in of_kind(&objects, kind) {
                assert!(!role.to_string().contains("\"*\""), "{role}");
            }
        }
    }
}

#[test]
fn bindings_bind_roles_and_accounts_that_exist() {
    for (_, objects) in installations() {
        let accounts = named(&objects, "ServiceAccount");
        for kind in ["ClusterRoleBinding", "RoleBinding"] {
            for binding in of_kind(&objects, kind) {
                let roles = named(&objects, text(binding, "/roleRef/kind"));
                let name = text(binding, "/roleRef/name");
                assert!(roles.contains(name) || name == names::AUTHENTICATION_READER, "{binding}");
                for subject in list(binding, "/subjects").filter(|subject| subject["kind"] == "ServiceAccount") {
                    assert!(accounts.contains(text(subject, "/name")), "{binding}");
                }
            }
        }
    }
}

/// Verbs, groups and resources that rules allow, one by one; names only if wanted.
fn allowed(role: &Value, with_names: bool) -> BTreeSet<(String, String, String)> {
    let mut found = BTreeSet::new();
    for rule in list(role, "/rules").filter(|rule| with_names || rule["resourceNames"].is_null()) {
        for group in list(rule, "/apiGroups") {
            for resource in list(rule, "/resources") {
                for verb in list(rule, "/verbs") {
                    let part = |value: &Value| value.as_str().unwrap().to_owned();
                    found.insert((part(verb), part(group), part(resource)));
                }
            }
        }
    }
    found
}

#[test]
fn the_operator_holds_what_it_grants_and_can_make_what_it_manages() {
    let settings = Settings::default();
    let operator: Vec<Value> =
        with_operator(&settings, &programs()).into_iter().map(|manifest| manifest.object).collect();
    let managed: Vec<Value> = managed(&settings, &programs()).into_iter().map(|manifest| manifest.object).collect();
    let role = |kind: &str, namespace: &str| {
        let fits = |object: &&&Value| text(object, "/metadata/namespace") == namespace;
        let found = of_kind(&operator, kind);
        (*found.iter().find(fits).unwrap()).clone()
    };
    let (cluster, here) = (role("ClusterRole", ""), role("Role", &settings.namespace));
    let everywhere = allowed(&cluster, false);
    let in_installation: BTreeSet<_> = everywhere.union(&allowed(&here, false)).cloned().collect();
    for granted in of_kind(&managed, "ClusterRole") {
        assert!(allowed(granted, true).is_subset(&everywhere), "{granted}");
    }
    for granted in of_kind(&managed, "Role") {
        assert!(allowed(granted, true).is_subset(&in_installation), "{granted}");
    }
    for object in &managed {
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group).to_owned();
        let plural = match text(object, "/kind").to_lowercase() {
            kind if kind.ends_with('y') => format!("{}ies", kind.trim_end_matches('y')),
            kind if kind.ends_with('s') => format!("{kind}es"),
            kind => format!("{kind}s"),
        };
        let rights = match text(object, "/metadata/namespace") {
            "" => allowed(&cluster, true),
            namespace => allowed(&role("Role", namespace), true),
        };
        // It watches what it manages, but for its one binding in kube-system.
        let found = if text(object, "/metadata/namespace") == names::KUBE_SYSTEM { "get" } else { "list" };
        for verb in ["create", found, "patch", "delete"] {
            assert!(rights.contains(&(verb.to_owned(), group.clone(), plural.clone())), "{verb} {plural}.{group}");
        }
    }
}

#[test]
fn the_operator_may_delete_what_earlier_versions_created() {
    const FORMER: &[Former] =
        &[Former { group: "admissionregistration.k8s.io", kind: "ValidatingAdmissionPolicy", name: "old-policy" }];
    let deletes = |former: &'static [Former]| -> Vec<String> {
        let manifests = with_operator(&Settings { former, ..Settings::default() }, &programs());
        let objects: Vec<Value> = manifests.into_iter().map(|manifest| manifest.object).collect();
        let rules = list(of_kind(&objects, "ClusterRole")[0], "/rules").filter(|rule| {
            rule["resources"] == json!(["validatingadmissionpolicies"]) && !rule["resourceNames"].is_null()
        });
        rules
            .filter(|rule| list(rule, "/verbs").any(|verb| verb == "delete"))
            .map(|rule| rule["resourceNames"].to_string())
            .collect()
    };
    let (with, without) = (deletes(FORMER), deletes(&[]));
    assert!(with.len() == 1 && with[0].contains("old-policy") && !without[0].contains("old-policy"), "{with:?}");
}

#[test]
fn pods_run_where_the_images_do() {
    for (_, objects) in installations() {
        for workload in workloads(&objects) {
            let selector = &workload.pointer(POD).unwrap()["nodeSelector"];
            assert_eq!(
                (&selector["kubernetes.io/os"], &selector["kubernetes.io/arch"]),
                (&json!("linux"), &json!("amd64"))
            );
        }
    }
    let node_selector = [("kubernetes.io/arch".to_owned(), "arm64".to_owned())].into();
    let placement = Some(NodePlacement { node_selector, ..NodePlacement::default() });
    let own = Settings { workloads: placement, ..Settings::default() };
    let objects: Vec<Value> = managed(&own, &programs()).into_iter().map(|manifest| manifest.object).collect();
    let handler = of_kind(&objects, "DaemonSet")[0];
    assert_eq!(handler.pointer(POD).unwrap()["nodeSelector"]["kubernetes.io/arch"], "arm64", "the settings decide");
}

#[test]
fn the_operator_changes_nobody_elses_objects() {
    let manifests = with_operator(&Settings::default(), &programs());
    let role =
        manifests.iter().map(|manifest| &manifest.object).find(|object| object["kind"] == "ClusterRole").unwrap();
    let unnamed = allowed(role, false);
    for (group, resource) in [
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("", "secrets"),
    ] {
        for verb in ["patch", "update", "delete", "escalate", "bind"] {
            assert!(!unnamed.contains(&(verb.to_owned(), group.to_owned(), resource.to_owned())), "{verb} {resource}");
        }
    }
}
