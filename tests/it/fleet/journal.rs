//! Journal of a fleet member: gateways that are killed while the database is unreachable lose no charge of an answer.

use super::gateways::{Fleet, served};
use super::outage::Served;
use crate::harness::tcp_proxy::Network;
use crate::harness::{is_long_run, until_answered};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn gateways_killed_while_the_database_is_away_lose_and_double_no_charge() {
    let mut fleet = Fleet::start_behind_network(2, "[ledger]\nsync = \"answer\"").await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10000").await;
    let clients = [fleet.at(0, &key), fleet.at(1, &key)];
    let mut answers = Served::default();
    for client in &clients {
        answers.add(&served(client).await);
    }
    for network in [Network::Silent, Network::Cut] {
        fleet.until_funded().await;
        fleet.network.as_ref().unwrap().set(network);
        for (gateway, client) in clients.iter().enumerate() {
            answers.until_noticed(&fleet, gateway, client).await;
            for _ in 0..if is_long_run() { 1_000 } else { 40 } {
                answers.ask(client).await;
            }
        }
        for gateway in &mut fleet.gateways {
            gateway.signal("KILL");
            gateway.until_ended().await;
        }
        fleet.network.as_ref().unwrap().set(Network::Open);
        for (gateway, client) in clients.iter().enumerate() {
            fleet.gateways[gateway] = fleet.homes[gateway].run().await;
            let admin = fleet.admin(gateway);
            let is_written =
                || async { admin.get("/status").await.json()["ledger"]["unwritten_bytes"] == json!(0) };
            until_answered("the journal to be written", is_written).await;
            let metrics = admin.get("/metrics").await.text();
            let replayed =
                metrics.lines().find_map(|line| line.strip_prefix("penstock_fleet_journal_replayed_total "));
            assert!(replayed.unwrap().parse::<f64>().unwrap() >= 40.0, "{replayed:?}");
            answers.add(&served(client).await);
        }
    }
    let fleet = fleet.stop().await;
    answers.assert_charged(&fleet);
}
