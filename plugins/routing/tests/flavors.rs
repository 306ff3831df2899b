//! Tests of flavor suffixes and their weights.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::ModelKind;
use penstock_routing::{BALANCED, ECO, FLAVORS, PRICE, SPEED, default_flavor, split_flavor};

#[test]
fn a_suffix_counts_only_if_it_is_a_flavor() {
    assert_eq!(split_flavor("llama-3:speed"), ("llama-3", Some(SPEED)));
    assert_eq!(split_flavor("llama-3"), ("llama-3", None));
    assert_eq!(split_flavor("org/model:7b"), ("org/model:7b", None));
    assert_eq!(split_flavor("org/model:7b:eco"), ("org/model:7b", Some(ECO)));
    assert_eq!(split_flavor("model:speed:latest"), ("model:speed:latest", None));
    assert_eq!(split_flavor("model:Speed"), ("model:Speed", None));
    assert_eq!(split_flavor("model:"), ("model:", None));
    assert_eq!(split_flavor(""), ("", None));
}

#[test]
fn every_flavor_of_the_contract_is_there_once() {
    let names: Vec<_> = FLAVORS.iter().map(|flavor| flavor.name()).collect();
    for name in ["balanced", "speed", "price", "eco", "batch"].iter().chain(&names) {
        assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        assert_eq!(split_flavor(&format!("m:{name}")).1.unwrap().name(), *name);
    }
}

#[test]
fn the_weights_of_a_flavor_add_up_to_one() {
    for flavor in FLAVORS {
        let weights = flavor.weights();
        assert!((weights.price + weights.speed + weights.environment - 1.0).abs() < 1e-9, "{flavor:?}");
    }
}

#[test]
fn only_batch_waits_in_the_queue_and_only_eco_limits_intensity() {
    let queued: Vec<_> =
        FLAVORS.iter().filter(|flavor| flavor.is_low_priority()).map(|flavor| flavor.name()).collect();
    assert_eq!(queued, ["batch"]);
    let limited: Vec<_> = FLAVORS
        .iter()
        .filter(|flavor| flavor.max_carbon_intensity_ratio().is_some())
        .map(|flavor| flavor.name())
        .collect();
    assert_eq!(limited, ["eco"]);
}

#[test]
fn embeddings_are_routed_by_price_by_default() {
    assert_eq!(default_flavor(ModelKind::Embedding), PRICE);
    assert_eq!(default_flavor(ModelKind::Chat), BALANCED);
    assert_eq!(default_flavor(ModelKind::Rerank), BALANCED);
}
