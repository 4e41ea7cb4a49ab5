//! Errors from executing an action.

use informer::{Classify, ErrorClass};

/// Whether a request depends on what was read before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A read, a create or a delete.
    Plain,
    /// An update or patch with a precondition: it fails if the object has changed or is gone.
    Guarded,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to {doing}")]
    Api {
        /// Verb and object of the failed request.
        doing: String,
        request: Request,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("{kind} {name} exists and is not ours; delete or rename it")]
    NameTaken { kind: &'static str, name: String },
    #[error(
        "{user} may not copy {source_name} from namespace {namespace} into DataVolume {name}; \
         grant it create on datavolumes/source there"
    )]
    NotAuthorized { name: String, user: String, source_name: String, namespace: String },
    #[error("failed to start a migration: the API server did not answer within {seconds} seconds")]
    StartHung { seconds: u64 },
    #[error("the leader election lease was lost")]
    LeaseLost,
}

impl Error {
    pub(crate) fn api(doing: String, request: Request, source: kube::Error) -> Self {
        Self::Api { doing, request, source: Box::new(source) }
    }

    /// Whether the server rejected the request, so that nothing was written. Without a response that is unknown.
    pub(crate) fn is_refusal(&self) -> bool {
        let Self::Api { source, .. } = self else { return false };
        matches!(source.as_ref(), kube::Error::Api(status) if (400..500).contains(&status.code))
    }

    /// The reasons of the causes that the server, or a webhook, names for its refusal.
    pub(crate) fn causes(&self) -> impl Iterator<Item = &str> {
        let status = match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => Some(status),
                _ => None,
            },
            _ => None,
        };
        let causes = status.into_iter().flat_map(|status| &status.details).flat_map(|details| &details.causes);
        causes.map(|cause| cause.reason.as_str())
    }

    /// One sentence for a condition or an event: the server's message without the client's wrapping.
    pub(crate) fn for_user(&self) -> String {
        match self {
            Self::Api { source, .. } => match source.as_ref() {
                kube::Error::Api(status) => format!("{self}: {}", status.message),
                other => format!("{self}: {other}"),
            },
            other => other.to_string(),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        let Self::Api { request, source, .. } = self else { return ErrorClass::Transient };
        let kube::Error::Api(status) = source.as_ref() else { return ErrorClass::Transient };
        match (request, status.code) {
            (_, 409) => ErrorClass::Conflict,
            // A failed JSON patch test returns 422; the object may also be gone already.
            (Request::Guarded, 404 | 422) => ErrorClass::Conflict,
            // The request itself is malformed, whatever the cluster state: retrying cannot help.
            (_, 400 | 405 | 413 | 415) => ErrorClass::Terminal,
            _ => ErrorClass::Transient,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answer(code: u16, request: Request) -> Error {
        let status = kube::core::Status { code, message: "quota".into(), ..Default::default() };
        Error::api("create Pod x".into(), request, kube::Error::Api(Box::new(status)))
    }

    #[test]
    fn answers_of_the_server_fall_into_classes() {
        let rows = [
            (409, Request::Guarded, ErrorClass::Conflict),
            (409, Request::Plain, ErrorClass::Conflict),
            (422, Request::Guarded, ErrorClass::Conflict),
            (404, Request::Guarded, ErrorClass::Conflict),
            (422, Request::Plain, ErrorClass::Transient),
            (403, Request::Plain, ErrorClass::Transient),
            (500, Request::Plain, ErrorClass::Transient),
            (413, Request::Guarded, ErrorClass::Terminal),
        ];
        for (code, request, class) in rows {
            assert_eq!(answer(code, request).class(), class, "{code} {request:?}");
        }
    }

    #[test]
    fn a_refusal_names_its_causes() {
        let answer = |details| {
            let text = r#"admission webhook "datavolume-validate.cdi.kubevirt.io" denied the request"#;
            let status = json!({"code": 422, "message": text, "details": details});
            let status = serde_json::from_value(status).unwrap();
            Error::api("create DataVolume x".into(), Request::Plain, kube::Error::Api(Box::new(status)))
        };
        let causes = json!({"causes": [{"reason": "FieldValueDuplicate", "field": "DataVolume.Name"}]});
        assert_eq!(answer(causes).causes().collect::<Vec<_>>(), ["FieldValueDuplicate"]);
        assert_eq!(answer(json!(null)).causes().count(), 0);
        assert_eq!(Error::LeaseLost.causes().count(), 0);
    }

    #[test]
    fn users_read_the_servers_words_once() {
        assert_eq!(answer(403, Request::Plain).for_user(), "failed to create Pod x: quota");
    }
}
