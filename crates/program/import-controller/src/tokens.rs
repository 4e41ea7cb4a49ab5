//! Upload tokens: JSON web tokens with a key of this cluster (HMAC, SHA-256).

use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::hmac::{self, HMAC_SHA256, Key};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use imports::token::{Payload, Refusal, Target};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::Error;

/// No token of ours is longer; what is longer is not looked at.
const LONGEST: usize = 4096;
const KEY: usize = 32;

/// Makes and checks tokens. Clones have the same key.
#[derive(Clone)]
pub struct Tokens {
    key: Arc<Key>,
}

impl Tokens {
    /// With the key in this file, which is made if it is missing.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| Error::Key { path: path.to_owned(), source };
        let found = match std::fs::read(path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error.into())),
        };
        // A file of another length was cut off by a crash: tokens last minutes, so a new key costs little.
        let key = match found.filter(|found| found.len() == KEY) {
            Some(found) => found,
            None => {
                let mut fresh = vec![0; KEY];
                aws_lc_rs::rand::fill(&mut fresh).map_err(|error| failed(Box::new(error)))?;
                hostfs::atomic::write_mode(path, &fresh, 0o600).map_err(|error| failed(error.into()))?;
                fresh
            }
        };
        Ok(Self::new(&key))
    }

    fn new(key: &[u8]) -> Self {
        Self { key: Arc::new(Key::new(HMAC_SHA256, key)) }
    }

    /// A token for an upload to this claim.
    pub(crate) fn upload(&self, namespace: &str, name: &str, now: Timestamp) -> String {
        let header = json!({"alg": "HS256", "typ": "JWT"});
        let payload = json!(Payload::upload(namespace, name, now));
        let said = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(payload.to_string()));
        let signature = BASE64.encode(hmac::sign(&self.key, said.as_bytes()));
        format!("{said}.{signature}")
    }

    /// Whose claim a token is for.
    pub(crate) fn check(&self, token: &str, now: Timestamp) -> Result<Target, Refusal> {
        self.payload(token).ok_or(Refusal::Unauthorized)?.admit(now)
    }

    fn payload(&self, token: &str) -> Option<Payload> {
        let (said, signature) =
            token.get(..LONGEST.min(token.len())).filter(|same| *same == token)?.rsplit_once('.')?;
        let signature = BASE64.decode(signature).ok()?;
        // In constant time. The header is not asked which algorithm it would like.
        hmac::verify(&self.key, said.as_bytes(), &signature).ok()?;
        let (_, payload) = said.split_once('.')?;
        let payload: Value = serde_json::from_slice(&BASE64.decode(payload).ok()?).ok()?;
        serde_json::from_value(payload).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_claim_and_under_its_key() {
        let tokens = Tokens::new(&[7; KEY]);
        let token = tokens.upload("ns", "disk", now());
        let target = tokens.check(&token, now()).unwrap();
        assert_eq!((target.namespace.as_str(), target.name.as_str()), ("ns", "disk"));
        assert_eq!(Tokens::new(&[8; KEY]).check(&token, now()), Err(Refusal::Unauthorized));
        assert_eq!(token.split('.').count(), 3, "clients read it as a JSON web token");
    }

    #[test]
    fn a_changed_token_is_none() {
        let tokens = Tokens::new(&[7; KEY]);
        let token = tokens.upload("ns", "disk", now());
        let parts: Vec<&str> = token.split('.').collect();
        let other = json!(Payload::upload("ns", "other", now())).to_string();
        let none = BASE64.encode(json!({"alg": "none"}).to_string());
        for bad in [
            format!("{}.{}.{}", parts[0], BASE64.encode(other), parts[2]),
            format!("{none}.{}.", parts[1]),
            format!("{}.{}", parts[0], parts[1]),
            token[..token.len() - 2].to_owned(),
            format!("{token}{}", "x".repeat(LONGEST)),
            String::new(),
            "ä.ö.ü".to_owned(),
        ] {
            assert_eq!(tokens.check(&bad, now()), Err(Refusal::Unauthorized), "{bad}");
        }
    }

    #[test]
    fn the_key_outlives_the_process_and_is_nobody_elses() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("upload.key");
        let token = Tokens::open(&path).unwrap().upload("ns", "disk", now());
        assert!(Tokens::open(&path).unwrap().check(&token, now()).is_ok());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, b"short").unwrap();
        assert!(Tokens::open(&path).unwrap().check(&token, now()).is_err(), "a damaged key is replaced");
    }
}
