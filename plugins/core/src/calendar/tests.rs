//! Comparison of the calendar with a plain count of days, and tests of invalid dates.

#![allow(clippy::unwrap_used)]
use super::*;

/// Lengths of the twelve months in days, calculated without the tested code.
fn lengths(year: u64) -> [u64; 12] {
    let leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

#[test]
fn every_day_of_all_years_is_that_of_a_plain_count() {
    let mut start = 0;
    for year in 1970..=9999 {
        for (month, length) in (1..).zip(lengths(year)) {
            let first = UtcMonth::from_unix(start).first_day();
            assert_eq!(first.start(), start, "{year}-{month}");
            for day in 1..=length {
                let found = UtcDay::from_unix(start + start % DAY_SECONDS);
                assert_eq!(found.to_string(), format!("{year:04}-{month:02}-{day:02}"));
                start += DAY_SECONDS;
            }
            if start <= MAX_UNIX_SECONDS {
                assert_eq!(
                    UtcMonth::from_unix(start - 1).next().unwrap().first_day().start(),
                    start,
                    "{year}-{month}"
                );
            }
        }
    }
    assert_eq!(start, MAX_UNIX_SECONDS + 1);
}

#[test]
fn printed_values_are_parsed_to_the_same_for_two_hundred_years() {
    for number in 0..73_000 {
        let day = UtcDay::from_unix(number * DAY_SECONDS);
        assert_eq!(UtcDay::parse(&day.to_string()), Some(day));
        let month = UtcMonth::from_unix(day.start());
        assert_eq!(UtcMonth::parse(&month.to_string()), Some(month));
        let unix = day.start() + number % DAY_SECONDS;
        assert_eq!(parse_rfc3339(&format_rfc3339(unix)), Some(unix));
    }
}

#[test]
fn known_dates() {
    assert_eq!(UtcDay::from_unix(0).to_string(), "1970-01-01");
    assert_eq!(UtcDay::from_unix(1_709_164_800).to_string(), "2024-02-29");
    assert_eq!(UtcDay::from_unix(1_795_305_600).next().unwrap().to_string(), "2026-11-23");
    assert_eq!(UtcMonth::from_unix(1_795_305_600).to_string(), "2026-11");
    assert_eq!(format_rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
    assert_eq!(parse_rfc3339("2024-02-29T14:00Z"), Some(1_709_215_200));
    assert_eq!(parse_rfc3339("9999-12-31T23:59:59Z"), Some(MAX_UNIX_SECONDS));
}

#[test]
fn a_week_begins_with_its_monday() {
    for (day, monday) in [
        ("2026-11-22", "2026-11-16"),
        ("2026-11-23", "2026-11-23"),
        ("2026-11-29", "2026-11-23"),
        ("2027-01-01", "2026-12-28"),
        ("1970-01-04", "1970-01-01"),
        ("1970-01-05", "1970-01-05"),
        ("9999-12-31", "9999-12-27"),
    ] {
        assert_eq!(UtcDay::parse(day).map(|day| day.monday().to_string()).as_deref(), Some(monday), "{day}");
    }
}

#[test]
fn a_leap_day_is_one_in_leap_years_only() {
    for leap in ["2000-02-29", "2028-02-29", "2400-02-29"] {
        assert_eq!(UtcDay::parse(leap).map(|day| day.to_string()).as_deref(), Some(leap));
    }
    for none in ["1900-02-29", "2100-02-29", "2026-02-29", "2000-02-30", "2028-02-30"] {
        assert_eq!(UtcDay::parse(none), None, "{none}");
    }
}

#[test]
fn a_month_has_its_days_and_none_more() {
    for year in [1970, 2000, 2026, 2028, 2100, 9999] {
        for (month, length) in (1..=12).zip(lengths(year)) {
            let day = |day: u64| UtcDay::parse(&format!("{year:04}-{month:02}-{day:02}"));
            assert!(day(1).is_some() && day(length).is_some(), "{year}-{month}");
            assert!(day(0).is_none() && day(length + 1).is_none(), "{year}-{month}");
        }
    }
}

#[test]
fn an_invalid_day_or_month_is_rejected() {
    for none in [
        "",
        "x",
        "-",
        "2026-11",
        "2026-13-01",
        "2026-00-01",
        "2026-1-01",
        "2026-11-1",
        "2026-11-31",
        "+026-01-01",
        "2026-+1-01",
        "2026-01-+1",
        " 2026-01-01",
        "2026-01-01-01",
        "10000-01-01",
        "1969-12-31",
        "0000-01-01",
        "-970-01-01",
        "２０２６-01-01",
    ] {
        assert_eq!(UtcDay::parse(none), None, "{none}");
    }
    for none in ["", "2026", "2026-00", "2026-13", "1969-12", "2026-011", "2026-1", "+026-01"] {
        assert_eq!(UtcMonth::parse(none), None, "{none}");
    }
}

#[test]
fn an_offset_is_subtracted_from_a_timestamp() {
    for (text, unix) in [
        ("1970-01-01T01:00+01:00", 0),
        ("1969-12-31T23:00-01:00", 0),
        ("2024-02-29T16:00:00+02:00", 1_709_215_200),
        ("2024-02-29T19:30+05:30", 1_709_215_200),
        ("2024-02-29T10:30-03:30", 1_709_215_200),
        ("2024-02-29T14:00-00:00", 1_709_215_200),
        ("2024-02-29T14:00Z", 1_709_215_200),
    ] {
        let expected = Some(unix).filter(|_| !text.starts_with("1969"));
        assert_eq!(parse_rfc3339(text), expected, "{text}: local days before 1970 are not supported");
    }
}

#[test]
fn an_invalid_timestamp_is_rejected() {
    assert_eq!(parse_rfc3339("1970-01-01T00:00Z"), Some(0));
    for none in [
        "2026-02-31T14:00Z",
        "2026-11-22T24:00Z",
        "2026-11-22T24:00:00Z",
        "2026-11-22T14:60Z",
        "2026-12-31T23:59:60Z",
        "2026-11-22T14Z",
        "2026-11-22T14:00",
        "2026-11-22 14:00Z",
        "2026-11-22T14:00:00.5Z",
        "2026-11-22T14:00:00:00Z",
        "2026-11-22T14:00+1:00",
        "2026-11-22T14:00+0100",
        "2026-11-22T14:00+24:00",
        "2026-11-22T14:00+01:60",
        "2026-11-22T14:00-é:00",
        "2026-11-22T14:00Z+01:00",
        "1970-01-01T00:59+01:00",
        "2026-11-22T+1:00Z",
        "2026-11-22T14:0Z",
        "2026-11-22T14:00:Z",
        "1969-12-31T23:59:59Z",
        "T:Z",
        "",
    ] {
        assert_eq!(parse_rfc3339(none), None, "{none}");
    }
}

#[test]
fn later_times_become_the_last_second_of_the_year_9999() {
    assert_eq!(format_rfc3339(MAX_UNIX_SECONDS), "9999-12-31T23:59:59Z");
    assert_eq!(format_rfc3339(u64::MAX), "9999-12-31T23:59:59Z");
    let (day, month) = (UtcDay::from_unix(u64::MAX), UtcMonth::from_unix(u64::MAX));
    assert_eq!((day.to_string(), month.to_string()), ("9999-12-31".to_owned(), "9999-12".to_owned()));
    assert_eq!((day.next(), month.next()), (None, None));
    assert_eq!((day.end(), month.end()), (MAX_UNIX_SECONDS + 1, MAX_UNIX_SECONDS + 1));
    assert_eq!((month.last_day(), month.iter_from().count()), (day, 1));
    assert_eq!(month.first_day().iter_to(day).count(), 31);
    assert_eq!(BudgetPeriod::Day.end(Duration::from_secs(u64::MAX)).as_secs(), MAX_UNIX_SECONDS + 1);
    assert_eq!(BudgetPeriod::Month.end(Duration::from_secs(u64::MAX)).as_secs(), MAX_UNIX_SECONDS + 1);
}

#[test]
fn days_are_iterated_with_both_ends() {
    let days = |from: &str, to: &str| -> Vec<String> {
        let (from, to) = (UtcDay::parse(from).unwrap(), UtcDay::parse(to).unwrap());
        from.iter_to(to).map(|day| day.to_string()).collect()
    };
    assert_eq!(days("2028-02-28", "2028-03-01"), ["2028-02-28", "2028-02-29", "2028-03-01"]);
    assert_eq!(days("9999-12-30", "9999-12-31"), ["9999-12-30", "9999-12-31"]);
    assert_eq!(days("2026-11-22", "2026-11-22"), ["2026-11-22"]);
    assert!(days("2026-11-22", "2026-11-21").is_empty());
}
