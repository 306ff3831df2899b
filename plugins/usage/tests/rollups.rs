//! Tests that rows of rollups survive encoding and decoding, and that ranges and groups have limits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, missing_docs)]

use penstock_ledger::StatementSums;
use penstock_usage::{
    GroupError, HourNumber, PriceClass, RangeError, RollupDimensions, RowError, UsageGrouping, UsageOutcome,
    UsageRange, UsageReport, UsageSums, account_key_prefix, decode_row, encode_row_value, hour_key_prefix,
    row_key,
};
use proptest::prelude::*;
use rust_decimal::Decimal;

fn name() -> impl Strategy<Value = std::sync::Arc<str>> {
    "[a-zé\"\\\\ /:.-]{0,12}".prop_map(|text| text.as_str().into())
}

fn cell() -> impl Strategy<Value = RollupDimensions> {
    let outcome = (0..UsageOutcome::ALL.len()).prop_map(|index| UsageOutcome::ALL[index]);
    let price = (0..PriceClass::ALL.len()).prop_map(|index| PriceClass::ALL[index]);
    ((name(), any::<u32>(), name(), name()), (name(), name(), name(), outcome, price)).prop_map(
        |((account, hour, key, model), (provider, location, terms, outcome, price))| RollupDimensions {
            account,
            hour: HourNumber(hour),
            key,
            model,
            provider,
            location,
            terms,
            outcome,
            price,
        },
    )
}

fn sums() -> impl Strategy<Value = UsageSums> {
    let decimal = || (any::<i64>(), 0..12_u32).prop_map(|(mantissa, scale)| Decimal::new(mantissa, scale));
    (any::<[u64; 8]>(), proptest::array::uniform8(decimal()), any::<[i64; 4]>()).prop_map(
        |(counts, decimals, amounts)| {
            let [requests, uncharged, counted, input, cached, output, images, batch_requests] = counts;
            let [seconds, kwh, carbon_g, water_l, eur, carbon_low_g, carbon_high_g, failed_kwh] = decimals;
            let [credits, energy, granted_credits, granted_energy] =
                amounts.map(|amount| i128::from(amount) * 1_000_000);
            let billed = StatementSums {
                requests,
                uncharged,
                counted,
                input,
                cached,
                output,
                images,
                seconds,
                kwh,
                carbon_g,
                water_l,
                credits,
                energy,
                eur,
                granted_credits,
                granted_energy,
            };
            UsageSums { billed, batch_requests, carbon_low_g, carbon_high_g, failed_kwh }
        },
    )
}

proptest! {
    #[test]
    fn a_row_survives_a_round_trip(cell in cell(), sums in sums()) {
        let (key, value) = (row_key(&cell), encode_row_value(&cell, &sums));
        prop_assert_eq!(decode_row(&key, &value), Ok((cell.clone(), sums)));
        prop_assert!(key.starts_with(&account_key_prefix(&cell.account)));
        prop_assert!(key > hour_key_prefix(&cell.account, cell.hour));
        if let Some(next) = cell.hour.0.checked_add(1) {
            prop_assert!(key < hour_key_prefix(&cell.account, HourNumber(next)));
        }
    }

    #[test]
    fn a_damaged_row_is_an_error_and_no_panic(key in any::<Vec<u8>>(), value in any::<Vec<u8>>()) {
        prop_assert!(decode_row(&key, &value).is_err());
    }
}

#[test]
fn a_row_of_a_later_version_is_refused() {
    let key = hour_key_prefix("a", HourNumber(1)).into_iter().chain([0; 16]).collect::<Vec<u8>>();
    assert_eq!(decode_row(&key, br#"{"v":2,"outcome":"charged"}"#), Err(RowError::NewerVersion));
    assert_eq!(decode_row(&key, br#"{"v":0,"outcome":"charged"}"#), Err(RowError::InvalidFormat));
    assert_eq!(decode_row(&key, br#"{"v":1,"outcome":"other"}"#), Err(RowError::InvalidFormat));
}

#[test]
fn a_range_has_whole_days_and_bounds() {
    let now = 1_795_651_200; // 2026-11-26T00:00:00Z
    let parse = |from, to| UsageRange::parse(from, to, now);
    let usual = parse(None, None).unwrap();
    assert_eq!((usual.day_count(), usual.to.to_string()), (30, "2026-11-26".to_owned()));
    assert_eq!(parse(Some("2026-11-26"), None).unwrap().day_count(), 1);
    assert_eq!(parse(Some("2025-11-26"), None).unwrap().day_count(), 366);
    let last = parse(Some("9999-12-31"), Some("9999-12-31")).unwrap();
    let (day, hour) = (last.day_bounds(), last.hour_bounds());
    assert_eq!(
        (day.1.0 - day.0.0, hour.1.0 - hour.0.0),
        (1, 24),
        "the last day of the calendar is a whole day"
    );
    for (from, to, error) in [
        (Some("2025-11-25"), None, RangeError::TooManyDays),
        (Some("2026-11-27"), None, RangeError::ReversedDays),
        (Some("26.11.2026"), None, RangeError::InvalidFirstDay),
        (None, Some("2026-02-30"), RangeError::InvalidLastDay),
    ] {
        assert_eq!(parse(from, to), Err(error));
    }
}

#[test]
fn too_many_groups_are_refused_and_grants_are_no_usage() {
    let mut report = UsageReport::new(vec![UsageGrouping::Model], 2);
    let cell = |model: &str, outcome| RollupDimensions {
        account: "a".into(),
        hour: HourNumber(7),
        key: "k".into(),
        model: model.into(),
        provider: "".into(),
        location: "".into(),
        terms: "".into(),
        outcome,
        price: PriceClass::default(),
    };
    let sums = UsageSums { failed_kwh: Decimal::ONE, ..UsageSums::default() };
    for model in ["m1", "m2", "m1"] {
        report.add(&cell(model, UsageOutcome::Charged), &sums).unwrap();
    }
    report.add(&cell("m9", UsageOutcome::Granted), &sums).unwrap();
    assert_eq!(report.add(&cell("m3", UsageOutcome::Charged), &sums), Err(GroupError::TooManyGroups(2)));
    assert_eq!(report.groups().map(|group| group.names[0].clone()).collect::<Vec<_>>(), ["m1", "m2"]);
    assert_eq!(report.total().failed_kwh, Decimal::from(3));
}
