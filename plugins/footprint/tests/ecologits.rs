//! The formula gives the published results of EcoLogits 0.11.3, to 1e-9.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_footprint::ecologits::{self, AnswerTiming, EcologitsImpacts, EcologitsModel, EcologitsSite};
use serde_json::Value;

/// Parses `"1.5"`, `1.5` or `"1..2"` as (low, high); `None` if empty.
fn span(value: &Value) -> Option<(f64, f64)> {
    if let Some(number) = value.as_f64() {
        return Some((number, number));
    }
    let text = value.as_str().unwrap();
    if text.is_empty() {
        return None;
    }
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    Some((low.parse().unwrap(), high.parse().unwrap()))
}

fn end(value: &Value, high: bool) -> Option<f64> {
    span(value).map(|(low, top)| if high { top } else { low })
}

fn by_law(row: &Value, high: bool) -> EcologitsImpacts {
    let at = |name: &str| end(&row[name], high);
    let model = EcologitsModel {
        active_b: at("active_b").unwrap(),
        total_b: at("total_b").unwrap(),
        weight_bits: at("quant_bits").unwrap(),
        batch_size: at("batch").unwrap(),
    };
    let timing = AnswerTiming {
        cap: at("request_latency_s"),
        tokens_per_second: at("tps"),
        first_token: at("ttft").unwrap_or(0.0),
    };
    let site = EcologitsSite {
        pue: at("pue").unwrap(),
        water_on_site: at("wue_onsite").unwrap(),
        water_off_site: at("mix_wue_l").unwrap(),
        kg_per_kwh: at("mix_gwp_kg").unwrap(),
    };
    ecologits::compute_impacts(&model, at("output_tokens").unwrap(), &timing, &site)
}

fn close(id: &str, what: &str, ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 1e-9 * theirs.abs(), "{id} {what}: {ours} is not {theirs}");
}

#[test]
fn every_golden_is_met_at_both_ends_of_its_range() {
    let goldens: Value = serde_json::from_str(include_str!("../testdata/ecologits_golden.json")).unwrap();
    let rows = goldens["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    for row in rows {
        let id = row["id"].as_str().unwrap();
        for high in [false, true] {
            let ours = by_law(row, high);
            let theirs = |name: &str| end(&row[name], high).unwrap();
            close(id, "gpus", ours.gpus, theirs("gpus"));
            close(id, "energy", ours.energy_kwh, theirs("energy_kwh"));
            close(id, "usage", ours.usage_kg, theirs("gwp_usage_kg"));
            close(id, "embodied", ours.embodied_kg, theirs("gwp_embodied_kg"));
            close(id, "total", ours.usage_kg + ours.embodied_kg, theirs("gwp_total_kg"));
            close(id, "water", ours.water_l, theirs("water_l"));
        }
    }
}

#[test]
fn a_size_becomes_joules_with_six_decimals() {
    let model = EcologitsModel { active_b: 24.0, total_b: 24.0, weight_bits: 16.0, batch_size: 64.0 };
    assert_eq!(ecologits::joules_per_output_token(&model).unwrap().to_string(), "0.195103");
    let four_gpus = EcologitsModel { total_b: 117.0, ..model };
    assert_eq!(ecologits::joules_per_output_token(&four_gpus).unwrap().to_string(), "0.780411");
}

#[test]
fn a_size_that_is_none_gives_nothing() {
    let model = EcologitsModel { active_b: 8.0, total_b: 8.0, weight_bits: 16.0, batch_size: 64.0 };
    for invalid in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(ecologits::joules_per_output_token(&EcologitsModel { active_b: invalid, ..model }), None);
        assert_eq!(ecologits::joules_per_output_token(&EcologitsModel { total_b: invalid, ..model }), None);
    }
}
