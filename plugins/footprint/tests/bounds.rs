//! Rounding is exact and half-even, and no number causes a panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{MeasuredEnergy, MeterBoundary, ModelKind, TokenUsage};
use penstock_footprint::{AttemptWork, EnergyProfile, OfferFactors, ServiceSite, WorkDone};
use proptest::prelude::*;
use rust_decimal::Decimal;
use std::time::Duration;

fn site(pue: Decimal, g_per_kwh: Decimal) -> ServiceSite {
    ServiceSite {
        pue: Some(pue),
        wue: Some(Decimal::ONE),
        g_per_kwh,
        water_l_per_kwh: Decimal::ONE,
        boundary: None,
        bills_measured: true,
    }
}

fn most_expensive(kind: ModelKind) -> OfferFactors {
    let card = EnergyProfile {
        active_params_b: Some(Decimal::from(100_000)),
        total_params_b: Some(Decimal::from(100_000)),
        weight_bits: Some(64),
        joules_per_input_token: Some("9999.999999999".parse().unwrap()),
        joules_per_output_token: Some("9999.999999999".parse().unwrap()),
        joules_per_image: Some("9999999.999999999".parse().unwrap()),
        image_steps: Some(1),
        joules_per_audio_second: Some("9999.999999999".parse().unwrap()),
        ..EnergyProfile::new(kind)
    };
    OfferFactors::new(&card, &site("4.999999999".parse().unwrap(), "1999.999999999".parse().unwrap()))
        .unwrap()
}

#[test]
fn the_greatest_counts_give_figures_in_order_and_no_panic() {
    let usage = TokenUsage { input: u64::MAX, cached: 0, output: u64::MAX, ..TokenUsage::default() };
    let images = WorkDone::Images { count: u32::MAX, steps: Some(u32::MAX), pixels: Some(u64::MAX) };
    let works = [
        (ModelKind::Chat, WorkDone::Tokens(usage)),
        (ModelKind::Embedding, WorkDone::Tokens(usage)),
        (ModelKind::Image, images),
        (ModelKind::Transcription, WorkDone::Audio { seconds: Decimal::MAX }),
        (ModelKind::Chat, WorkDone::Unknown),
    ];
    for (kind, done) in works {
        let offer = most_expensive(kind);
        let work = AttemptWork::new(done, Duration::MAX);
        let mut sum = offer.attempt_energy(&work, None);
        for _ in 0..20 {
            let again = sum;
            sum.add_failed(&again);
        }
        let figures = sum.footprint();
        assert!(figures.energy_kwh > Decimal::ZERO && figures.carbon_g >= figures.energy_kwh, "{done:?}");
        assert!(figures.energy_kwh_low <= figures.energy_kwh);
        assert!(figures.energy_kwh <= figures.energy_kwh_high);
        assert!(offer.billable_kwh(&work, None) > Decimal::ZERO);
    }
}

#[test]
fn a_count_beyond_a_million_millions_counts_as_that() {
    let card =
        EnergyProfile { active_params_b: Some(Decimal::from(8)), ..EnergyProfile::new(ModelKind::Chat) };
    let offer = OfferFactors::new(&card, &site(Decimal::ONE, Decimal::ONE)).unwrap();
    let energy = |output| {
        let usage = TokenUsage { output, ..TokenUsage::default() };
        offer.attempt_energy(&AttemptWork::from_tokens(usage, Duration::ZERO), None).footprint().energy_kwh
    };
    assert_eq!(energy(u64::MAX), energy(1_000_000_000_000));
    assert!(energy(999_999_999_999) < energy(1_000_000_000_000));
}

#[test]
fn ties_go_to_the_even_digit() {
    let offer = most_expensive(ModelKind::Chat);
    let kwh = |joules: &str| {
        let measured =
            MeasuredEnergy { joules: joules.parse().unwrap(), boundary: Some(MeterBoundary::Facility) };
        offer
            .attempt_energy(&AttemptWork::new(WorkDone::Unknown, Duration::ZERO), Some(measured))
            .footprint()
            .energy_kwh
    };
    let cases = [
        ("0.0000018", "0.000000000000"),
        ("0.00000180001", "0.000000000001"),
        ("0.0000054", "0.000000000002"),
        ("0.00000899999", "0.000000000002"),
        ("0.0000090", "0.000000000002"),
        ("0.0000126", "0.000000000004"),
    ];
    for (joules, expected) in cases {
        assert_eq!(kwh(joules).to_string(), expected, "{joules} J");
    }
}

proptest! {
    #[test]
    fn any_work_anywhere_gives_figures_in_order(
        input in any::<u64>(),
        cached in any::<u64>(),
        output in any::<u64>(),
        active in 1_u32..100_000_000,
        pue in 100_u32..500,
        carbon in 0_u32..2000,
        tier in any::<bool>(),
    ) {
        let active = Decimal::new(i64::from(active), 3);
        let card = EnergyProfile { active_params_b: Some(active), ..EnergyProfile::new(ModelKind::Chat) };
        let offer = OfferFactors::new(&card, &site(Decimal::new(i64::from(pue), 2), carbon.into())).unwrap();
        let usage = TokenUsage { input, cached, output, ..TokenUsage::default() };
        let work = AttemptWork { throughput_tier: tier, ..AttemptWork::from_tokens(usage, Duration::ZERO) };
        let ours = offer.attempt_energy(&work, None).footprint();
        prop_assert!(ours.energy_kwh_low <= ours.energy_kwh && ours.energy_kwh <= ours.energy_kwh_high);
        prop_assert!(ours.energy_kwh <= offer.billable_kwh(&work, None));
    }

    #[test]
    fn rounding_is_the_nearest_of_the_exact_value(units in 0_i64..i64::MAX, scale in 0_u32..16) {
        let joules = Decimal::new(units, scale);
        prop_assume!(joules <= Decimal::from(1_000_000_000_000_u64) && units > 0);
        let offer = most_expensive(ModelKind::Chat);
        let measured = MeasuredEnergy { joules, boundary: Some(MeterBoundary::Facility) };
        let work = AttemptWork::new(WorkDone::Unknown, Duration::ZERO);
        let ours = offer.attempt_energy(&work, Some(measured)).footprint().energy_kwh;
        let off = (ours * Decimal::from(3_600_000) - joules).abs();
        prop_assert!(off <= "0.0000018".parse().unwrap(), "{} is {} J off", ours, off);
    }

    #[test]
    fn more_tokens_never_take_less_energy(input in 0_u64..1_000_000, output in 0_u64..1_000_000) {
        let card = EnergyProfile { active_params_b: Some(Decimal::from(70)), ..EnergyProfile::new(ModelKind::Chat) };
        let offer = OfferFactors::new(&card, &site(Decimal::new(12, 1), Decimal::from(300))).unwrap();
        let energy = |input, output| {
            let usage = TokenUsage { input, output, ..TokenUsage::default() };
            offer.attempt_energy(&AttemptWork::from_tokens(usage, Duration::ZERO), None).footprint().energy_kwh
        };
        prop_assert!(energy(input + 1, output) > energy(input, output));
        prop_assert!(energy(input, output + 1) > energy(input, output));
    }
}
