//! Rules that the published vectors do not cover.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{MeasuredEnergy, MeterBoundary, ModelKind, TokenUsage};
use penstock_footprint::{
    AttemptWork, EnergyMethod, EnergyProfile, OfferFactors, ServiceSite, WorkDone, constants,
};
use rust_decimal::Decimal;
use std::time::Duration;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn site() -> ServiceSite {
    ServiceSite {
        pue: Some(decimal("1.2")),
        wue: Some(decimal("0.1")),
        g_per_kwh: decimal("100"),
        water_l_per_kwh: decimal("2"),
        boundary: None,
        bills_measured: false,
    }
}

fn chat() -> EnergyProfile {
    EnergyProfile {
        active_params_b: Some(decimal("8")),
        joules_per_output_token: Some(decimal("0.119")),
        ..EnergyProfile::new(ModelKind::Chat)
    }
}

fn offer(card: &EnergyProfile) -> OfferFactors {
    OfferFactors::new(card, &site()).unwrap()
}

fn tokens(input: u64, cached: u64, output: u64) -> AttemptWork {
    AttemptWork::from_tokens(
        TokenUsage { input, cached, output, ..TokenUsage::default() },
        Duration::from_secs(2),
    )
}

/// Converts joules of GPU energy to kWh at the building's meter of [`place`].
fn kwh(joules: &str) -> Decimal {
    let facility = decimal(joules) * decimal("1.3") * decimal("1.12") * decimal("1.2");
    (facility / decimal("3600000")).round_dp(12)
}

#[test]
fn failed_attempts_are_summed_before_rounding_each_with_its_own_location() {
    let clean = offer(&chat());
    let dirty = OfferFactors::new(&chat(), &ServiceSite { g_per_kwh: decimal("500"), ..site() }).unwrap();
    let mut all = clean.attempt_energy(&tokens(0, 0, 300), None);
    all.add_failed(&dirty.attempt_energy(&tokens(500, 0, 0), None));
    let sum = all.footprint();
    assert_eq!(sum.energy_kwh, kwh("50.172"));
    let (served, failed) = (kwh("35.7") * decimal("100"), kwh("14.472") * decimal("500"));
    assert!((sum.carbon_g - served - failed).abs() < decimal("0.000000001"));
    assert_eq!(sum.method, EnergyMethod::Benchmark);
}

#[test]
fn attention_grows_with_each_prompt_and_not_with_their_sum() {
    let offer = offer(&chat());
    let usage = |input, cached, mean_prompt_length| TokenUsage {
        input,
        cached,
        output: 7,
        mean_prompt_length,
        ..TokenUsage::default()
    };
    let work = |usage| AttemptWork::from_tokens(usage, Duration::from_secs(2));
    let bill = |usage| offer.billable_kwh(&work(usage), None);
    let energy = |usage| offer.attempt_energy(&work(usage), None).footprint().energy_kwh;
    // Three prompts of 49,000 tokens: 0.0288 J · 147,000 · 1.49 + 0.119 J · 7.
    let three = usage(147_000, 0, Some(49_000));
    assert_eq!(energy(three), kwh("6308.897"));
    assert_eq!(bill(three), energy(three));
    let one = usage(49_000, 0, None);
    assert_eq!(energy(usage(147_000, 0, None)), energy(usage(147_000, 0, Some(u64::MAX))));
    assert_eq!(energy(usage(49_000, 9_000, None)), energy(usage(49_000, 9_000, Some(49_000))));
    assert!(energy(usage(147_000, 0, None)) > energy(three) && energy(three) > energy(one));
}

