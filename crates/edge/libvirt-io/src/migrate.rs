//! Live migration, step by step.
//!
//! libvirt's protocol has five steps, two of them at the target. The caller drives the migration by calling them in
//! order:
//!
//! ```text
//!   source                          target
//!   Begin    ── description ──────► Prepare    a paused QEMU waits for memory
//!   Perform  ══ memory, disks ════► …          returns with the source's guest standing still
//!            ◄───────────────────── Finish     the target's guest runs, or is gone
//!   Confirm                                    the source's QEMU ends, or its guest goes on
//! ```
//!
//! libvirt can also drive the migration itself (`VIR_MIGRATE_PEER2PEER`). It then treats a lost response to Finish as a
//! failure and resumes the source, although the target may be running: two guests. A caller of the single steps can
//! query the target again before it confirms anything, so only these are implemented.

use crate::connection::Connection;
use crate::error::{Error, ErrorCode};
use crate::proc;
use crate::types::Domain;
use crate::xdr::{DecodeError, Decoder, Encoder};

/// Opaque data passed from one step to the next.
pub type Cookie = Vec<u8>;

/// A value of `virTypedParameter`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Int(i32),
    UInt(u32),
    LLong(i64),
    ULLong(u64),
    Double(f64),
    Boolean(bool),
    String(String),
}

impl Value {
    /// The number, if it is unsigned.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::UInt(value) => Some(u64::from(*value)),
            Value::ULLong(value) => Some(*value),
            Value::Int(value) => u64::try_from(*value).ok(),
            Value::LLong(value) => u64::try_from(*value).ok(),
            Value::Double(_) | Value::Boolean(_) | Value::String(_) => None,
        }
    }
}

/// Named values; a name may occur more than once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params(Vec<(String, Value)>);

impl Params {
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.0.push((name.to_owned(), value));
        self
    }

    /// Adds a value, replacing those of the same name.
    pub fn replaced(mut self, name: &str, value: Value) -> Self {
        self.0.retain(|(known, _)| known != name);
        self.with(name, value)
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    fn encode(&self, mut to: Encoder) -> Encoder {
        to = to.u32(u32::try_from(self.0.len()).unwrap_or(u32::MAX));
        for (name, value) in &self.0 {
            to = to.string(name);
            to = match value {
                Value::Int(value) => to.u32(1).i32(*value),
                Value::UInt(value) => to.u32(2).u32(*value),
                Value::LLong(value) => to.u32(3).u64(value.cast_unsigned()),
                Value::ULLong(value) => to.u32(4).u64(*value),
                Value::Double(value) => to.u32(5).u64(value.to_bits()),
                Value::Boolean(value) => to.u32(6).u32(u32::from(*value)),
                Value::String(value) => to.u32(7).string(value),
            };
        }
        to
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Params, DecodeError> {
        let pair = |from: &mut Decoder<'_>| {
            let name = from.string()?;
            let value = match from.u32()? {
                1 => Value::Int(from.i32()?),
                2 => Value::UInt(from.u32()?),
                3 => Value::LLong(from.u64()?.cast_signed()),
                4 => Value::ULLong(from.u64()?),
                5 => Value::Double(f64::from_bits(from.u64()?)),
                6 => Value::Boolean(from.u32()? != 0),
                7 => Value::String(from.string()?),
                value => return Err(DecodeError::BadValue { what: "a parameter's type", value }),
            };
            Ok((name, value))
        };
        from.list(pair).map(Params)
    }
}

/// The source's response to Begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Begun {
    pub cookie: Cookie,
    /// The domain to create at the target.
    pub xml: String,
}

/// The target's response to Prepare.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    pub cookie: Cookie,
    /// Where the target listens, if different from what was requested.
    pub uri: Option<String>,
}

/// `virDomainJobType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobKind {
    None,
    Bounded,
    /// In progress without a known end: a migration.
    Unbounded,
    Completed,
    Failed,
    Cancelled,
    Other(i32),
}

