//! Upload tokens: what they say, and whether one lets its bearer write to a claim.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Who issues them, in upstream's words.
const ISSUER: &str = "cdi-apiserver";
const UPLOAD: &str = "Upload";
const CLAIMS: &str = "persistentvolumeclaims";
/// How long a token lasts.
pub const LIFETIME: Duration = Duration::from_secs(300);
/// Clocks may differ by this.
const LEEWAY: i64 = 10;

/// The content of a token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Payload {
    iss: String,
    iat: i64,
    nbf: i64,
    exp: i64,
    operation: String,
    name: String,
    namespace: String,
    resource: Resource,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Resource {
    group: String,
    version: String,
    resource: String,
}

impl Payload {
    /// For an upload to this claim, from now on.
    pub fn upload(namespace: &str, name: &str, now: Timestamp) -> Self {
        let now = now.as_second();
        Self {
            iss: ISSUER.to_owned(),
            iat: now,
            nbf: now,
            exp: now.saturating_add_unsigned(LIFETIME.as_secs()),
            operation: UPLOAD.to_owned(),
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            resource: Resource { group: String::new(), version: "v1".to_owned(), resource: CLAIMS.to_owned() },
        }
    }

    /// Whose claim it is for; the signature has been checked.
    pub fn admit(self, now: Timestamp) -> Result<Target, Refusal> {
        let now = now.as_second();
        let in_time = self.nbf.saturating_sub(LEEWAY) <= now && now <= self.exp.saturating_add(LEEWAY);
        if self.iss != ISSUER || !in_time || self.iat.saturating_sub(LEEWAY) > now {
            return Err(Refusal::Unauthorized);
        }
        let is_upload = self.operation == UPLOAD && self.resource.resource == CLAIMS;
        if !is_upload || self.name.is_empty() || self.namespace.is_empty() {
            return Err(Refusal::BadRequest);
        }
        Ok(Target { namespace: self.namespace, name: self.name })
    }
}

/// The claim of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub namespace: String,
    pub name: String,
}

/// Why a request without a claim to write to is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    BadRequest,
    Unauthorized,
}

/// The token in an `Authorization` header.
pub fn bearer(header: Option<&str>) -> Result<&str, Refusal> {
    let (scheme, token) =
        header.and_then(|header| header.trim().split_once(char::is_whitespace)).ok_or(Refusal::BadRequest)?;
    let token = token.trim_start();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte);
    if !scheme.eq_ignore_ascii_case("bearer") || token.is_empty() || !token.bytes().all(fits) {
        return Err(Refusal::BadRequest);
    }
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_token_is_for_one_claim_and_five_minutes() {
        let payload = Payload::upload("ns", "disk", at(1000));
        let target = Target { namespace: "ns".to_owned(), name: "disk".to_owned() };
        for (now, expected) in [
            (1000, Ok(target.clone())),
            (1310, Ok(target.clone())),
            (1311, Err(Refusal::Unauthorized)),
            (990, Ok(target.clone())),
            (989, Err(Refusal::Unauthorized)),
        ] {
            assert_eq!(payload.clone().admit(at(now)), expected, "{now}");
        }
    }

    #[test]
    fn what_is_no_upload_to_a_claim_is_refused() {
        let good = Payload::upload("ns", "disk", at(1000));
        for (bad, expected) in [
            (Payload { operation: "Clone".to_owned(), ..good.clone() }, Refusal::BadRequest),
            (Payload { name: String::new(), ..good.clone() }, Refusal::BadRequest),
            (Payload { namespace: String::new(), ..good.clone() }, Refusal::BadRequest),
            (Payload { resource: Resource::default(), ..good.clone() }, Refusal::BadRequest),
            (Payload { iss: "somebody".to_owned(), ..good.clone() }, Refusal::Unauthorized),
            (Payload { iat: 2000, ..good.clone() }, Refusal::Unauthorized),
            (Payload { exp: i64::MIN, ..good }, Refusal::Unauthorized),
        ] {
            assert_eq!(bad.clone().admit(at(1000)), Err(expected), "{bad:?}");
        }
    }

    #[test]
    fn a_header_has_one_bearer_token() {
        for (header, expected) in [
            (Some("Bearer a.b-c_d"), Ok("a.b-c_d")),
            (Some("bearer   x"), Ok("x")),
            (None, Err(Refusal::BadRequest)),
            (Some(""), Err(Refusal::BadRequest)),
            (Some("Bearer "), Err(Refusal::BadRequest)),
            (Some("Bearer a b"), Err(Refusal::BadRequest)),
            (Some("Basic eA=="), Err(Refusal::BadRequest)),
        ] {
            assert_eq!(bearer(header), expected, "{header:?}");
        }
    }
}
