//! Promotion of a standby database that lacks the last commits: the gateways restart, and write the missing entries
//! again from their journals.

use super::charges::{Outcome, try_ask};
use super::gateways::{Fleet, served};
use super::outage::Served;
use super::rolling_upgrade::{interrupted, open_stream, stream_charge};
use crate::harness::{is_long_run, until_answered, within};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

const GATEWAYS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn commits_that_a_promoted_standby_lacks_are_written_again_once() {
    let mut fleet = Fleet::start_with(GATEWAYS, "[ledger]\nsync = \"answer\"").await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10000").await;
    let mut charged = Served::default();
    for gateway in 0..GATEWAYS {
        charged.add(&served(&fleet.at(gateway, &key)).await);
    }
    fleet.until_funded().await;
    let go = Arc::new(Notify::new());
    fleet.provider.streams(interrupted(&go));
    for round in 0..if is_long_run() { 10 } else { 1 } {
        fleet.server.copy();
        // Charges that only the lost server has: with `ledger.sync = "answer"`, each answer waits for the commit of
        // its charge there.
        for _ in 0..20 {
            for gateway in 0..GATEWAYS {
                charged.ask(&fleet.at(gateway, &key)).await;
            }
        }
        let mut streams = Vec::new();
        for _ in 0..3 {
            streams.push(open_stream(&fleet.at(0, &key)).await);
        }
        fleet.server.promote_copy();
        // Requests in flight may still finish; their charges are written to the journal.
        fleet.gateways[0].wait_for_line("restart_needed").await;
        for mut stream in streams {
            go.notify_one();
            charged.add(&stream_charge(within("the end of a stream", stream.finish()).await));
        }
        for gateway in 0..GATEWAYS {
            // The next commit of the gateway detects that the new server lacks earlier commits.
            let client = fleet.at(gateway, &key);
            while fleet.gateways[gateway].ended().is_none() {
                if let Outcome::Answered(answer) = try_ask(&client).await {
                    charged.add_charge(answer);
                }
            }
            assert!(fleet.gateways[gateway].output().contains("lacks commits"), "round {round}");
            fleet.gateways[gateway] = fleet.homes[gateway].run_again().await;
        }
        for gateway in 0..GATEWAYS {
            let admin = fleet.admin(gateway);
            let is_written =
                || async { admin.get("/status").await.json()["ledger"]["unwritten_bytes"] == json!(0) };
            until_answered("the journal to be written", is_written).await;
            charged.add(&served(&fleet.at(gateway, &key)).await);
        }
    }
    let fleet = fleet.stop().await;
    charged.assert_charged(&fleet);
}
