//! Every published vector, to the digit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_contract::{Boundary, Kind, Measured, Usage};
use penstock_footprint::{
    Done, EnergyCard, Footprint, Method, Place, Prepared, Work, boundary_named, grid, law,
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

fn kind(name: &str) -> Kind {
    match name.split('-').next().unwrap() {
        "embed" => Kind::Embedding,
        "rerank" => Kind::Rerank,
        "flux.1" => Kind::Image,
        "whisper" => Kind::Transcription,
        _ => Kind::Chat,
    }
}

fn card(all: &Value, name: &str) -> EnergyCard {
    let model = &all["models"][name];
    EnergyCard {
        active_params_b: decimal(&model["active"]),
        joules_per_output_token: decimal(&model["e_out"]),
        joules_per_image: decimal(&model["j_image"]),
        image_steps: model["steps"].as_str().map(|steps| steps.parse().unwrap()),
        joules_per_audio_second: decimal(&model["j_audio_s"]),
        method: Method::named(model["method"].as_str().unwrap()),
        ..EnergyCard::new(kind(name))
    }
}

/// The place, and its grid's row.
fn place(all: &Value, name: &str) -> (Place, grid::Row) {
    let provider = &all["providers"][name];
    let table = grid::table(include_str!("../../../conf/grid/eu-2025.csv")).unwrap();
    let row = table.get(provider["location"].as_str().unwrap()).unwrap().clone();
    let (pue, wue) = (decimal(&provider["pue"]), decimal(&provider["wue"]));
    (Place { pue, wue, bills_measured: true, ..Place::on(&row) }, row)
}

fn work(usage: &Value) -> Work {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    let done = match usage["audio_s"].as_u64() {
        Some(seconds) => Done::Audio { seconds: Decimal::from(seconds) },
        None => Done::Tokens(Usage {
            input: count("in"),
            cached: count("cached"),
            output: count("out"),
            ..Usage::default()
        }),
    };
    Work::new(done, Duration::from_secs(1))
}

fn measured(value: &Value) -> Option<Measured> {
    let joules = decimal(&value["joules"])?;
    Some(Measured { joules, boundary: boundary_named(value["boundary"].as_str().unwrap()) })
}

fn assert_same(id: &str, ours: &Footprint, row: &grid::Row, offer: &Prepared, vector: &Value) {
    let (impact, more) = (&vector["environment_impact"], &vector["disclosure"]);
    let told = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(ours.energy_kwh.to_string(), told(&impact["energy_kwh"]), "{id} energy");
    assert_eq!(ours.carbon_g.to_string(), told(&impact["carbon_g_co2"]), "{id} carbon");
    assert_eq!(ours.water_l.to_string(), told(&impact["water_liters"]), "{id} water");
    assert_eq!(row.renewable_percent.to_string(), told(&impact["renewable_percent"]), "{id} renewable");
    assert_eq!(Some(offer.pue()), decimal(&impact["pue"]), "{id} pue");
    assert_eq!(ours.energy_kwh_low.to_string(), told(&more["energy_kwh_low"]), "{id} low");
    assert_eq!(ours.energy_kwh_high.to_string(), told(&more["energy_kwh_high"]), "{id} high");
    assert_eq!(ours.embodied_g.to_string(), told(&more["carbon_embodied_g"]), "{id} embodied");
    assert_eq!(row.g_per_kwh.to_string(), told(&more["grid_g_per_kwh"]), "{id} grid");
    assert!(told(&more["method"]).starts_with(ours.method.name()), "{id} method");
}

#[test]
fn every_vector_gives_its_energy_carbon_water_range_and_embodied_carbon() {
    let all = vectors();
    let rows = all["vectors"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for vector in rows {
        let inputs = &vector["inputs"];
        let (place, row) = place(&all, inputs["provider"].as_str().unwrap());
        let offer = Prepared::new(&card(&all, inputs["model"].as_str().unwrap()), &place).unwrap();
        let (work, measured) = (work(&inputs["usage"]), measured(&inputs["measured"]));
        let ours = offer.attempt(&work, measured).footprint();
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
    assert_eq!(law::INPUT_JOULES_PER_B, constant("K_IN"));
    assert_eq!(Decimal::from(law::CONTEXT_TOKENS), constant("L_HALF"));
    assert_eq!(law::CACHED_SHARE, constant("C_CACHE"));
    assert_eq!((law::HOST, law::IDLE), (constant("HOST"), constant("IDLE")));
    assert_eq!(law::EMBODIED_G_PER_WH, constant("EMB_G_PER_WH_GPU"));
    assert_eq!(law::THROUGHPUT_TIER, constant("BATCH_PHI"));
}

#[test]
fn the_vectors_cover_the_gpu_boundary_as_the_default_of_a_silent_meter() {
    let all = vectors();
    let (place, _) = place(&all, "example-se");
    let offer = Prepared::new(&card(&all, "chat-24b"), &place).unwrap();
    let joules = "40.433".parse().unwrap();
    let work = Work::tokens(Usage::default(), Duration::ZERO);
    let silent = offer.attempt(&work, Some(Measured { joules, boundary: None })).footprint();
    let told = offer.attempt(&work, Some(Measured { joules, boundary: Some(Boundary::Gpu) })).footprint();
    assert_eq!(silent.energy_kwh, told.energy_kwh);
    assert!(silent.assumed.boundary && !told.assumed.boundary);
    assert!(silent.energy_kwh_low < told.energy_kwh_low, "the meter may be the building's");
}
