//! Dates in the format of Python's `strftime`, in English and UTC.
//!
//! Guarantees: any number of seconds and any format give a text; unknown directives are copied unchanged.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats the time `unix_seconds` in UTC by a format of `strftime`.
pub(crate) fn strftime(format: &str, unix_seconds: i64) -> String {
    let days = unix_seconds.div_euclid(86_400);
    let second = unix_seconds.rem_euclid(86_400);
    let (year, month, day) = civil(days);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    let month_name = MONTHS.get((month - 1) as usize).copied().unwrap_or_default();
    let day_name = DAYS.get(days.rem_euclid(7) as usize).copied().unwrap_or_default();
    let abbreviate = |name: &'static str| name.get(..3).unwrap_or_default();
    let mut out = String::new();
    let mut letters = format.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let mut directive = letters.next();
        // The flag `-` removes the padding of numbers.
        let flag = if directive == Some('-') { "-" } else { "" };
        if !flag.is_empty() {
            directive = letters.next();
        }
        let number = |value: i64, padded: String| if flag.is_empty() { padded } else { value.to_string() };
        let padded = |value: i64| number(value, format!("{value:02}"));
        match directive {
            Some('Y') => out.push_str(&format!("{year:04}")),
            Some('y') => out.push_str(&padded(year.rem_euclid(100))),
            Some('m') => out.push_str(&padded(month)),
            Some('d') => out.push_str(&padded(day)),
            Some('e') => out.push_str(&number(day, format!("{day:2}"))),
            Some('H') => out.push_str(&padded(hour)),
            Some('I') => out.push_str(&padded((hour + 11) % 12 + 1)),
            Some('M') => out.push_str(&padded(minute)),
            Some('S') => out.push_str(&padded(second % 60)),
            Some('p') => out.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('B') => out.push_str(month_name),
            Some('b' | 'h') => out.push_str(abbreviate(month_name)),
            Some('A') => out.push_str(day_name),
            Some('a') => out.push_str(abbreviate(day_name)),
            Some('j') => {
                let day_of_year = days - first_of_year(year) + 1;
                out.push_str(&number(day_of_year, format!("{day_of_year:03}")));
            }
            Some('F') => out.push_str(&format!("{year:04}-{month:02}-{day:02}")),
            Some('T') => out.push_str(&format!("{hour:02}:{minute:02}:{:02}", second % 60)),
            Some('Z') => out.push_str("UTC"),
            Some('z') => out.push_str("+0000"),
            Some('%') => out.push('%'),
            unknown => {
                out.push('%');
                out.push_str(flag);
                out.extend(unknown);
            }
        }
    }
    out
}

/// Converts days since 1970 into year, month and day of the Gregorian calendar: eras of 400 years that begin in March.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// Returns the days from 1970 to the first of January of a year.
fn first_of_year(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_gregorian_calendar() {
        let format = "%Y-%m-%d %H:%M:%S %A %d %b %-d %B %y %j %I %p %%";
        assert_eq!(strftime(format, 0), "1970-01-01 00:00:00 Thursday 01 Jan 1 January 70 001 12 AM %");
        assert_eq!(
            strftime(format, 1_709_210_096),
            "2024-02-29 12:34:56 Thursday 29 Feb 29 February 24 060 12 PM %"
        );
        assert_eq!(strftime("%F %T", 4_102_444_799), "2099-12-31 23:59:59");
        assert_eq!(strftime("%F %j", -1), "1969-12-31 365");
    }

    #[test]
    fn no_time_and_no_format_is_too_odd() {
        for seconds in [i64::MIN, i64::MAX, -62_135_596_800] {
            assert!(!strftime("%Y %j", seconds).is_empty());
        }
    }

    #[test]
    fn unknown_directives_are_copied_unchanged() {
        for unknown in ["%", "%-", "%q", "%-q", "%-é", "%--", "%_d", "a%", "a%-", "%q%-q %", "%-\n", "% d"] {
            assert_eq!(strftime(unknown, 0), unknown);
        }
        assert_eq!(strftime("%q%d%-q%-d", 0), "%q01%-q1");
    }

    #[test]
    fn a_hyphen_removes_the_padding_of_numbers_only() {
        // Results of Python 3 on Linux.
        let format = "%-d %-m %-y %-H %-I %-M %-S %-j %-e %-Y %-F %-T %-B %-b %-A %-a %-p %-%";
        let expected = "2 1 70 3 3 4 5 2 2 1970 1970-01-02 03:04:05 January Jan Friday Fri AM %";
        assert_eq!(strftime(format, 86_400 + 3 * 3_600 + 4 * 60 + 5), expected);
    }
}
