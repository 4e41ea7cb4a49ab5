//! When certificates are renewed, and which CAs peers trust.
//!
//! ```text
//! CA 1  ├──────────────────────────────┬─ overlap ─┤
//! CA 2                                 ├──────────────────────────────┬─ overlap ─┤
//! bundle  1 . . . . . . . . . . . . .   2 1 . . . . 2 . . . . . . . .
//! signed by CA 1 . . . . . . . . . . . . . ^ CA 2: once the new bundle has propagated
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use api::v1::{CertConfig, KubeVirtSpec};
use install::names::{CERTIFICATES, Certificate};
use jiff::Timestamp;
use machinery::identity::CA_PROPAGATION;

/// How long a CA is valid, unless the KubeVirt object says otherwise.
const CA_DURATION: Duration = Duration::from_secs(168 * 3600);
/// The same for all other certificates.
const DURATION: Duration = Duration::from_secs(24 * 3600);
/// By default a certificate is renewed in the last fifth of its lifetime.
const RENEW_PART: u32 = 5;
/// The most CAs in a bundle.
const BUNDLE_MAX: usize = 50;
/// Prefix of a CA's common name; its creation time follows.
pub const AUTHORITY: &str = "kubevirt.io";
/// Annotation of Secrets: the configured lifetime of the certificate.
pub const DURATION_ANNOTATION: &str = "kubevirt.io/duration";

/// A CA in a Secret or in the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    pub pem: String,
    /// Identifies its key: the authority key identifier of certificates that it signs.
    pub key_id: String,
    pub created: Timestamp,
    pub not_after: Timestamp,
    /// What [`DURATION_ANNOTATION`] says; nothing for one of the bundle.
    pub duration: Option<String>,
}

/// A certificate that the CA signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub common_name: String,
    pub dns_names: Vec<String>,
    /// The key of the CA that signed it.
    pub authority: String,
    pub not_after: Timestamp,
    /// What [`DURATION_ANNOTATION`] says.
    pub duration: Option<String>,
}

/// Existing certificates. Invalid ones, and those whose key does not match, count as missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub authority: Option<Authority>,
    /// The CAs of the bundle.
    pub bundle: Vec<Authority>,
    /// By Secret.
    pub leaves: BTreeMap<String, Leaf>,
}

/// A certificate to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    Authority { duration: Duration, because: String },
    Leaf { certificate: Certificate, duration: Duration, because: String },
}

/// How long certificates are valid, and when they are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    pub ca_duration: Duration,
    /// How long two CAs are valid at the same time.
    pub overlap: Duration,
    pub duration: Duration,
    pub renew_before: Duration,
}

impl Rotation {
    /// What a KubeVirt object asks for. The error names the field.
    pub fn of(spec: &KubeVirtSpec) -> Result<Self, String> {
        let asked = spec.certificate_rotate_strategy.as_ref().and_then(|strategy| strategy.self_signed.clone());
        let asked = asked.unwrap_or_default();
        let part = |config: &Option<CertConfig>, get: fn(&CertConfig) -> Option<String>| config.as_ref().and_then(get);
        let ca_duration = asked.ca_rotate_interval.or_else(|| part(&asked.ca, |ca| ca.duration.clone()));
        let ca_duration = read("ca.duration", ca_duration)?.unwrap_or(CA_DURATION);
        let overlap = asked.ca_overlap_interval.or_else(|| part(&asked.ca, |ca| ca.renew_before.clone()));
        let overlap = read("ca.renewBefore", overlap)?;
        let duration = asked.cert_rotate_interval.or_else(|| part(&asked.server, |server| server.duration.clone()));
        let duration = read("server.duration", duration)?.unwrap_or(DURATION);
        let renew_before = read("server.renewBefore", part(&asked.server, |server| server.renew_before.clone()))?;
        // A certificate that is due from the beginning would be renewed again and again.
        let due = |asked: Option<Duration>, life: Duration| asked.unwrap_or(life / RENEW_PART).min(life / 10 * 9);
        Ok(Self {
            ca_duration,
            overlap: due(overlap, ca_duration),
            duration,
            renew_before: due(renew_before, duration),
        })
    }

    /// How long peers may take to trust a new CA.
    fn propagation(&self) -> Duration {
        CA_PROPAGATION.min(self.overlap / 2)
    }
}

fn read(field: &str, text: Option<String>) -> Result<Option<Duration>, String> {
    let Some(text) = text else { return Ok(None) };
    let wrong = |why: String| format!("spec.certificateRotateStrategy.selfSigned.{field} is {text:?}: {why}");
    let duration: machinery::duration::Duration = text.parse().map_err(|error| wrong(format!("{error}")))?;
    let duration = duration.to_std().filter(|duration| *duration >= Duration::from_secs(1));
    duration.map(Some).ok_or_else(|| wrong("must be at least 1s".to_owned()))
}