#[test]
fn each_boundary_adds_its_unmetered_energy() {
    let measured = |boundary| {
        let measured = MeasuredEnergy { joules: decimal("3600000"), boundary: Some(boundary) };
        offer(&chat()).attempt_energy(&tokens(1, 0, 1), Some(measured)).footprint()
    };
    let (gpu, it, facility) =
        (measured(MeterBoundary::Gpu), measured(MeterBoundary::It), measured(MeterBoundary::Facility));
    assert_eq!(gpu.energy_kwh, decimal("1.7472"));
    assert_eq!(it.energy_kwh, decimal("1.2"));
    assert_eq!(facility.energy_kwh, decimal("1"));
    assert_eq!((gpu.carbon_g, it.carbon_g), (decimal("174.72"), decimal("120")));
    assert_eq!(it.water_l, decimal("2.5"), "one kWh of IT: 0.1 on site and 1.2 times 2 elsewhere");
    assert_eq!(facility.water_l, decimal("2.083333333"));
    assert_eq!(gpu.embodied_g, decimal("73"));
    assert_eq!(it.embodied_g, (decimal("73") / decimal("1.456")).round_dp(9));
    assert_eq!((it.energy_kwh_low, it.energy_kwh_high), (decimal("1.08"), decimal("1.32")));
}

#[test]
fn the_answers_own_boundary_beats_the_configured_one() {
    let it =
        OfferFactors::new(&chat(), &ServiceSite { boundary: Some(MeterBoundary::It), ..site() }).unwrap();
    let joules = decimal("3600000");
    let configured =
        it.attempt_energy(&tokens(1, 0, 1), Some(MeasuredEnergy { joules, boundary: None })).footprint();
    assert_eq!((configured.boundary, configured.energy_kwh), (MeterBoundary::It, decimal("1.2")));
    let measured = MeasuredEnergy { joules, boundary: Some(MeterBoundary::Facility) };
    assert_eq!(it.attempt_energy(&tokens(1, 0, 1), Some(measured)).footprint().energy_kwh, decimal("1"));
}

#[test]
fn a_meter_that_reads_nothing_is_no_measurement() {
    for joules in ["0", "-5", "1000000000001"] {
        let measured = MeasuredEnergy { joules: decimal(joules), boundary: Some(MeterBoundary::Gpu) };
        let ours = offer(&chat()).attempt_energy(&tokens(500, 0, 300), Some(measured)).footprint();
        assert_eq!((ours.method, ours.energy_kwh), (EnergyMethod::Benchmark, kwh("50.172")), "{joules}");
    }
}

#[test]
fn the_bill_follows_the_list_and_measured_energy_only_by_contract_up_to_twice() {
    let work = tokens(500, 0, 300);
    let measured =
        |joules| Some(MeasuredEnergy { joules: decimal(joules), boundary: Some(MeterBoundary::Gpu) });
    assert_eq!(offer(&chat()).billable_kwh(&work, measured("10")), kwh("50.172"));
    let contract = OfferFactors::new(&chat(), &ServiceSite { bills_measured: true, ..site() }).unwrap();
    assert_eq!(contract.billable_kwh(&work, measured("10")), kwh("10"));
    assert_eq!(contract.billable_kwh(&work, measured("1000")), kwh("100.344"));
    assert_eq!(contract.billable_kwh(&work, None), kwh("50.172"));
}

#[test]
fn a_confirmed_throughput_tier_lowers_the_energy_and_not_the_bill() {
    let work = AttemptWork { throughput_tier: true, ..tokens(0, 0, 1000) };
    let offer = offer(&chat());
    assert_eq!(offer.attempt_energy(&work, None).footprint().energy_kwh, kwh("71.4"));
    assert_eq!(offer.billable_kwh(&work, None), kwh("119"));
}

#[test]
fn long_prompts_cost_more_per_token_and_cached_tokens_a_tenth() {
    let offer = offer(&chat());
    let energy = |input, cached| offer.attempt_energy(&tokens(input, cached, 0), None).footprint().energy_kwh;
    assert_eq!(energy(100_000, 0), kwh("5760"), "twice 2880");
    assert_eq!(energy(1000, 1000), kwh("2.88"));
    assert_eq!(energy(1000, 2000), energy(1000, 1000), "no more can be cached than was read");
}

