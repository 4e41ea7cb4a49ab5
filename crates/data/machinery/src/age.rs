//! Ages, formatted like kubectl does.

use k8s_openapi::jiff::Timestamp;

/// `12s`, `5m30s`, `3h`, `2d4h`, `90d`: two units while the first one is small, one beyond. A time in the future, as
/// from a clock that is ahead, is `<invalid>`; a clock skew of a second is ignored.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let pair = |big: i64, unit: char, small: i64, small_unit: char| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        _ if hours < 3 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => pair(days, 'd', hours % 24, 'h'),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => pair(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        let cases = [
            (-5, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (150, "2m30s"),
            (599, "9m59s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (10_860, "3h1m"),
            (11_000, "3h3m"),
            (8 * 3600, "8h"),
            (90_000, "25h"),
            (47 * 3600, "47h"),
            (48 * 3600, "2d"),
            (50 * 3600, "2d2h"),
            (8 * 86_400, "8d"),
            (10 * 86_400, "10d"),
            (729 * 86_400, "729d"),
            (730 * 86_400, "2y"),
            (800 * 86_400, "2y70d"),
            (9 * 365 * 86_400 + 86_400, "9y"),
        ];
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        for (seconds, want) in cases {
            let then = Timestamp::from_second(1_800_000_000 - seconds).unwrap();
            assert_eq!(since(then, now), want, "{seconds}");
        }
    }
}
