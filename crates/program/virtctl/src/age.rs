//! How long ago something was, as short as kubectl says it.

use jiff::Timestamp;

/// `12s`, `5m30s`, `3h`, `2d4h`, `90d`: two units while the first one is small.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let pair = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        _ => pair(days / 365, 'y', days % 365, 'd'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let cases = [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (180_000, "2d2h"),
            (10 * 86_400, "10d"),
            (800 * 86_400, "2y70d"),
        ];
        for (seconds, want) in cases {
            let now = Timestamp::from_second(1_800_000_000).unwrap();
            let then = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
            assert_eq!(since(then, now), want, "{seconds}");
        }
    }
}
