//! The importer's webhooks for an API server in the same process: which DataVolumes are stored, and upload tokens.

use api::cdi::{self, DataVolume};
use imports::admit::{self, Cause, WEBHOOK};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Status, StatusCause, StatusDetails};
use review::{Hook, Objects, Operation, Phase, Refusal, Review, Rule, Verdict};
use serde_json::{Value, json};

use crate::Tokens;

/// Judges DataVolumes, and answers requests for tokens.
pub struct Hooks {
    pub tokens: Tokens,
}

const TOKENS: &str = "upload.cdi.kubevirt.io";

const RULES: &[Rule] = &[
    Rule {
        name: WEBHOOK,
        phase: Phase::Validating,
        group: cdi::GROUP,
        resource: "datavolumes",
        subresource: "",
        operations: &[Operation::Create, Operation::Update],
    },
    Rule {
        name: TOKENS,
        phase: Phase::Mutating,
        group: cdi::UPLOAD_GROUP,
        resource: "uploadtokenrequests",
        subresource: "",
        operations: &[Operation::Create],
    },
];

impl Hook for Hooks {
    fn rules(&self) -> &[Rule] {
        RULES
    }

    fn review(&self, review: &Review<'_>, objects: &dyn Objects) -> Verdict {
        if review.group == cdi::UPLOAD_GROUP { self.token(review) } else { data_volume(review, objects) }
    }
}

impl Hooks {
    fn token(&self, review: &Review<'_>) -> Verdict {
        let name = review.object.pointer("/spec/pvcName").and_then(Value::as_str).unwrap_or_default();
        if name.is_empty() {
            return refused(TOKENS, "spec.pvcName", "Required value: name the claim to upload to", false).into();
        }
        let token = self.tokens.upload(review.namespace, name, review.now.0);
        let mut object = review.object.clone();
        if let Some(members) = object.as_object_mut() {
            members.insert("status".to_owned(), json!({ "token": token }));
        }
        Verdict { object: Some(object), ..Verdict::default() }
    }
}

fn data_volume(review: &Review<'_>, objects: &dyn Objects) -> Verdict {
    let decode = |value: &Value| serde_json::from_value::<DataVolume>(value.clone());
    let new = match decode(review.object) {
        Ok(new) => new,
        // The schema's own refusal says it better.
        Err(_) => return Verdict::default(),
    };
    let found = match review.old.map(decode) {
        Some(Ok(old)) => admit::update(&new, &old),
        Some(Err(_)) => None,
        None => {
            let claims = objects.find("", "PersistentVolumeClaim", review.namespace, Some(review.name));
            let claim = claims.into_iter().next();
            let claim = claim.and_then(|claim| serde_json::from_value::<PersistentVolumeClaim>(claim).ok());
            admit::create(&new, claim.as_ref())
        }
    };
    match found {
        None => Verdict::default(),
        Some(Cause { field, message, duplicate }) => refused(WEBHOOK, field, &message, duplicate).into(),
    }
}

fn refused(by: &'static str, field: &str, message: &str, duplicate: bool) -> Refusal {
    let reason = if duplicate { "FieldValueDuplicate" } else { "FieldValueInvalid" };
    let cause = StatusCause {
        field: Some(field.to_owned()),
        message: Some(message.to_owned()),
        reason: Some(reason.to_owned()),
    };
    let status = Status {
        code: Some(422),
        reason: Some("Invalid".to_owned()),
        message: Some(message.to_owned()),
        details: Some(StatusDetails { causes: Some(vec![cause]), ..StatusDetails::default() }),
        ..Status::default()
    };
    Refusal { by, status }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use review::User;

    use super::*;

    struct Claims(Vec<Value>);

    impl Objects for Claims {
        fn find(&self, _: &str, _: &str, _: &str, _: Option<&str>) -> Vec<Value> {
            self.0.clone()
        }
    }

    fn hooks() -> (tempfile::TempDir, Hooks) {
        let dir = tempfile::tempdir().unwrap();
        let tokens = Tokens::open(&dir.path().join("key")).unwrap();
        (dir, Hooks { tokens })
    }

    #[test]
    fn a_request_is_answered_with_a_token_for_its_claim() {
        let (_dir, hooks) = hooks();
        let now = Time(jiff::Timestamp::from_second(1_800_000_000).unwrap());
        let ask = |spec: Value| {
            let object = json!({"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
                                "metadata": {"namespace": "ns", "name": "t"}, "spec": spec});
            let user = User::default();
            let review = Review::of(Operation::Create, "v1beta1", "uploadtokenrequests", &user, &object, now.clone());
            hooks.review(&review, &Claims(vec![]))
        };
        let answer = ask(json!({"pvcName": "disk"})).object.unwrap();
        let target = hooks.tokens.check(answer["status"]["token"].as_str().unwrap(), now.0).unwrap();
        assert_eq!((target.namespace.as_str(), target.name.as_str()), ("ns", "disk"));
        assert!(ask(json!({})).refusal.is_some());
    }

    #[test]
    fn a_bad_data_volume_is_refused_with_field_and_reason() {
        let (_dir, hooks) = hooks();
        let review = |spec: Value, claims: Vec<Value>| {
            let object = json!({"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume",
                                "metadata": {"namespace": "ns", "name": "d"}, "spec": spec});
            let (user, now) = (User::default(), Time(jiff::Timestamp::UNIX_EPOCH));
            let review = Review::of(Operation::Create, "v1beta1", "datavolumes", &user, &object, now);
            hooks.review(&review, &Claims(claims)).refusal.map(|refusal| json!(refusal.into_status()))
        };
        let good = json!({"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}});
        assert_eq!(review(good.clone(), vec![]), None);
        let mut two = good.clone();
        two["source"]["upload"] = json!({});
        let refusal = review(two, vec![]).unwrap();
        assert_eq!(refusal["details"]["causes"][0]["message"], "Multiple Data volume sources");
        assert_eq!(refusal["code"], 422);
        let taken = review(good, vec![json!({"metadata": {"namespace": "ns", "name": "d"}})]).unwrap();
        assert_eq!(taken["details"]["causes"][0]["reason"], "FieldValueDuplicate");
    }
}