/// How [`DURATION_ANNOTATION`] writes it.
pub fn text(duration: Duration) -> String {
    machinery::duration::Duration::from(duration).to_string()
}

/// What to do about certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    pub renewals: Vec<Renewal>,
    /// The CAs that peers must trust, in PEM; `None` while there is no CA.
    pub bundle: Option<String>,
    /// When the next renewal is due.
    pub next: Option<Timestamp>,
}

/// Plans the renewal of certificates in an installation in this namespace.
pub fn plan(facts: &Facts, rotation: &Rotation, namespace: &str, now: Timestamp) -> Plan {
    let Some(authority) = &facts.authority else {
        let because = "there is no usable CA".to_owned();
        return make_authority(rotation, because);
    };
    let due = authority.not_after - rotation.overlap;
    if authority.duration.as_deref() != Some(text(rotation.ca_duration).as_str()) {
        return make_authority(rotation, "its duration was changed".to_owned());
    }
    if now >= due {
        return make_authority(rotation, format!("the CA expires at {}", authority.not_after));
    }
    let (trusted, mut next) = trusted(authority, &facts.bundle, rotation, now);
    next.push(due);
    let mut renewals = Vec::new();
    for certificate in CERTIFICATES {
        match leaf_due(certificate, facts, authority, &trusted, rotation, namespace, now) {
            Due::Now(because) => {
                renewals.push(Renewal::Leaf { certificate: *certificate, duration: rotation.duration, because });
            }
            Due::At(at) => next.push(at),
        }
    }
    let bundle = trusted.iter().map(|authority| authority.pem.trim_end().to_owned() + "\n").collect();
    Plan { renewals, bundle: Some(bundle), next: next.into_iter().min() }
}

fn make_authority(rotation: &Rotation, because: String) -> Plan {
    let renewal = Renewal::Authority { duration: rotation.ca_duration, because };
    Plan { renewals: vec![renewal], ..Plan::default() }
}

/// The CAs that peers trust, the current one first; and when one of them leaves the bundle.
fn trusted<'a>(
    current: &'a Authority,
    bundle: &'a [Authority],
    rotation: &Rotation,
    now: Timestamp,
) -> (Vec<&'a Authority>, Vec<Timestamp>) {
    let mut older: Vec<&Authority> = bundle.iter().filter(|other| other.key_id != current.key_id).collect();
    older.sort_by_key(|authority| std::cmp::Reverse(authority.created));
    older.dedup_by(|one, other| one.key_id == other.key_id);
    let (mut trusted, mut ends) = (vec![current], vec![]);
    let mut successor = current;
    for authority in older {
        let end = authority.not_after.min(successor.created + rotation.overlap);
        if now < end {
            trusted.push(authority);
            ends.push(end);
        }
        successor = authority;
    }
    trusted.truncate(BUNDLE_MAX);
    (trusted, ends)
}

/// When the current CA may sign: once all peers trust it. `None` if there is no other CA.
fn spread_at(current: &Authority, trusted: &[&Authority], rotation: &Rotation) -> Option<Timestamp> {
    let others = trusted.iter().any(|authority| authority.key_id != current.key_id);
    others.then(|| current.created + rotation.propagation())
}

/// How long the CA must wait before it signs a node's certificate; `None` if it may sign now.
pub fn signs_in(facts: &Facts, rotation: &Rotation, now: Timestamp) -> Option<Duration> {
    let current = facts.authority.as_ref()?;
    let (trusted, _) = trusted(current, &facts.bundle, rotation, now);
    let wait = spread_at(current, &trusted, rotation)?.duration_since(now);
    Duration::try_from(wait).ok().filter(|wait| !wait.is_zero())
}

enum Due {
    Now(String),
    At(Timestamp),
}

fn leaf_due(
    certificate: &Certificate,
    facts: &Facts,
    current: &Authority,
    trusted: &[&Authority],
    rotation: &Rotation,
    namespace: &str,
    now: Timestamp,
) -> Due {
    let because = |text: &str| Due::Now(text.to_owned());
    let Some(leaf) = facts.leaves.get(certificate.secret) else { return because("it is missing or cannot be read") };
    let mut names = certificate.dns_names(namespace);
    names.sort();
    let mut found = leaf.dns_names.clone();
    found.sort();
    if leaf.common_name != certificate.common_name(namespace) || found != names {
        return because("its names changed");
    }
    let Some(signer) = trusted.iter().find(|authority| authority.key_id == leaf.authority) else {
        return because("it is signed by a CA that is not trusted");
    };
    let changed = leaf.duration.as_deref() != Some(text(rotation.duration).as_str());
    let spread = spread_at(current, trusted, rotation).filter(|_| signer.key_id != current.key_id);
    if let Some(spread) = spread
        && spread + rotation.propagation() < leaf.not_after
    {
        // Even if it is due: peers that do not trust the new CA yet would refuse its certificates, and this one is valid
        // until then.
        return if now >= spread { because("there is a new CA") } else { Due::At(spread) };
    }
    if changed {
        return because("its duration was changed");
    }
    let mut at = leaf.not_after - rotation.renew_before;
    if signer.not_after < leaf.not_after {
        at = at.min(signer.not_after - rotation.overlap / 2);
    }
    at = spread.map_or(at, |spread| at.min(spread));
    if now >= at { because("it expires soon, or its CA does") } else { Due::At(at) }
}

