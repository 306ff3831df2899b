//! Every published vector, compared exactly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{MeasuredEnergy, MeterBoundary, ModelKind, TokenUsage};
use penstock_footprint::{
    AnswerFootprint, AttemptWork, EnergyMethod, EnergyProfile, OfferFactors, ServiceSite, WorkDone,
    constants, grid, meter_boundary_from_name,
};
use rust_decimal::Decimal;
use serde_json::Value;
use std::time::Duration;

fn vectors() -> Value {
    serde_json::from_str(include_str!("../testdata/impact_vectors.json")).unwrap()
}

fn decimal(value: &Value) -> Option<Decimal> {
    value.as_str().map(|text| text.parse().unwrap())
}

fn kind(name: &str) -> ModelKind {
    match name.split('-').next().unwrap() {
        "embed" => ModelKind::Embedding,
        "rerank" => ModelKind::Rerank,
        "flux.1" => ModelKind::Image,
        "whisper" => ModelKind::Transcription,
        _ => ModelKind::Chat,
    }
}

fn card(all: &Value, name: &str) -> EnergyProfile {
    let model = &all["models"][name];
    EnergyProfile {
        active_params_b: decimal(&model["active"]),
        joules_per_output_token: decimal(&model["e_out"]),
        joules_per_image: decimal(&model["j_image"]),
        image_steps: model["steps"].as_str().map(|steps| steps.parse().unwrap()),
        joules_per_audio_second: decimal(&model["j_audio_s"]),
        method: EnergyMethod::from_name(model["method"].as_str().unwrap()),
        ..EnergyProfile::new(kind(name))
    }
}

/// Returns the site of a provider, and the row of its grid.
fn site_and_row(all: &Value, name: &str) -> (ServiceSite, grid::GridRow) {
    let provider = &all["providers"][name];
    let table = grid::parse_table(include_str!("../../../conf/grid/eu-2025.csv")).unwrap();
    let row = table.get(provider["location"].as_str().unwrap()).unwrap().clone();
    let (pue, wue) = (decimal(&provider["pue"]), decimal(&provider["wue"]));
    (ServiceSite { pue, wue, bills_measured: true, ..ServiceSite::from_grid(&row) }, row)
}

fn work(usage: &Value) -> AttemptWork {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    let done = match usage["audio_s"].as_u64() {
        Some(seconds) => WorkDone::Audio { seconds: Decimal::from(seconds) },
        None => WorkDone::Tokens(TokenUsage {
            input: count("in"),
            cached: count("cached"),
            output: count("out"),
            ..TokenUsage::default()
        }),
    };
    AttemptWork::new(done, Duration::from_secs(1))
}

fn measured(value: &Value) -> Option<MeasuredEnergy> {
    let joules = decimal(&value["joules"])?;
    Some(MeasuredEnergy { joules, boundary: meter_boundary_from_name(value["boundary"].as_str().unwrap()) })
}

fn assert_same(id: &str, ours: &AnswerFootprint, row: &grid::GridRow, offer: &OfferFactors, vector: &Value) {
    let (impact, more) = (&vector["environment_impact"], &vector["disclosure"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(ours.energy_kwh.to_string(), text(&impact["energy_kwh"]), "{id} energy");
    assert_eq!(ours.carbon_g.to_string(), text(&impact["carbon_g_co2"]), "{id} carbon");
    assert_eq!(ours.water_l.to_string(), text(&impact["water_liters"]), "{id} water");
    assert_eq!(row.renewable_percent.to_string(), text(&impact["renewable_percent"]), "{id} renewable");
    assert_eq!(Some(offer.pue()), decimal(&impact["pue"]), "{id} pue");
    assert_eq!(ours.energy_kwh_low.to_string(), text(&more["energy_kwh_low"]), "{id} low");
    assert_eq!(ours.energy_kwh_high.to_string(), text(&more["energy_kwh_high"]), "{id} high");
    assert_eq!(ours.embodied_g.to_string(), text(&more["carbon_embodied_g"]), "{id} embodied");
    assert_eq!(row.g_per_kwh.to_string(), text(&more["grid_g_per_kwh"]), "{id} grid");
    assert!(text(&more["method"]).starts_with(ours.method.name()), "{id} method");
}

#[test]
fn every_vector_gives_its_energy_carbon_water_range_and_embodied_carbon() {
    let all = vectors();
    let rows = all["vectors"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for vector in rows {
        let inputs = &vector["inputs"];
        let (site, row) = site_and_row(&all, inputs["provider"].as_str().unwrap());
        let offer = OfferFactors::new(&card(&all, inputs["model"].as_str().unwrap()), &site).unwrap();
        let (work, measured) = (work(&inputs["usage"]), measured(&inputs["measured"]));
        let ours = offer.attempt_energy(&work, measured).footprint();
        let id = vector["id"].as_str().unwrap();
        assert_same(id, &ours, &row, &offer, vector);
        if let Some(billable) = decimal(&vector["billing_trace"]["billable_kwh"]) {
            assert_eq!(offer.billable_kwh(&work, measured), billable, "{id} billable");
        }
    }
}

#[test]
fn the_constants_are_those_of_the_vectors() {
    let all = vectors();
    let constant = |name: &str| decimal(&all["constants"][name]).unwrap();
    assert_eq!(constants::INPUT_TOKEN_JOULES_PER_BILLION, constant("K_IN"));
    assert_eq!(Decimal::from(constants::ATTENTION_DOUBLING_TOKENS), constant("L_HALF"));
    assert_eq!(constants::CACHED_TOKEN_ENERGY_SHARE, constant("C_CACHE"));
    assert_eq!((constants::HOST_FACTOR, constants::IDLE_FACTOR), (constant("HOST"), constant("IDLE")));
    assert_eq!(constants::EMBODIED_CO2E_GRAMS_PER_WH, constant("EMB_G_PER_WH_GPU"));
    assert_eq!(constants::THROUGHPUT_TIER_FACTOR, constant("BATCH_PHI"));
}

#[test]
fn the_vectors_cover_the_gpu_boundary_as_the_default_of_a_silent_meter() {
    let all = vectors();
    let (site, _) = site_and_row(&all, "example-se");
    let offer = OfferFactors::new(&card(&all, "chat-24b"), &site).unwrap();
    let joules = "40.433".parse().unwrap();
    let work = AttemptWork::from_tokens(TokenUsage::default(), Duration::ZERO);
    let silent = offer.attempt_energy(&work, Some(MeasuredEnergy { joules, boundary: None })).footprint();
    let reported = offer
        .attempt_energy(&work, Some(MeasuredEnergy { joules, boundary: Some(MeterBoundary::Gpu) }))
        .footprint();
    assert_eq!(silent.energy_kwh, reported.energy_kwh);
    assert!(silent.assumed.boundary && !reported.assumed.boundary);
    assert!(silent.energy_kwh_low < reported.energy_kwh_low, "the meter may be the building's");
}
