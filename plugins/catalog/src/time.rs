//! Unix seconds as RFC 3339.

/// `2025-11-20T14:46:40Z`. Beyond the year 9999, which RFC 3339 does not know,
/// its last second.
///
/// Days to date: the algorithm of Howard Hinnant's "chrono-compatible low-level
/// date algorithms" (civil_from_days), for days since 1970 that are not negative.
pub(crate) fn rfc3339(unix: u64) -> String {
    let unix = unix.min(253_402_300_799);
    let (days, second) = (unix / 86_400, unix % 86_400);
    // Counted from 0000-03-01, so that a leap day ends its year.
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
