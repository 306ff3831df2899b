//! The objects follow the API contract exactly, and are the same in a header.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_response_metadata::{
    AmountFormat, BillingCost, DataCentreInfo, EnergyProvenance, EnvironmentImpact, GridInfo, SiteJson,
    impact_and_billing_headers, impact_and_billing_members,
};
use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::Value;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn site<'a>(location: &'a str, provider_id: &'a str) -> DataCentreInfo<'a> {
    DataCentreInfo {
        renewable_percent: decimal("27"),
        pue: decimal("1.30"),
        provider_id,
        location,
        country: "FR",
        grid: GridInfo { source: "Somebody (ODbL 1.0)", year: 2025, g_per_kwh: decimal("31") },
        methodology: "penstock-1.0",
    }
}

fn impact(served: &SiteJson) -> EnvironmentImpact<'_> {
    EnvironmentImpact {
        energy_kwh: decimal("0.000023538470"),
        carbon_g_co2: decimal("0.000729693"),
        water_liters: decimal("12.000000000"),
        site: served,
        provenance: EnergyProvenance {
            method: "benchmark",
            boundary: Some("gpu"),
            energy_kwh_low: decimal("0.000011769236"),
            energy_kwh_high: decimal("0.000094153890"),
            embodied_g_co2: Some(decimal("0.001017377")),
            assumed: &[],
            counted_by_gateway: false,
            cache: None,
        },
    }
}

const COST: BillingCost<'_> = BillingCost {
    energy: Decimal::from_parts(471, 0, 0, false, 8),
    credits: Decimal::from_parts(7000, 0, 0, false, 6),
    paid_with: "credits",
    amounts: AmountFormat::Numbers,
};

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[test]
fn the_members_have_the_contracts_fields_in_its_order() {
    let served = SiteJson::new(&site("Paris, France", "scw-fr-par-2"));
    assert_eq!(
        text(impact_and_billing_members(&impact(&served), &COST, true)),
        concat!(
            r#""environment_impact":{"energy_kwh":0.00002353847,"carbon_g_co2":0.000729693,"#,
            r#""water_liters":12,"renewable_percent":27,"pue":1.3,"provider_id":"scw-fr-par-2","#,
            r#""location":"Paris, France","country":"FR","provenance":{"method":"benchmark","boundary":"gpu","#,
            r#""energy_kwh_low":0.000011769236,"energy_kwh_high":0.00009415389,"#,
            r#""embodied_g_co2":0.001017377,"grid":{"source":"Somebody (ODbL 1.0)","year":2025,"#,
            r#""g_per_kwh":31},"methodology":"penstock-1.0"}},"#,
            r#""billing_cost":{"energy":0.00000471,"credits":0.007,"paid_with":"credits"}"#,
        )
    );
}

