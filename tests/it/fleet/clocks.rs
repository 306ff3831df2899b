//! A member whose clock is an hour fast: both members report the difference, and limits, balances and leases are
//! right nevertheless.

use super::gateways::{Fleet, ask, served};
use crate::harness::{Client, until, until_answered};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio::task::JoinSet;

/// Seconds by which the clock of one member is fast.
const CLOCK_OFFSET: u64 = 3_600;
/// C source of a preloaded library that sets the calendar clock of its process forward.
const SHIM: &str = "
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, id, now);
    if (result == 0 && id == CLOCK_REALTIME) now->tv_sec += 3600;
    return result;
}
";

/// Compiles the library with the C compiler.
fn shim(into: &Path) -> PathBuf {
    let (source, library) = (into.join("clock.c"), into.join("clock.so"));
    std::fs::write(&source, SHIM).unwrap();
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
    assert!(compiled.expect("this test needs a C compiler named cc").success());
    library
}

/// Clock differences in seconds, from the warnings `fleet_clock_differs` in a gateway's log.
fn warnings(log: &str) -> Vec<u64> {
    let lines = log.lines().filter(|line| line.contains("fleet_clock_differs"));
    let seconds = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["seconds"].as_str().unwrap_or_else(|| panic!("{line}")).parse().unwrap()
    };
    lines.map(seconds).collect()
}

async fn metric(fleet: &Fleet, gateway: usize, name: &str) -> Option<f64> {
    let metrics = fleet.admin(gateway).get("/metrics").await.text();
    let line = metrics.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Sends requests to all gateways at the same time; returns the number of those that pass.
async fn passed(clients: Vec<Client>) -> usize {
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(async move {
            let mut passed = 0;
            for _ in 0..60 {
                passed += usize::from(ask(&client).await.status == 200);
            }
            passed
        });
    }
    tasks.join_all().await.into_iter().sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_with_another_clock_is_reported_and_shares_limits_and_balances() {
    let folder = tempfile::tempdir().unwrap();
    let library = shim(folder.path());
    let mut fleet = Fleet::start_with(1, "claim = \"5s\"\nlease = \"8s\"").await;
    let set_forward = |command: &mut Command| {
        command.env("LD_PRELOAD", library);
    };
    fleet.add_with(set_forward).await;
    fleet.until_all_are_known().await;
    for gateway in &fleet.gateways {
        gateway.wait_for_line("fleet_clock_differs").await;
    }
    fleet.grant(1, "100").await;
    let (key, _) = fleet.key(1, json!({})).await;
    let (limited, _) = fleet.key(0, json!({"requests_per_minute": 60})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.until_everywhere(&limited, 200).await;
    for gateway in 0..2 {
        served(&fleet.at(gateway, &key)).await;
    }
    let begun = std::time::Instant::now();
    let passed = passed((0..2).map(|gateway| fleet.at(gateway, &limited)).collect()).await;
    let refilled = begun.elapsed().as_secs() as usize + 1;
    assert!((40..=63 + refilled).contains(&passed), "{passed} of 60 and {refilled}");
    let is_charged =
        || async { fleet.balance(0).await < 100.0 && fleet.balance(0).await == fleet.balance(1).await };
    until_answered("the charges to be written", is_charged).await;
    for gateway in 0..2 {
        assert_eq!(metric(&fleet, gateway, "penstock_fleet_members ").await, Some(2.0));
        assert_eq!(metric(&fleet, gateway, "penstock_fleet_evictions_total ").await, Some(0.0));
        let log = || fleet.gateways[gateway].output();
        until("a warning", || !warnings(&log()).is_empty()).await;
        let warnings = warnings(&log());
        assert!(warnings.len() == 1 && warnings[0].abs_diff(CLOCK_OFFSET) < 30, "{warnings:?}");
    }
    fleet.verify().await;
}
