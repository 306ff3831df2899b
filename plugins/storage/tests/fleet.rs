//! The fleet protocol on the engines that run inside the test process: kills, pauses and commits with an unknown
//! outcome.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "support/flaky.rs"]
mod flaky;
#[path = "support/fleet_model.rs"]
mod fleet_model;

use fleet_model::{PlantedBug, World};
use penstock_storage::{Store, StoreOptions, open, open_in_memory};
use std::sync::Arc;

fn run(store: &Arc<dyn Store>, granted: i64, failing: u32, seed: u64, steps: u32) -> World {
    let mut world = World::new(&[store.clone(), store.clone(), store.clone()], granted, failing, seed);
    for step in 0..steps {
        world.step();
        world.check().unwrap_or_else(|why| panic!("seed {seed}, step {step}: {why}"));
    }
    world.settle();
    world.check().unwrap();
    world
}

#[test]
fn pools_are_whole_after_every_kill_pause_and_unknown_outcome() {
    let (mut kills, mut evicted) = (0, 0);
    for seed in 0..12 {
        let world = run(&open_in_memory(), 3_000, 30, seed, 800);
        let (charged, served) = world.totals();
        assert!(charged > 0 && charged <= served, "{charged} of {served}");
        kills += world.kills;
        evicted += world.evicted;
    }
    assert!(kills > 20 && evicted > 20, "{kills} {evicted}");
}

#[test]
fn without_failures_everything_served_is_charged() {
    for seed in 0..5 {
        let mut world = World::new(&[open_in_memory()], 2_000, 0, seed);
        for _ in 0..400 {
            world.step();
        }
        world.settle();
        world.check().unwrap();
        let (charged, served) = world.totals();
        assert!(charged <= served && (world.kills > 0 || charged == served), "{charged} of {served}");
    }
}

#[test]
fn the_embedded_store_holds_a_fleet_too() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }).unwrap();
    run(&store, 2_000, 30, 1, 150);
}

#[test]
fn the_check_finds_planted_faults() {
    let store = open_in_memory();
    let world = run(&store, 2_000, 0, 3, 300);
    world.plant_absolute_balance();
    assert!(world.check().unwrap_err().starts_with("acct0: "));
    let world = run(&open_in_memory(), 2_000, 0, 3, 300);
    world.plant_double_charge();
    assert!(world.check().unwrap_err().ends_with("is charged twice"));
}

#[test]
fn the_check_finds_replicas_without_a_fence_or_that_report_twice() {
    for bug in [PlantedBug::LostFence, PlantedBug::DoubleReport] {
        let store = open_in_memory();
        let mut world = World::new(&[store.clone(), store.clone(), store], 3_000, 30, 1);
        world.replicas.iter_mut().for_each(|replica| replica.bug = bug);
        let found = (0..3_000).find_map(|_| {
            world.step();
            world.check().err()
        });
        assert!(found.is_some(), "{bug:?}");
    }
}
