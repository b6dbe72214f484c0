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

#[cfg(test)]
mod tests {
    use super::format_timestamp;

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
