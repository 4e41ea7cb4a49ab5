//! The server's error messages, with every cause on its own line.

use virtctl::api_error;

/// The server's message, followed by causes that it does not mention, one per line.
pub(crate) fn server_error(error: kube::Error, server: &str) -> anyhow::Error {
    let kube::Error::Api(status) = error else { return api_error(error, server) };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let mut text = api_error(kube::Error::Api(status.clone()), server).to_string();
    for cause in causes.iter().filter(|cause| !status.message.contains(&cause.message)) {
        text += &match cause.field.as_str() {
            "" => format!("\n  {}", cause.message),
            field => format!("\n  {field}: {}", cause.message),
        };
    }
    anyhow::anyhow!(text)
}

/// What is not there is no error.
pub(crate) fn gone_is_none<T>(result: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::{Status, StatusCause, StatusDetails};

    #[test]
    fn causes_are_listed_unless_the_message_has_them() {
        let cause = |field: &str, message: &str| StatusCause {
            field: field.into(),
            message: message.into(),
            reason: "FieldValueInvalid".into(),
        };
        let mut details: StatusDetails = serde_json::from_str("{}").unwrap();
        details.causes = vec![cause("spec.a", "is odd"), cause("spec.b", "told above")];
        let status = Status::failure("demo is invalid: told above", "Invalid").with_details(details);
        let text = server_error(kube::Error::Api(status.boxed()), "here").to_string();
        assert_eq!(text, "demo is invalid: told above\n  spec.a: is odd");
    }
}
