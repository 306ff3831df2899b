//! A batch in slices on PostgreSQL: two gateways run it at the same time, one of them is killed, and each line has one
//! result and one charge.

use crate::fleet_batches::Pair;
use crate::harness::batch_jobs::{assert_charged, batch, ended, lines, results, retrieve};
use crate::harness::process::{Home, complaint};
use crate::harness::script::{ScriptStep, plain};
use crate::harness::{is_long_run, until_answered};
use crate::seaweedfs::SeaweedServer;
use serde_json::json;
use std::time::Duration;

/// Maximum number of lines in flight at both gateways together.
const IN_FLIGHT: usize = 32;

/// Returns the number of results that a gateway has committed.
async fn committed(pair: &Pair, gateway: usize) -> usize {
    let text = pair.homes[gateway].admin().get("/metrics").await.text();
    let completed = "penstock_batch_results_total{outcome=\"completed\"} ";
    text.lines().find_map(|line| line.strip_prefix(completed)?.parse().ok()).unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_batch_runs_on_both_gateways_and_is_finished_when_one_of_them_is_killed() {
    let count = if is_long_run() { 20_000 } else { 3_000 };
    run_and_kill(Pair::start().await, count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_results_of_slices_reach_the_output_file_in_a_bucket() {
    let server = SeaweedServer::start();
    run_and_kill(Pair::start_with(Some(&server), "").await, 2_200).await;
}

/// Returns the line of a metric of a gateway.
async fn metric_line(home: &Home, name: &str) -> Option<String> {
    let text = home.admin().get("/metrics").await.text();
    text.lines().find(|line| line.starts_with(name)).map(str::to_owned)
}

/// Waits until both gateways have read each other's report: they do not divide a batch that starts earlier. A report is
/// written and read in each heartbeat, whose duration changes the metric.
pub async fn until_reports_are_read(homes: &[Home]) {
    for home in homes {
        let is_live = async || metric_line(home, "penstock_fleet_members 2").await.is_some();
        until_answered("both gateways to be live", is_live).await;
    }
    for home in homes.iter().chain(homes) {
        let last = metric_line(home, "penstock_fleet_heartbeat_seconds ").await;
        let is_next = async || metric_line(home, "penstock_fleet_heartbeat_seconds ").await != last;
        until_answered("a heartbeat", is_next).await;
    }
}

async fn run_and_kill(mut pair: Pair, count: usize) {
    until_reports_are_read(&pair.homes).await;
    // If every answer came at once, one gateway could run all slices before the other one looks for work.
    let slow = [vec![ScriptStep::Pause(Duration::from_millis(20))], plain("Hello")].concat();
    pair.provider.always(slow);
    let made = batch(&pair.at(0), &lines(count)).await;
    let do_both_run = async || committed(&pair, 0).await > 100 && committed(&pair, 1).await > 100;
    until_answered("results of both gateways", do_both_run).await;
    // This gateway divided the batch: it runs a slice, and appends the results of all slices to the output file.
    let killed = usize::from(pair.gateways[1].output().contains("batch_divided"));
    pair.gateways[killed].signal("KILL");
    pair.gateways[killed].until_ended().await;
    let other = pair.at(1 - killed);
    assert_eq!(retrieve(&other, &made).await["status"], "in_progress", "there was nothing left to continue");
    let end = ended(&other, &made).await;
    assert_eq!((&end["status"], &end["request_counts"]["completed"]), (&json!("completed"), &json!(count)));
    let found = results(&other, &end).await;
    assert_eq!(found.len(), count);
    let calls = pair.provider.calls();
    assert!(calls <= count + IN_FLIGHT, "{calls} calls for {count} lines");
    pair.gateways[killed] = pair.homes[killed].run().await;
    let again = results(&pair.at(killed), &end).await;
    assert_eq!(again.len(), count, "the restarted gateway reads the same file");
    let files = pair.at(killed).get("/v1/files").await.json();
    assert_eq!(files["data"].as_array().unwrap().len(), 2, "no segment is listed");
    pair.stop().await;
    assert_charged(&pair.homes[0], found.values());
    let proof = pair.homes[0].command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}