#[test]
fn without_provenance_only_the_contracts_own_fields_and_the_country_stand() {
    let served = SiteJson::new(&site("Paris, France", "p"));
    let all = format!("{{{}}}", text(impact_and_billing_members(&impact(&served), &COST, false)));
    let all: Value = serde_json::from_str(&all).unwrap();
    let mut names: Vec<&str> =
        all["environment_impact"].as_object().unwrap().keys().map(String::as_str).collect();
    let mut expected = [
        "energy_kwh",
        "carbon_g_co2",
        "water_liters",
        "renewable_percent",
        "pue",
        "provider_id",
        "location",
        "country",
    ];
    names.sort_unstable();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn unknown_values_are_absent_and_assumed_or_counted_ones_are_marked() {
    let served = SiteJson::new(&site("Paris, France", "p"));
    let known = impact(&served).provenance;
    let provenance = EnergyProvenance {
        boundary: None,
        embodied_g_co2: None,
        assumed: &["pue", "wue"],
        counted_by_gateway: true,
        cache: None,
        ..known
    };
    let all =
        text(impact_and_billing_members(&EnvironmentImpact { provenance, ..impact(&served) }, &COST, true));
    assert!(!all.contains("boundary") && !all.contains("embodied") && !all.contains("null"));
    assert!(all.contains(r#""assumed":["pue","wue"],"usage_source":"gateway"}"#));
    let plain = text(impact_and_billing_members(&impact(&served), &COST, true));
    assert!(!plain.contains("assumed") && !plain.contains("usage_source"));
}

#[test]
fn headers_carry_the_same_json_in_visible_ascii() {
    let served = SiteJson::new(&site("Kraków \"Podgórze\"\\\n𝄞, Poland", "p"));
    let [(impact_name, first), (cost_name, second)] =
        impact_and_billing_headers(&impact(&served), &COST, true);
    assert_eq!((impact_name, cost_name), ("x-environment-impact", "x-billing-cost"));
    assert!(first.iter().chain(&second).all(|byte| (b' '..=b'~').contains(byte)));
    let joined = format!("\"environment_impact\":{},\"billing_cost\":{}", text(first.clone()), text(second));
    assert_eq!(joined, text(impact_and_billing_members(&impact(&served), &COST, true)));
    let read: Value = serde_json::from_slice(&first).unwrap();
    assert_eq!(read["location"], "Kraków \"Podgórze\"\\\n𝄞, Poland");
}

#[test]
fn amounts_can_be_strings_of_the_same_digits() {
    let cost = BillingCost { amounts: AmountFormat::Strings, ..COST };
    let served = SiteJson::new(&site("a", "b"));
    let [_, (_, value)] = impact_and_billing_headers(&impact(&served), &cost, false);
    assert_eq!(text(value), r#"{"energy":"0.00000471","credits":"0.007","paid_with":"credits"}"#);
    let nothing = |amounts| {
        text(penstock_response_metadata::zero_impact_and_billing_members(&served, "credits", amounts))
    };
    assert!(nothing(AmountFormat::Numbers).ends_with(r#"{"energy":0,"credits":0,"paid_with":"credits"}"#));
    assert!(
        nothing(AmountFormat::Strings).ends_with(r#"{"energy":"0","credits":"0","paid_with":"credits"}"#)
    );
}

fn written(number: Decimal) -> String {
    let cost = BillingCost { energy: number, credits: Decimal::ZERO, ..COST };
    let served = SiteJson::new(&site("a", "b"));
    let [_, (_, value)] = impact_and_billing_headers(&impact(&served), &cost, false);
    let text = text(value);
    text.strip_prefix("{\"energy\":").unwrap().split(',').next().unwrap().to_owned()
}

#[test]
fn numbers_have_no_exponent_and_nothing_that_says_nothing() {
    let cases = [
        ("0", "0"),
        ("0.00000000", "0"),
        ("-0.0", "0"),
        ("1.30", "1.3"),
        ("100", "100"),
        ("0.000000000001", "0.000000000001"),
        ("-2.50", "-2.5"),
        ("79228162514264337593543950335", "79228162514264337593543950335"),
        ("7.9228162514264337593543950330", "7.922816251426433759354395033"),
        ("0.0000000000000000000000000001", "0.0000000000000000000000000001"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616.0", "18446744073709551616"),
    ];
    for (number, expected) in cases {
        assert_eq!(written(decimal(number)), expected);
    }
}

proptest! {
    #[test]
    fn every_decimal_is_written_exactly(low in any::<u32>(), mid in any::<u32>(), high in any::<u32>(),
        negative in any::<bool>(), scale in 0_u32..29) {
        for number in [
            Decimal::from_parts(low, mid, high, negative, scale),
            Decimal::from_parts(low, 0, 0, negative, scale),
        ] {
            let ours = written(number);
            prop_assert_eq!(&ours, &number.normalize().to_string());
            prop_assert!(!ours.contains(['e', 'E', '+']));
        }
    }

    #[test]
    fn any_text_comes_back_as_it_was(location in any::<String>()) {
        let served = SiteJson::new(&site(&location, "p"));
        let all = format!("{{{}}}", text(impact_and_billing_members(&impact(&served), &COST, true)));
        let read: Value = serde_json::from_str(&all).unwrap();
        prop_assert_eq!(read["environment_impact"]["location"].as_str(), Some(location.as_str()));
    }
}