#[test]
fn images_scale_with_count_steps_and_pixels() {
    let card = EnergyProfile {
        joules_per_image: Some(decimal("7949")),
        image_steps: Some(50),
        ..EnergyProfile::new(ModelKind::Image)
    };
    let drawn = |count, steps, pixels| {
        let work = AttemptWork::new(WorkDone::Images { count, steps, pixels }, Duration::from_secs(9));
        offer(&card).attempt_energy(&work, None).footprint()
    };
    assert_eq!(drawn(1, None, None).energy_kwh, kwh("7949"));
    assert_eq!(drawn(2, Some(25), Some(524_288)).energy_kwh, kwh("3974.5"));
    assert_eq!(drawn(0, None, None).energy_kwh, Decimal::ZERO.round_dp(12));
    let unknown =
        AttemptWork::new(WorkDone::Images { count: 1, steps: Some(4), pixels: None }, Duration::ZERO);
    let unknown = offer(&EnergyProfile::new(ModelKind::Image)).attempt_energy(&unknown, None).footprint();
    assert_eq!((unknown.method, unknown.energy_kwh), (EnergyMethod::ClassDefault, kwh("4320")));
}

#[test]
fn an_unmeasured_model_follows_the_law_of_its_size() {
    let card = EnergyProfile { active_params_b: Some(decimal("24")), ..EnergyProfile::new(ModelKind::Chat) };
    let ours = offer(&card).attempt_energy(&tokens(0, 0, 1000), None).footprint();
    assert_eq!((ours.method, ours.energy_kwh), (EnergyMethod::Parametric, kwh("195.103")));
}

#[test]
fn where_nothing_is_known_the_time_tells_and_says_so() {
    let ours = offer(&EnergyProfile::new(ModelKind::Chat)).attempt_energy(&tokens(9, 0, 9), None).footprint();
    assert_eq!((ours.method, ours.boundary), (EnergyMethod::LatencyProxy, MeterBoundary::It));
    assert_eq!(
        ours.energy_kwh,
        (decimal("2") * decimal("664") * decimal("1.2") / decimal("3600000")).round_dp(12)
    );
    assert_eq!(
        ours.embodied_g,
        (decimal("2") * decimal("514") * decimal("0.073") / decimal("3600")).round_dp(9)
    );
    let wide = EnergyProfile { total_params_b: Some(decimal("70")), ..EnergyProfile::new(ModelKind::Chat) };
    assert_eq!(
        offer(&wide).attempt_energy(&tokens(9, 0, 9), None).footprint().energy_kwh,
        decimal("0.001770666667")
    );
    assert!(!offer(&wide).is_computable_from_work() && offer(&chat()).is_computable_from_work());
}

#[test]
fn work_that_the_card_cannot_count_goes_by_time() {
    let silent = AttemptWork::new(WorkDone::Unknown, Duration::from_secs(1));
    assert_eq!(offer(&chat()).attempt_energy(&silent, None).footprint().method, EnergyMethod::LatencyProxy);
    let speech = offer(&EnergyProfile::new(ModelKind::Transcription));
    assert_eq!(speech.attempt_energy(&silent, None).footprint().method, EnergyMethod::LatencyProxy);
}

#[test]
fn an_unpublished_building_has_the_defaults_and_is_flagged() {
    let bare = ServiceSite { pue: None, wue: None, ..site() };
    let ours = OfferFactors::new(&chat(), &bare).unwrap();
    assert_eq!(ours.pue(), decimal("1.4"));
    let footprint = ours.attempt_energy(&tokens(1, 0, 1), None).footprint();
    assert_eq!(footprint.assumed.names(), ["pue", "wue"]);
    let nothing = offer(&chat()).attempt_energy(&tokens(1, 0, 1), None).footprint();
    assert!(nothing.assumed.names().is_empty());
}