#[cfg(test)]
mod tests {
    use api::v1::{KubeVirtCertificateRotateStrategy, KubeVirtSelfSignConfiguration};

    use super::*;

    const NAMESPACE: &str = "kubevirt";
    const HOUR: Duration = Duration::from_secs(3600);

    fn rotation() -> Rotation {
        Rotation::of(&KubeVirtSpec::default()).unwrap()
    }

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + hours * 3600).unwrap()
    }

    fn authority(name: &str, created: i64) -> Authority {
        Authority {
            pem: format!("{name}\n"),
            key_id: name.to_owned(),
            created: at(created),
            not_after: at(created + 168),
            duration: Some("168h0m0s".to_owned()),
        }
    }

    fn leaves(signer: &str, made: i64) -> BTreeMap<String, Leaf> {
        let leaf = |certificate: &Certificate| Leaf {
            common_name: certificate.common_name(NAMESPACE),
            dns_names: certificate.dns_names(NAMESPACE),
            authority: signer.to_owned(),
            not_after: at(made + 24),
            duration: Some("24h0m0s".to_owned()),
        };
        CERTIFICATES.iter().map(|certificate| (certificate.secret.to_owned(), leaf(certificate))).collect()
    }

    fn facts(current: Authority, older: &[Authority], leaves: BTreeMap<String, Leaf>) -> Facts {
        let bundle = [current.clone()].into_iter().chain(older.iter().cloned()).collect();
        Facts { authority: Some(current), bundle, leaves }
    }

    fn made(plan: &Plan) -> Vec<&str> {
        let name = |renewal: &Renewal| match renewal {
            Renewal::Authority { .. } => "ca",
            Renewal::Leaf { certificate, .. } => certificate.secret,
        };
        plan.renewals.iter().map(name).collect()
    }

    #[test]
    fn the_ca_comes_first_then_everything_it_signs() {
        let empty = plan(&Facts::default(), &rotation(), NAMESPACE, at(0));
        assert_eq!((made(&empty), &empty.bundle), (vec!["ca"], &None));
        let first = plan(&facts(authority("a", 0), &[], BTreeMap::new()), &rotation(), NAMESPACE, at(0));
        assert_eq!(made(&first).len(), CERTIFICATES.len());
        assert_eq!(first.bundle.as_deref(), Some("a\n"));
        let quiet = plan(&facts(authority("a", 0), &[], leaves("a", 0)), &rotation(), NAMESPACE, at(1));
        assert_eq!(made(&quiet), Vec::<&str>::new());
        // A day, less a fifth of it.
        assert_eq!(quiet.next, Some(at(24) - Duration::from_secs(24 * 3600 / 5)));
    }

    #[test]
    fn certificates_are_renewed_in_time_and_the_ca_with_overlap() {
        let one = authority("a", 0);
        let table: [(&str, Facts, Timestamp, Vec<&str>, &str); 6] = [
            ("fresh", facts(one.clone(), &[], leaves("a", 0)), at(19), vec![], "a\n"),
            (
                "leaves are due",
                facts(one.clone(), &[], leaves("a", 0)),
                at(20),
                CERTIFICATES.iter().map(|certificate| certificate.secret).collect(),
                "a\n",
            ),
            ("the CA is due", facts(one.clone(), &[], leaves("a", 120)), at(135), vec!["ca"], ""),
            (
                "a new CA is spread first",
                facts(authority("b", 135), std::slice::from_ref(&one), leaves("a", 120)),
                at(135),
                vec![],
                "b\na\n",
            ),
            (
                "then it signs",
                facts(authority("b", 135), std::slice::from_ref(&one), leaves("a", 120)),
                at(136),
                CERTIFICATES.iter().map(|certificate| certificate.secret).collect(),
                "b\na\n",
            ),
            ("the old CA goes", facts(authority("b", 135), &[one], leaves("b", 160)), at(169), vec![], "b\n"),
        ];
        for (case, facts, now, expected, bundle) in table {
            let plan = plan(&facts, &rotation(), NAMESPACE, now);
            assert_eq!(made(&plan), expected, "{case}");
            assert_eq!(plan.bundle.unwrap_or_default(), bundle, "{case}");
        }
    }

    #[test]
    fn what_does_not_fit_is_made_anew() {
        type Break = fn(&mut Leaf);
        let table: [(&str, Break); 4] = [
            ("its duration", |leaf| leaf.duration = Some("1h0m0s".to_owned())),
            ("its name", |leaf| leaf.common_name = "other".to_owned()),
            ("its host names", |leaf| leaf.dns_names.push("more".to_owned())),
            ("a stranger's", |leaf| leaf.authority = "stranger".to_owned()),
        ];
        for (case, change) in table {
            let mut all = leaves("a", 0);
            all.values_mut().take(1).for_each(change);
            let plan = plan(&facts(authority("a", 0), &[], all), &rotation(), NAMESPACE, at(1));
            assert_eq!(made(&plan).len(), 1, "{case}");
        }
    }

    #[test]
    fn a_ca_signs_nothing_before_everybody_knows_it() {
        let (old, new) = (authority("a", 0), authority("b", 135));
        let minutes = |count: u64| at(135) + Duration::from_secs(60 * count);
        // Made a day less a fifth before the new CA: due at the same time.
        let due = || facts(new.clone(), std::slice::from_ref(&old), leaves("a", 115));
        let mut changed = due();
        changed.leaves.values_mut().for_each(|leaf| leaf.duration = Some("1h0m0s".to_owned()));
        for (case, facts) in [("due", due()), ("another duration", changed)] {
            let early = plan(&facts, &rotation(), NAMESPACE, minutes(2));
            assert_eq!((made(&early), early.next), (vec![], Some(minutes(3))), "{case}");
            let late = plan(&facts, &rotation(), NAMESPACE, minutes(3));
            assert_eq!(made(&late).len(), CERTIFICATES.len(), "{case}");
        }
        // One that expires meanwhile does not wait.
        let expires = facts(new.clone(), std::slice::from_ref(&old), leaves("a", 111));
        assert_eq!(made(&plan(&expires, &rotation(), NAMESPACE, minutes(0))).len(), CERTIFICATES.len());
        let wait = |facts: &Facts, now| signs_in(facts, &rotation(), now);
        assert_eq!(wait(&due(), minutes(1)), Some(Duration::from_secs(120)));
        assert_eq!(wait(&due(), minutes(3)), None);
        assert_eq!(wait(&facts(new, &[], BTreeMap::new()), minutes(0)), None, "the first CA of an installation");
    }

    #[test]
    fn a_change_of_the_ca_s_duration_makes_a_new_one() {
        let other = Rotation { ca_duration: 100 * HOUR, ..rotation() };
        let plan = plan(&facts(authority("a", 0), &[], leaves("a", 0)), &other, NAMESPACE, at(1));
        assert_eq!(made(&plan), ["ca"]);
    }

    #[test]
    fn durations_come_from_the_first_field_that_is_set() {
        let config = |duration: &str, renew: Option<&str>| {
            Some(CertConfig { duration: Some(duration.to_owned()), renew_before: renew.map(str::to_owned) })
        };
        let of = |self_signed: KubeVirtSelfSignConfiguration| {
            let strategy = KubeVirtCertificateRotateStrategy { self_signed: Some(self_signed) };
            Rotation::of(&KubeVirtSpec { certificate_rotate_strategy: Some(strategy), ..KubeVirtSpec::default() })
        };
        let asked = KubeVirtSelfSignConfiguration {
            ca: config("48h", Some("12h")),
            server: config("10h", None),
            ..Default::default()
        };
        let found = of(asked).unwrap();
        assert_eq!((found.ca_duration, found.overlap), (48 * HOUR, 12 * HOUR));
        assert_eq!((found.duration, found.renew_before), (10 * HOUR, 2 * HOUR));
        let old = KubeVirtSelfSignConfiguration {
            ca_rotate_interval: Some("40h".to_owned()),
            ca_overlap_interval: Some("4h".to_owned()),
            cert_rotate_interval: Some("5h".to_owned()),
            ..Default::default()
        };
        let found = of(old).unwrap();
        assert_eq!((found.ca_duration, found.overlap, found.duration), (40 * HOUR, 4 * HOUR, 5 * HOUR));
        // Due at once would be due for ever.
        let at_once = KubeVirtSelfSignConfiguration { server: config("10h", Some("10h")), ..Default::default() };
        assert_eq!(of(at_once).unwrap().renew_before, 9 * HOUR);
        let wrong = of(KubeVirtSelfSignConfiguration { ca: config("soon", None), ..Default::default() }).unwrap_err();
        assert!(wrong.contains("selfSigned.ca.duration is \"soon\""), "{wrong}");
    }
}
