//! Formats timestamps in the one form that wires and logs share, without a calendar library.

/// Formats seconds since 1970 as an RFC 3339 timestamp in UTC.
///
/// The form is `2026-04-10T13:19:59Z`, without fractions. Every `u64` is accepted; years above 9999
/// have more digits.
pub fn format_timestamp(seconds: u64) -> String {
    let days = seconds / 86_400;
    let second = seconds % 86_400;
    // Days are counted in eras of 400 years (146,097 days) that begin in March, so that a leap day
    // is the last of its year. 719,468 days lie between 0000-03-01 and 1970-01-01. The algorithm is
    // "civil from days" by Howard Hinnant.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day = shifted % 146_097;
    // The corrections remove the leap days of the era so far, so that every year has 365 days.
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March on have 153 days in each group of five.
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    // January and February belong to the next calendar year.
    let (year, month) = if month < 10 {
        (year, month + 3)
    } else {
        (year + 1, month - 9)
    };
    let hour = second / 3600;
    let minute = second / 60 % 60;
    let second = second % 60;
    format!(
        "{:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z",
        era * 400 + year
    )
}

/// Parses an RFC 3339 timestamp into seconds since 1970, without its fraction; `None` if it is
/// another form or before 1970.
pub(crate) fn parse_timestamp(text: &str) -> Option<u64> {
    let (date, time) = text.trim().split_once(['T', 't', ' '])?;
    let number = |text: &str| text.parse::<u64>().ok();
    let [year, month, day] = split_fields(date, '-')?.map(number);
    let (year, month, day) = (year?, month?, day?);
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone);
    let [hour, minute, second] = split_fields(clock, ':')?;
    let second = number(second.split('.').next()?)?;
    let hour = number(hour)?;
    let minute = number(minute)?;
    // A leap second is the sixtieth.
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = hour * 3600 + minute * 60 + second;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // "Days from civil" by Howard Hinnant: years begin in March.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let local = days.checked_sub(719_468)? * 86_400 + seconds;
    match zone.split_at_checked(1)? {
        ("+", shift) => local.checked_sub(zone_seconds(shift)?),
        ("-", shift) => local.checked_add(zone_seconds(shift)?),
        _ => Some(local),
    }
}

/// Returns the seconds of a shift such as `02:00`.
fn zone_seconds(shift: &str) -> Option<u64> {
    let (hours, minutes) = shift.split_once(':')?;
    Some(hours.parse::<u64>().ok()?.min(24) * 3600 + minutes.parse::<u64>().ok()?.min(60) * 60)
}

/// Splits a text into exactly three fields.
fn split_fields(text: &str, at: char) -> Option<[&str; 3]> {
    let fields: Vec<_> = text.split(at).collect();
    fields.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::{format_timestamp, parse_timestamp};

    #[test]
    fn timestamps_are_parsed() {
        for seconds in (0..4_200_000_000).step_by(12_345_677) {
            assert_eq!(parse_timestamp(&format_timestamp(seconds)), Some(seconds));
        }
        let rows = [
            ("2026-04-10T15:19:59.25+02:00", Some(1_775_827_199)),
            ("2026-04-10T13:19:59-00:00", Some(1_775_827_199)),
            ("1969-12-31T23:59:59Z", None),
            ("2026-13-10T13:19:59Z", None),
            ("2026-04-10", None),
            ("2026-04-10T18446744073709551615:00:00Z", None),
            ("2026-04-10T00:99:00Z", None),
            ("T", None),
            ("", None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_timestamp(text), expected, "{text}");
        }
    }

    #[test]
    fn timestamps_are_rfc_3339() {
        let rows = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_775_827_199, "2026-04-10T13:19:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, expected) in rows {
            assert_eq!(format_timestamp(seconds), expected);
        }
        assert!(!format_timestamp(u64::MAX).is_empty());
    }
}