impl From<i32> for JobKind {
    fn from(code: i32) -> Self {
        match code {
            0 => JobKind::None,
            1 => JobKind::Bounded,
            2 => JobKind::Unbounded,
            3 => JobKind::Completed,
            4 => JobKind::Failed,
            5 => JobKind::Cancelled,
            other => JobKind::Other(other),
        }
    }
}

/// Progress of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobStats {
    pub kind: JobKind,
    pub params: Params,
}

impl JobStats {
    /// A statistic by libvirt's name; zero if libvirt does not report it.
    pub fn number(&self, name: &str) -> u64 {
        self.params.get(name).and_then(Value::as_u64).unwrap_or_default()
    }
}

impl Connection {
    /// At the source: returns the domain to create at the target.
    pub async fn migrate_begin(&self, domain: &Domain, params: &Params, flags: u32) -> Result<Begun, Error> {
        let arguments = params.encode(Encoder::default().domain(domain)).u32(flags);
        self.call(proc::DOMAIN_MIGRATE_BEGIN3_PARAMS, arguments, |reply| {
            Ok(Begun { cookie: reply.opaque()?, xml: reply.string()? })
        })
        .await
    }

    /// At the target: starts a QEMU that waits for memory. It exits with this connection unless Finish is called
    /// before.
    pub async fn migrate_prepare(&self, params: &Params, cookie: &[u8], flags: u32) -> Result<Prepared, Error> {
        let arguments = params.encode(Encoder::default()).opaque(cookie).u32(flags);
        self.call(proc::DOMAIN_MIGRATE_PREPARE3_PARAMS, arguments, |reply| {
            Ok(Prepared { cookie: reply.opaque()?, uri: reply.optional(Decoder::string)? })
        })
        .await
    }

    /// At the source: transfers memory and disks. Returns when that is done; with post-copy, when the target must take
    /// over.
    pub async fn migrate_perform(
        &self,
        domain: &Domain,
        params: &Params,
        cookie: &[u8],
        flags: u32,
    ) -> Result<Cookie, Error> {
        let no_daemon_to_call = None;
        let arguments = Encoder::default().domain(domain).optional_string(no_daemon_to_call);
        let arguments = params.encode(arguments).opaque(cookie).u32(flags);
        self.call(proc::DOMAIN_MIGRATE_PERFORM3_PARAMS, arguments, |reply| reply.opaque()).await
    }

    /// At the target: runs the guest or, after a failure at the source, kills it. An error means that it does not run,
    /// unless the connection broke: then nothing is known.
    pub async fn migrate_finish(
        &self,
        params: &Params,
        cookie: &[u8],
        flags: u32,
        cancelled: bool,
    ) -> Result<(Domain, Cookie), Error> {
        let arguments = params.encode(Encoder::default()).opaque(cookie).u32(flags).i32(i32::from(cancelled));
        self.call(proc::DOMAIN_MIGRATE_FINISH3_PARAMS, arguments, |reply| Ok((reply.domain()?, reply.opaque()?))).await
    }

    /// At the source: kills the guest that has moved or, if `cancelled`, resumes it.
    pub async fn migrate_confirm(
        &self,
        domain: &Domain,
        params: &Params,
        cookie: &[u8],
        flags: u32,
        cancelled: bool,
    ) -> Result<(), Error> {
        let arguments = params.encode(Encoder::default().domain(domain)).opaque(cookie).u32(flags);
        self.call(proc::DOMAIN_MIGRATE_CONFIRM3_PARAMS, arguments.i32(i32::from(cancelled)), |_| Ok(())).await
    }

