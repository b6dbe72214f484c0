//! Formats and parses times in UTC (RFC 3339).

/// Formats milliseconds since 1970 as `2025-11-22T08:26:40Z`.
pub(crate) fn format_timestamp(milliseconds: u64) -> String {
    sabir_wire::format_timestamp(milliseconds / 1000)
}

/// Parses `2025-11-22T08:26:40.123Z` into milliseconds since 1970; `None` for any other form.
pub(crate) fn parse_timestamp(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let year = date.next()??;
    let month = date.next()??;
    let day = date.next()??;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.splitn(3, ':').map(|part| part.parse::<u64>().ok());
    let hour = time.next()??;
    let minute = time.next()??;
    let second = time.next()??;
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // 60 is a leap second.
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days of the Gregorian calendar, with years that begin in March, so that a leap day is the
    // last of its year. 719468 is the number of days from 0000-03-01 to 1970-01-01.
    let (year, month) = if month <= 2 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let seconds = days.checked_sub(719_468)? * 86_400 + hour * 3600 + minute * 60 + second;
    // Exactly three digits of the fraction, padded with zeros.
    let digits: String = fraction.chars().chain("00".chars()).take(3).collect();
    Some(seconds * 1000 + digits.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::{format_timestamp, parse_timestamp};

    #[test]
    fn timestamps_round_trip() {
        for (text, milliseconds) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2000-02-29T23:59:59Z", 951_868_799_000),
            ("2025-11-22T08:26:40Z", 1_763_800_000_000),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
            ("2024-12-31T12:00:00Z", 1_735_646_400_000),
        ] {
            assert_eq!(format_timestamp(milliseconds), text);
            assert_eq!(parse_timestamp(text), Some(milliseconds), "{text}");
        }
        for days in 0..80_000 {
            let milliseconds = days * 86_400_000 + 3_723_000;
            assert_eq!(
                parse_timestamp(&format_timestamp(milliseconds)),
                Some(milliseconds)
            );
        }
        assert_eq!(
            parse_timestamp("2025-11-22T08:26:40.1Z"),
            Some(1_763_800_000_100)
        );
        assert_eq!(
            parse_timestamp("2025-11-22T08:26:40.123456Z"),
            Some(1_763_800_000_123)
        );
        for text in [
            "",
            "2025-11-22",
            "2025-11-22T08:26:40",
            "2025-13-01T00:00:00Z",
            "2025-01-01T99:00:00Z",
            "x-y-zTa:b:cZ",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
    }
}
