//! Whether a device works.

use std::time::Duration;

/// A device node that did not work is tried again after this time: its module may have been loaded since.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// Whether containers can get a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Healthy,
    /// Why they cannot.
    Unhealthy(String),
}

/// A device node as the kernel identifies it. A new one at the same path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub file_system: u64,
    pub inode: u64,
    /// Major and minor number of the device.
    pub device: u64,
}

/// What is at the path of a device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Absent,
    /// Something else than a character device.
    Other,
    Device(Identity),
}

/// The last attempt to use a device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    pub identity: Identity,
    pub result: Result<(), String>,
    /// When, on a clock that only goes forward.
    pub at: Duration,
}

/// The answer of [`judge`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub health: Health,
    /// The device node is to be tried, and judged again with the result.
    pub try_it: Option<Identity>,
}

/// Judges the device node at `path`. It counts as healthy only after it was tried.
pub fn judge(path: &str, seen: Seen, tried: Option<&Tried>, now: Duration) -> Judgement {
    let unhealthy = |why: String, try_it| Judgement { health: Health::Unhealthy(why), try_it };
    let identity = match seen {
        Seen::Absent => return unhealthy(format!("{path} does not exist"), None),
        Seen::Other => return unhealthy(format!("{path} is not a character device"), None),
        Seen::Device(identity) => identity,
    };
    match tried.filter(|tried| tried.identity == identity) {
        None => unhealthy(format!("{path} has not been tried yet"), Some(identity)),
        Some(Tried { result: Ok(()), .. }) => Judgement { health: Health::Healthy, try_it: None },
        Some(Tried { result: Err(why), at, .. }) => {
            unhealthy(why.clone(), Some(identity).filter(|_| now.saturating_sub(*at) >= TRY_AGAIN))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Identity = Identity { file_system: 5, inode: 10, device: 232 };
    const SECOND: Identity = Identity { inode: 11, ..FIRST };

    fn tried(result: Result<(), &str>) -> Option<Tried> {
        Some(Tried { identity: FIRST, result: result.map_err(str::to_owned), at: Duration::from_secs(100) })
    }

    #[test]
    fn a_device_is_healthy_once_it_was_tried() {
        let why = Err("/dev/kvm cannot be opened");
        let cases = [
            (Seen::Absent, None, 100, Err("/dev/kvm does not exist"), None),
            (Seen::Absent, tried(Ok(())), 100, Err("/dev/kvm does not exist"), None),
            (Seen::Other, None, 100, Err("/dev/kvm is not a character device"), None),
            (Seen::Device(FIRST), None, 100, Err("/dev/kvm has not been tried yet"), Some(FIRST)),
            (Seen::Device(FIRST), tried(Ok(())), 9999, Ok(()), None),
            (Seen::Device(SECOND), tried(Ok(())), 101, Err("/dev/kvm has not been tried yet"), Some(SECOND)),
            (Seen::Device(SECOND), tried(why), 101, Err("/dev/kvm has not been tried yet"), Some(SECOND)),
            (Seen::Device(FIRST), tried(why), 159, why, None),
            (Seen::Device(FIRST), tried(why), 160, why, Some(FIRST)),
            (Seen::Device(FIRST), tried(why), 0, why, None),
        ];
        for (seen, tried, now, health, try_it) in cases {
            let expected = match health {
                Ok(()) => Health::Healthy,
                Err(why) => Health::Unhealthy(why.to_owned()),
            };
            let found = judge("/dev/kvm", seen, tried.as_ref(), Duration::from_secs(now));
            assert_eq!(found, Judgement { health: expected, try_it }, "{seen:?} {tried:?} at {now}");
        }
    }
}
