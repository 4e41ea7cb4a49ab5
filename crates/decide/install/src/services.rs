//! Services, and the registration of the aggregated API.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{APIService, APIServiceSpec, ServiceReference};
use serde_json::Value;

use crate::object::{Texts, of_cluster, of_installation, texts, typed};
use crate::{Settings, names};

/// Priority of the group and its versions in discovery.
const GROUP_PRIORITY: i32 = 1000;
const VERSION_PRIORITY: i32 = 15;

/// Name of the port with metrics, in Services and Pods.
pub(crate) const METRICS_PORT: &str = "metrics";

/// virt-api, for the API server.
pub(crate) fn api(settings: &Settings) -> Value {
    let selector = texts([(api::labels::APP, names::app::API)]);
    service(names::service::API, selector, IntOrString::Int(names::port::HTTPS), settings)
}

/// virt-operator's webhooks, for the API server.
pub(crate) fn operator_webhook(settings: &Settings) -> Value {
    let selector = texts([(api::labels::APP, names::app::OPERATOR)]);
    service(names::service::OPERATOR_WEBHOOK, selector, IntOrString::Int(names::port::OPERATOR_WEBHOOK), settings)
}

/// The endpoints with metrics. Headless, since each Pod is scraped by itself.
pub(crate) fn metrics(settings: &Settings) -> Value {
    let selector = texts([(names::METRICS_LABEL, "")]);
    let target = IntOrString::String(METRICS_PORT.to_owned());
    let mut service = service(names::service::METRICS, selector, target, settings);
    service["spec"]["clusterIP"] = "None".into();
    service["metadata"]["labels"][names::METRICS_LABEL] = "".into();
    service["spec"]["ports"][0]["name"] = METRICS_PORT.into();
    service
}

fn service(name: &str, selector: Texts, target: IntOrString, settings: &Settings) -> Value {
    let port = ServicePort {
        name: Some("https".to_owned()),
        port: names::port::SERVICE,
        protocol: Some("TCP".to_owned()),
        target_port: Some(target),
        ..ServicePort::default()
    };
    let spec = ServiceSpec { ports: Some(vec![port]), selector: Some(selector), ..ServiceSpec::default() };
    let service = Service { metadata: of_installation(name, settings), spec: Some(spec), status: None };
    typed(&service, settings)
}

/// Makes the API server forward requests for subresources to virt-api.
pub(crate) fn aggregated(settings: &Settings) -> Vec<Value> {
    names::SUBRESOURCES_VERSIONS.iter().map(|version| aggregated_version(version, settings)).collect()
}

fn aggregated_version(version: &str, settings: &Settings) -> Value {
    let spec = APIServiceSpec {
        ca_bundle: settings.ca_bundle.as_ref().map(|bundle| ByteString(bundle.clone().into_bytes())),
        group: Some(names::SUBRESOURCES_GROUP.to_owned()),
        group_priority_minimum: GROUP_PRIORITY,
        version: Some(version.to_owned()),
        version_priority: VERSION_PRIORITY,
        service: Some(ServiceReference {
            name: Some(names::service::API.to_owned()),
            namespace: Some(settings.namespace.clone()),
            port: Some(names::port::SERVICE),
        }),
        ..APIServiceSpec::default()
    };
    let name = format!("{version}.{}", names::SUBRESOURCES_GROUP);
    typed(&APIService { metadata: of_cluster(&name), spec: Some(spec), status: None }, settings)
}
