//! Published pricing vectors, compared exactly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::TokenUsage;
use penstock_pricing::{
    BilledWork, BillingMode, DEFAULT_EUR_PER_CREDIT, PayingWallet, RequestCharge, Tariff, compute_charge,
};
use rust_decimal::Decimal;
use serde_json::Value;

fn decimal(value: &Value) -> Option<Decimal> {
    value.as_str().map(|text| text.parse().unwrap())
}

/// Tariff of a test vector. The vectors state prices in credits, the tariff has them in EUR.
fn tariff(model: &Value, eur_per_credit: Decimal) -> Tariff {
    let eur = |name: &str| decimal(&model[name]).map(|credits| credits * eur_per_credit);
    let energy = model["bill"] == "energy";
    let fixed = Tariff::default();
    Tariff {
        input: eur("p_in"),
        cached_input: eur("p_cached"),
        output: eur("p_out"),
        minute: eur("p_min"),
        billing: if energy { BillingMode::Energy } else { BillingMode::Credits },
        eur_per_kwh: decimal(&model["eur_kwh"]).unwrap_or(fixed.eur_per_kwh),
        ..fixed
    }
}

fn sold(usage: &Value) -> BilledWork {
    let count = |name: &str| usage[name].as_u64().unwrap_or(0);
    match usage["audio_s"].as_u64() {
        Some(seconds) => BilledWork::Audio(Decimal::from(seconds)),
        None => BilledWork::Tokens(TokenUsage {
            input: count("in"),
            cached: count("cached"),
            output: count("out"),
            ..TokenUsage::default()
        }),
    }
}

fn of(all: &Value, vector: &Value) -> RequestCharge {
    let inputs = &vector["inputs"];
    let eur_per_credit = decimal(&all["constants"]["EUR_PER_CREDIT"]).unwrap();
    assert_eq!(eur_per_credit, DEFAULT_EUR_PER_CREDIT);
    let tariff = tariff(&all["models"][inputs["model"].as_str().unwrap()], eur_per_credit);
    let wallet =
        if tariff.billing == BillingMode::Energy { PayingWallet::Energy } else { PayingWallet::Credits };
    if inputs["failed"] == true {
        return RequestCharge::zero(wallet);
    }
    let kwh = decimal(&vector["environment_impact"]["energy_kwh"]).unwrap();
    let batch = inputs["batch"] == true;
    compute_charge(&tariff, &sold(&inputs["usage"]), wallet, batch, kwh, eur_per_credit)
}

#[test]
fn every_vector_gives_its_charge() {
    let text = include_str!("../../footprint/testdata/impact_vectors.json");
    let all: Value = serde_json::from_str(text).unwrap();
    let rows = all["vectors"].as_array().unwrap();
    assert_eq!(rows.len(), 8);
    for vector in rows {
        let (ours, cost, id) = (of(&all, vector), &vector["billing_cost"], &vector["id"]);
        assert_eq!(Some(ours.energy_eur), decimal(&cost["energy"]), "{id} energy");
        assert_eq!(Some(ours.credits.credits()), decimal(&cost["credits"]), "{id} credits");
        assert_eq!(ours.paid_with.name(), cost["paid_with"], "{id}");
        assert_eq!(Some(ours.eur), decimal(&vector["billing_trace"]["eur_total"]), "{id} total");
    }
}
