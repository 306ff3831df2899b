//! Durations, sizes and decimals are parsed exactly.

use super::super::suggest::most_similar;
use super::super::units::{format_duration, format_size, parse_decimal, parse_duration, parse_size};
use super::{load, tells, with};
use std::time::Duration;

#[test]
fn durations_are_numbers_with_units_and_their_sums() {
    assert_eq!(parse_duration("250ms"), Some(Duration::from_millis(250)));
    assert_eq!(parse_duration("1m30s"), Some(Duration::from_secs(90)));
    assert_eq!(parse_duration("0"), Some(Duration::ZERO));
    for invalid in ["", "10", "s", "-1s", "1 s", "1w", "1s5", "99999999999999999999s", "400d", "1e3s", "1_0s"]
    {
        assert_eq!(parse_duration(invalid), None, "{invalid}");
    }
    for millis in [0, 1, 999, 1_000, 61_001, 86_400_000, 90_061_001] {
        let written = format_duration(Duration::from_millis(millis));
        assert_eq!(parse_duration(&written), Some(Duration::from_millis(millis)), "{written}");
    }
}

#[test]
fn a_number_of_a_duration_may_have_a_fraction() {
    let nanos = Duration::from_nanos;
    for (text, expected) in [
        ("2.5s", nanos(2_500_000_000)),
        ("1.5ms", nanos(1_500_000)),
        ("0.5m", nanos(30_000_000_000)),
        ("1.25h", Duration::from_secs(4_500)),
        ("0.5d", Duration::from_secs(43_200)),
        ("0.0s", Duration::ZERO),
        ("0.000001ms", nanos(1)),
        ("1.500000000000000000000000s", nanos(1_500_000_000)),
        ("1.5h30.5s", nanos(5_430_500_000_000)),
        ("366d", Duration::from_secs(366 * 86_400)),
        ("365.999999999d", Duration::from_nanos(31_622_399_999_913_600)),
    ] {
        assert_eq!(parse_duration(text), Some(expected), "{text}");
        assert_eq!(parse_duration(&format_duration(expected)), Some(expected), "{text}");
    }
    assert_eq!(format_duration(nanos(2_500_000_001)), "2s500ms0.000001ms");
    for invalid in [
        ".5s",
        "2.s",
        ".s",
        "1..5s",
        "1.5.5s",
        "1,5s",
        "1.5",
        "-0.5s",
        "+1.5s",
        "0.0000001ms",
        "0.0000000001s",
        "366.0000000000001d",
        "0.1234567890123456789s",
        "99999999999999999999.5s",
        "1.5S",
        "\u{0661}.5s",
    ] {
        assert_eq!(parse_duration(invalid), None, "{invalid}");
    }
}

#[test]
fn sizes_are_bytes_with_units() {
    assert_eq!(parse_size("32MiB"), Some(32 << 20));
    assert_eq!(parse_size("1GB"), Some(1_000_000_000));
    assert_eq!(parse_size("512"), Some(512));
    for invalid in ["", "MiB", "1.5MiB", "-1B", "99999999999999999999", "20000000TiB", "1 meg"] {
        assert_eq!(parse_size(invalid), None, "{invalid}");
    }
    for bytes in [0, 1, 1023, 1024, 1 << 20, (1 << 20) + 1, 5 << 40] {
        assert_eq!(parse_size(&format_size(bytes)), Some(bytes));
    }
}

#[test]
fn decimals_keep_every_digit_that_is_written() {
    for text in ["0.1", "0.1234567890123456789012345678", "5.00", "1e-6", "1_000.5"] {
        assert!(parse_decimal(text).is_some(), "{text}");
    }
    assert_eq!(parse_decimal("0.1").unwrap().to_string(), "0.1");
    assert_eq!(parse_decimal("1e-6").unwrap().to_string(), "0.000001");
    for invalid in ["", "inf", "nan", "1,5", "0.12345678901234567890123456789", "1e40"] {
        assert_eq!(parse_decimal(invalid), None, "{invalid}");
    }
}

#[test]
fn prices_never_pass_through_a_float() {
    let text =
        with("", "", "", "price = { input = 0.30000000000000000004, output = \"0.10000000000000000001\" }");
    let offer = load(&text).unwrap().settings.offers.remove(0);
    assert_eq!(offer.tariff.input.unwrap().to_string(), "0.30000000000000000004");
    assert_eq!(offer.tariff.output.unwrap().to_string(), "0.10000000000000000001");
}

#[test]
fn an_invalid_form_suggests_a_valid_one() {
    tells(&with("[limits]\nbody = \"5 minutes\"", "", "", ""), "limits.body", "not a duration", "5m");
    tells(&with("[limits]\nbody = \"0\"", "", "", ""), "limits.body", "more than zero", "5m");
    tells(
        &with("[limits]\nbody = 300", "", "", ""),
        "limits.body",
        "an integer, and must be a duration",
        "5m",
    );
    tells(&with("[limits]\njson_body = \"32 megs\"", "", "", ""), "limits.json_body", "not a size", "32MiB");
    tells(
        &with("", "price = { input = \"cheap\" }", "", "")
            .replace("price = { input = 0.1, output = 0.2 }\n", ""),
        "models.m1.price.input",
        "an exact number",
        "0.15",
    );
}

#[test]
fn a_similar_name_is_suggested_and_a_different_one_is_not() {
    let known = ["json_body", "json_depth", "keep_alive"];
    assert_eq!(most_similar("json_bdy", known), Some("json_body"));
    assert_eq!(most_similar("keepAlive", known), Some("keep_alive"));
    assert_eq!(most_similar("jsno_body", known), Some("json_body"));
    assert_eq!(most_similar("heartbeat", known), None);
}