    /// The current job or, with `JOB_STATS_COMPLETED`, the last one. `None` if there is none.
    pub async fn job_stats(&self, domain: &Domain, flags: u32) -> Result<Option<JobStats>, Error> {
        let arguments = Encoder::default().domain(domain).u32(flags);
        let stats = self.call(proc::DOMAIN_GET_JOB_STATS, arguments, |reply| {
            Ok(JobStats { kind: JobKind::from(reply.i32()?), params: Params::decode(reply)? })
        });
        match stats.await {
            Ok(stats) => Ok((stats.kind != JobKind::None).then_some(stats)),
            // How libvirt reports that an inactive domain has no job.
            Err(error) if error.code() == Some(ErrorCode::OperationInvalid) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// At the target, for a running domain: whether Finish is still in progress. libvirt has statistics only at the
    /// source, and says so as long as there is a job at the target.
    pub async fn is_receiving(&self, domain: &Domain) -> Result<bool, Error> {
        let arguments = Encoder::default().domain(domain).u32(0);
        let asked = self.call(proc::DOMAIN_GET_JOB_STATS, arguments, |reply| {
            let _kind = reply.i32()?;
            Params::decode(reply)
        });
        match asked.await {
            Ok(_) => Ok(false),
            Err(error) if error.code() == Some(ErrorCode::OperationInvalid) => Ok(true),
            Err(error) => Err(error),
        }
    }

    pub async fn abort_job(&self, domain: &Domain) -> Result<(), Error> {
        self.call(proc::DOMAIN_ABORT_JOB, Encoder::default().domain(domain), |_| Ok(())).await
    }

    /// The maximum downtime at which QEMU switches over by itself.
    pub async fn migrate_set_max_downtime(&self, domain: &Domain, milliseconds: u64) -> Result<(), Error> {
        let arguments = Encoder::default().domain(domain).u64(milliseconds).u32(0);
        self.call(proc::DOMAIN_MIGRATE_SET_MAX_DOWNTIME, arguments, |_| Ok(())).await
    }

    /// The bandwidth limit in MiB/s, also for a migration in progress.
    pub async fn migrate_set_max_speed(&self, domain: &Domain, mib_per_second: u64) -> Result<(), Error> {
        let arguments = Encoder::default().domain(domain).u64(mib_per_second).u32(0);
        self.call(proc::DOMAIN_MIGRATE_SET_MAX_SPEED, arguments, |_| Ok(())).await
    }

    /// Switches to post-copy: the target runs the guest now and fetches missing memory.
    pub async fn migrate_start_post_copy(&self, domain: &Domain) -> Result<(), Error> {
        self.call(proc::DOMAIN_MIGRATE_START_POST_COPY, Encoder::default().domain(domain).u32(0), |_| Ok(())).await
    }

    /// Sets the guest's clock through its agent.
    pub async fn set_time(&self, domain: &Domain, seconds: i64, nanoseconds: u32, flags: u32) -> Result<(), Error> {
        let arguments = Encoder::default().domain(domain).u64(seconds.cast_unsigned()).u32(nanoseconds).u32(flags);
        self.call(proc::DOMAIN_SET_TIME, arguments, |_| Ok(())).await
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<i32>().prop_map(Value::Int),
            any::<u32>().prop_map(Value::UInt),
            any::<i64>().prop_map(Value::LLong),
            any::<u64>().prop_map(Value::ULLong),
            (-1e9..1e9f64).prop_map(Value::Double),
            any::<bool>().prop_map(Value::Boolean),
            "\\PC{0,20}".prop_map(Value::String),
        ]
    }

    proptest! {
        #[test]
        fn parameters_survive_the_round_trip(pairs in prop::collection::vec(("[a-z_]{1,12}", value()), 0..8)) {
            let params = Params(pairs);
            let bytes = params.encode(Encoder::default()).finish();
            let mut reader = Decoder::new(&bytes);
            prop_assert_eq!(Params::decode(&mut reader).unwrap(), params);
            prop_assert!(reader.finish().is_ok());
        }

        #[test]
        fn any_bytes_are_parameters_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Params::decode(&mut Decoder::new(&bytes));
        }
    }

    #[test]
    fn a_replaced_parameter_is_there_once() {
        let both = Params::default()
            .with("migrate_uri", Value::String("a".into()))
            .with("migrate_disks", Value::String("vda".into()))
            .with("migrate_disks", Value::String("vdb".into()));
        let params = both.replaced("migrate_uri", Value::String("b".into()));
        assert_eq!(params.get("migrate_uri"), Some(&Value::String("b".into())));
        assert_eq!(params.0.iter().filter(|(name, _)| name == "migrate_uri").count(), 1);
        assert_eq!(params.0.iter().filter(|(name, _)| name == "migrate_disks").count(), 2);
    }
}
