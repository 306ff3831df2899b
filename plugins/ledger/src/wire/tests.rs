//! Tests of the names and numbers of stored entries.
#![allow(clippy::unwrap_used)]
use super::*;

#[derive(Serialize)]
struct Of(#[serde(serialize_with = "exact")] Decimal);

#[test]
fn every_member_is_listed_under_its_stored_name() {
    let (text, one) = (|| Some(Cow::from("x")), Decimal::ONE);
    let line = EntryLine {
        seq: 1,
        at: 1,
        act: "x".into(),
        account: "x".into(),
        id: text(),
        request: text(),
        key: text(),
        wallet: "x".into(),
        amount: Some(1),
        held: Some(1),
        corrected_entry: Some(1),
        what: text(),
        was: Some(1),
        eur: Some(one),
        model: text(),
        provider: text(),
        terms: text(),
        batch: true,
        input: 1,
        cached: 1,
        output: 1,
        reasoning: 1,
        counted: true,
        images: 1,
        seconds: one,
        billable_kwh: Some(one),
        kwh: one,
        g_co2: one,
        litres: one,
        g_co2_low: one,
        g_co2_high: one,
        failed_kwh: one,
        why: text(),
        by: text(),
    };
    let written = serde_json::to_value(&line).unwrap();
    let mut written: Vec<&str> = written.as_object().unwrap().keys().map(String::as_str).collect();
    let mut members = ENTRY_MEMBERS;
    written.sort_unstable();
    members.sort_unstable();
    assert_eq!(written, members);
}

#[test]
fn a_correction_is_read_under_both_names_of_its_entry() {
    let line = |name: &str| {
        format!(
            r#"{{"seq":9,"at":1,"act":"correct","account":"a","id":"c","wallet":"credits","amount":1,"{name}":7,"what":"settle","was":2,"eur":"0","why":"w","by":"b"}}"#
        )
    };
    let entry = parse_entry(line("of").as_bytes()).unwrap();
    assert!(matches!(entry.kind, EntryKind::Correct { of: 7, .. }), "{entry:?}");
    assert_eq!(parse_entry(line("from_entry").as_bytes()).unwrap(), entry);
    let mut written = Vec::new();
    write_entry(&entry, &mut written).unwrap();
    assert_eq!(String::from_utf8(written).unwrap(), line("of"));
}

#[test]
fn numbers_are_written_as_they_write_themselves() {
    let mantissas =
        [0, 1, -1, 7, 10, 1_600, 123_456_789, i128::from(u64::MAX), i128::from(u64::MAX) + 1, -5_000];
    for mantissa in mantissas {
        for scale in 0..=28 {
            let number = Decimal::from_i128_with_scale(mantissa, scale);
            assert_eq!(serde_json::to_string(&Of(number)).unwrap(), format!("\"{number}\""));
        }
    }
}