#[test]
fn every_mistake_of_a_card_and_a_location_is_named_at_once() {
    let card = EnergyProfile {
        active_params_b: Some(decimal("8")),
        total_params_b: Some(decimal("7")),
        joules_per_output_token: Some(decimal("-1")),
        weight_bits: Some(0),
        method: Some(EnergyMethod::Measured),
        ..EnergyProfile::new(ModelKind::Chat)
    };
    let invalid_site = ServiceSite { pue: Some(decimal("0.9")), wue: Some(decimal("-0.1")), ..site() };
    let fields: Vec<&str> =
        OfferFactors::new(&card, &invalid_site).unwrap_err().iter().map(|mistake| mistake.field).collect();
    assert_eq!(fields, ["joules_per_output_token", "weight_bits", "total_params_b", "method", "pue", "wue"]);
}

#[test]
fn a_profile_that_claims_to_be_measured_is_answered_with_the_methods_that_it_may_name() {
    let profile = EnergyProfile { method: Some(EnergyMethod::Measured), ..chat() };
    let mistakes = OfferFactors::new(&profile, &site()).unwrap_err();
    let names = mistakes[0].expected.split(';').next().unwrap();
    for name in names.split([',', ' ']).filter(|word| !word.is_empty() && *word != "or") {
        let method = EnergyMethod::from_name(name);
        assert!(method.is_some_and(|method| method != EnergyMethod::Measured), "{name}");
        assert!(OfferFactors::new(&EnergyProfile { method, ..chat() }, &site()).is_ok(), "{name}");
    }
    assert!(!mistakes[0].expected.contains("card"));
}

#[test]
fn every_method_is_found_by_its_name_and_its_range_holds_the_figure() {
    for name in ["measured", "provider_average", "benchmark", "parametric", "latency_proxy", "class_default"]
    {
        let method = EnergyMethod::from_name(name).unwrap();
        assert_eq!(method.name(), name);
        assert!(method.error_range().low < Decimal::ONE && method.error_range().high > Decimal::ONE);
    }
    assert_eq!(EnergyMethod::from_name("guess"), None);
    assert_eq!(constants::METHODOLOGY_VERSION, penstock_footprint::METHODOLOGY_VERSION);
}

#[test]
fn an_implausible_energy_measurement_is_ignored() {
    let card =
        EnergyProfile { joules_per_output_token: Some(Decimal::ONE), ..EnergyProfile::new(ModelKind::Chat) };
    let card = EnergyProfile { joules_per_input_token: Some(Decimal::ONE), ..card };
    let site = ServiceSite { pue: Some(Decimal::ONE), wue: Some(Decimal::ZERO), ..site() };
    let offer = OfferFactors::new(&card, &site).unwrap();
    let credible = |output: u64, joules: &str, boundary| {
        let measured = MeasuredEnergy { joules: joules.parse().unwrap(), boundary: Some(boundary) };
        let work = AttemptWork::from_tokens(TokenUsage { output, ..TokenUsage::default() }, Duration::ZERO);
        offer.plausible_measurement(&work, measured).is_some()
    };
    // A small answer may consume 1 Wh, whatever the formula gives.
    assert!(credible(1, "3600", MeterBoundary::Facility));
    assert!(!credible(1, "3600.001", MeterBoundary::Facility));
    assert!(!credible(1, "3600", MeterBoundary::Gpu), "it is 5,241.6 J at the building's meter");
    // 10,000 J at the GPUs are 14,560 J at the building's meter. The high end of the range is four times that, 58,240
    // J, and the maximum is ten times the high end.
    assert!(credible(10_000, "582400", MeterBoundary::Facility));
    assert!(!credible(10_000, "582400.001", MeterBoundary::Facility));
    // The low end of the range is a fourth of 14,560 J, and the minimum is a tenth of the low end.
    assert!(credible(10_000, "728", MeterBoundary::Facility));
    for absurd in ["727.999", "0.001", "0.000000001", "0", "-1", "3600000000000000"] {
        assert!(!credible(10_000, absurd, MeterBoundary::Facility), "{absurd}");
    }
}
