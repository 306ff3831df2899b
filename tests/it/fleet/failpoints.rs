//! Gateways that abort at a failpoint: a place in the code that `FAILPOINTS` in the environment of one gateway names.
//! Each failpoint lies between two steps of which a crash separates the second from the first. Afterwards the gateway
//! starts again in its folder, or another one evicts it; then each answer is charged once, and all leases return.

use super::charges::{ChargedAnswer, Charges, Outcome, try_ask};
use super::file_faults::restart_and_sweep;
use super::file_faults::stored::{Stored, records};
use super::gateways::{Fleet, ask, succeeded};
use crate::fleet_slices::until_reports_are_read;
use crate::harness::batch_jobs::{assert_charged, batch, ended, lines, results};
use crate::harness::script::{ScriptStep, held, plain};
use crate::harness::tcp_proxy::Network;
use crate::harness::{until, until_answered, within};
use crate::seaweedfs::SeaweedServer;
use penstock_object_storage::Bucket;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Credits of the account.
const GRANTED: &str = "10000";
/// Credits for more than a hundred requests.
const SOON_SPENT: &str = "1";
/// Each answer waits until its charge is durable. Dead gateways are evicted soon.
const LINES: &str = "claim = \"5s\"\nlease = \"6s\"\n[ledger]\nsync = \"answer\"";
/// Number of the signal of `std::process::abort`.
const ABORTED: Option<i32> = Some(6);

/// Fleet with one key and the charges of its answers.
struct Charged {
    fleet: Fleet,
    key: String,
    /// Credits of the account before its first charge.
    granted: &'static str,
    charges: Charges,
}

impl Charged {
    /// Starts a gateway for each item: its failpoints, or an empty string.
    async fn start(fleet: Fleet, failpoints: &[&str]) -> Self {
        Self::start_with(fleet, failpoints, GRANTED, json!({})).await
    }

    /// Starts gateways, with these credits and limits of the key.
    async fn start_with(mut fleet: Fleet, failpoints: &[&str], granted: &'static str, limits: Value) -> Self {
        for failpoints in failpoints {
            fleet.add_with(|command| set_failpoints(command, failpoints)).await;
        }
        fleet.until_all_are_known().await;
        fleet.grant(0, granted).await;
        let (key, _) = fleet.key(0, limits).await;
        fleet.until_everywhere(&key, 200).await;
        Self { fleet, key, granted, charges: Charges::default() }
    }

    /// Sends a request to a gateway; returns true if it is answered.
    async fn ask(&mut self, gateway: usize) -> bool {
        match try_ask(&self.fleet.at(gateway, &self.key)).await {
            Outcome::Answered(answer) => {
                self.charges.add(answer, true);
                return true;
            }
            Outcome::Refused(status) => assert!([402, 503].contains(&status), "{status}"),
            Outcome::Lost => self.charges.lost += 1,
            Outcome::NotSent => {}
        }
        false
    }

    /// Sends requests to a gateway, one after the other, until it has answered this number.
    async fn until_answers(&mut self, gateway: usize, count: usize) {
        for _ in 0..count {
            within("an answer", async { while !self.ask(gateway).await {} }).await;
        }
    }

    /// Sends requests to a gateway, one after the other, until the account has less than the price of one.
    async fn spend_all(&mut self, gateway: usize) {
        let client = self.fleet.at(gateway, &self.key);
        let micro_credits = |credits: f64| (credits * 1e6).round() as i64;
        within("the account to be spent", async {
            loop {
                let answer = ask(&client).await;
                if answer.status == 200 {
                    self.charges.add(ChargedAnswer::from_answer(&answer), true);
                    continue;
                }
                let required = answer.json()["error"]["details"]["required"].as_f64().map(micro_credits);
                let left = micro_credits(self.granted.parse().unwrap()) - *self.charges.bounds().start();
                if required.is_some_and(|required| required > left) {
                    return;
                }
            }
        })
        .await;
    }

    /// Sends requests to a gateway, one after the other, until it has aborted.
    async fn ask_until_aborted(&mut self, gateway: usize) {
        within("the abort", async {
            while self.fleet.gateways[gateway].ended().is_none() {
                self.ask(gateway).await;
            }
        })
        .await;
        until_aborted(&mut self.fleet, gateway).await;
    }

    /// Starts a gateway again in its folder, without failpoints.
    async fn restart(&mut self, gateway: usize) {
        self.fleet.gateways[gateway] = self.fleet.homes[gateway].run_again().await;
    }

    /// Removes an ended gateway whose folder is lost, and waits until the others have returned all of its leases.
    async fn until_evicted(&mut self, gateway: usize) {
        let parts = self.parts_of(gateway);
        self.fleet.gateways.remove(gateway);
        self.fleet.homes.remove(gateway);
        let are_returned = || self.fleet.server.query(&parts) == "0";
        until("the leases of a dead gateway to return", are_returned).await;
    }

    /// Returns the query that counts the leases of a gateway.
    fn parts_of(&self, gateway: usize) -> String {
        let identity = self.fleet.homes[gateway].storage().join("database/member");
        let identity = std::fs::read_to_string(&identity).unwrap();
        let member: u32 = identity.lines().next().unwrap().parse().unwrap();
        format!(
            "select count(*) from penstock.meta where substr(key, 1, 15) = 'fleet/part/'::bytea || \
             int4send({member})"
        )
    }

    /// Stops all gateways, and checks that each answer is charged once, that the ledger has `unanswered` other charges,
    /// and that the rest of the granted amount is available.
    async fn check(self, unanswered: usize) {
        let fleet = self.fleet.stop().await;
        let entries = fleet.exported_entries();
        self.charges.check(&entries).unwrap_or_else(|error| panic!("{error}"));
        let charged = entries.iter().filter(|entry| entry["act"] == "settle").count();
        assert_eq!(charged, self.charges.certain() + unanswered, "number of charges");
        check_money(&fleet, self.granted);
    }
}

/// Changes the command of a gateway so that it runs with failpoints. Another build of the binary may not have them.
fn set_failpoints(command: &mut Command, failpoints: &str) {
    let mut built = Command::new(env!("CARGO_BIN_EXE_penstock"));
    built.args(command.get_args()).stdin(Stdio::null()).env("FAILPOINTS", failpoints);
    *command = built;
}

/// Waits until a gateway has ended, and checks that it has aborted.
async fn until_aborted(fleet: &mut Fleet, gateway: usize) {
    let status = fleet.gateways[gateway].until_ended().await;
    assert_eq!(status.signal(), ABORTED, "{}", fleet.gateways[gateway].output());
}

/// Checks that no gateway has leases, that the pool of the account has what was not charged, and that no reservation
/// is open. All gateways must be stopped.
fn check_money(fleet: &Fleet, granted: &str) {
    let verified = fleet.homes[0].command(&["credits", "verify"]);
    succeeded(&verified);
    let verified = String::from_utf8(verified.stdout).unwrap();
    assert!(verified.contains(", 0 open reserves"), "{verified}");
    let entries = fleet.exported_entries();
    let settled = entries.iter().filter(|entry| entry["act"] == "settle");
    let granted = (granted.parse::<f64>().unwrap() * 1e6).round() as i64;
    let charged: i64 = settled.map(|entry| entry["amount"].as_i64().unwrap()).sum();
    let amounts =
        |prefix: &str| fleet.amounts(&format!("substr(key, 1, {}) = '{prefix}'::bytea", prefix.len()));
    assert_eq!(amounts("fleet/part/"), [0; 0], "leases of ended gateways");
    assert_eq!(amounts("fleet/pool/credits/"), [granted - charged], "{charged} of {granted} charged");
    assert!(amounts("fleet/pool/budget/").into_iter().all(|leased| leased == 0), "leased budgets");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_that_is_only_in_the_journal_is_written_once() {
    let fleet = Fleet::start_behind_network(0, LINES).await;
    let mut charged = Charged::start(fleet, &["", "journal_synced=40*off->return"]).await;
    charged.until_answers(0, 1).await;
    charged.until_answers(1, 1).await;
    charged.fleet.until_funded().await;
    let before = charged.fleet.provider.calls();
    charged.fleet.network.as_ref().unwrap().set(Network::Cut);
    charged.ask_until_aborted(1).await;
    let made = charged.fleet.provider.calls() - before;
    assert!(made >= 5, "{made} calls while the database was away");
    charged.fleet.network.as_ref().unwrap().set(Network::Open);
    charged.restart(1).await;
    charged.until_answers(1, 1).await;
    let answers = charged.charges.certain();
    // The process may have ended after it had journaled only the reservation of the last request.
    let calls = charged.fleet.provider.calls();
    assert!((answers..=answers + 1).contains(&calls), "{calls} calls, {answers} answers");
    charged.check(calls - answers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_charge_whose_commit_was_not_acknowledged_is_written_once() {
    let fleet = Fleet::start_with(0, LINES).await;
    let mut charged = Charged::start(fleet, &["", "charges_committed=5*off->return"]).await;
    charged.ask_until_aborted(1).await;
    assert_eq!(charged.charges.certain(), 5, "answers before the sixth commit");
    charged.restart(1).await;
    charged.until_answers(1, 3).await;
    charged.until_answers(0, 3).await;
    charged.check(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_whose_answers_are_lost_are_applied_once() {
    let fleet = Fleet::start_with(0, LINES).await;
    let lost = ["4*off->1*return"; 40].join("->");
    let failpoints = ["", &format!("commit_answer={lost}->off")];
    let mut charged = Charged::start_with(fleet, &failpoints, SOON_SPENT, json!({})).await;
    // A draw that was applied twice would leave credits in the lease that the gateway does not know.
    charged.spend_all(1).await;
    let answers = charged.charges.certain();
    eprintln!("{answers} answers");
    assert!(answers >= 100, "{answers} answers");
    charged.check(0).await;
}

/// Lets the first draw of the second gateway abort it, and checks that it was committed.
async fn abort_at_draw(failpoint: &str) -> Charged {
    let fleet = Fleet::start_with(0, LINES).await;
    let failpoint = format!("{failpoint}=return");
    let mut charged =
        Charged::start_with(fleet, &["", &failpoint], GRANTED, json!({"budget_per_day": 100})).await;
    charged.ask_until_aborted(1).await;
    assert_eq!(charged.fleet.provider.calls(), 0, "the draw precedes the call");
    assert_ne!(charged.fleet.server.query(&charged.parts_of(1)), "0", "the draw is committed");
    charged
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_of_credits_without_an_effect_in_memory_is_used_by_the_next_process() {
    let mut charged = abort_at_draw("credits_drawn").await;
    charged.restart(1).await;
    charged.until_answers(1, 1).await;
    let metrics = charged.fleet.admin(1).get("/metrics").await.text();
    // Only the budget may need a draw: the lease of the credits covers the request.
    let draws = metrics.lines().find_map(|line| line.strip_prefix("penstock_fleet_blocking_draws_total "));
    assert!(draws.unwrap().parse::<f64>().unwrap() <= 1.0, "{draws:?}");
    charged.until_answers(0, 1).await;
    charged.check(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_of_credits_without_an_effect_in_memory_returns_with_the_eviction() {
    let mut charged = abort_at_draw("credits_drawn").await;
    charged.until_evicted(1).await;
    charged.until_answers(0, 1).await;
    charged.check(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draw_of_a_budget_without_an_effect_in_memory_returns_with_the_eviction() {
    let mut charged = abort_at_draw("budget_drawn").await;
    charged.until_evicted(1).await;
    charged.until_answers(0, 1).await;
    charged.check(0).await;
}

/// Kills the second gateway, which has leases and an open reservation, and lets the first one abort while it evicts
/// it. Then the first one starts again in its folder, or a third gateway evicts both.
async fn abort_at_eviction(failpoint: &str, is_replaced: bool) {
    let fleet = Fleet::start_with(0, LINES).await;
    let mut charged = Charged::start(fleet, &[&format!("{failpoint}=return"), ""]).await;
    charged.until_answers(0, 2).await;
    charged.until_answers(1, 2).await;
    let go = Arc::new(Notify::new());
    charged.fleet.provider.then(held(&go, "late"));
    let client = charged.fleet.at(1, &charged.key);
    let open = tokio::spawn(async move { try_ask(&client).await });
    charged.fleet.provider.until_calls(5).await;
    let admin = charged.fleet.admin(1);
    let is_written = || async { admin.get("/status").await.json()["ledger"]["unwritten_bytes"] == json!(0) };
    until_answered("the reservation to be written", is_written).await;
    charged.fleet.gateways[1].signal("KILL");
    charged.fleet.gateways[1].until_ended().await;
    assert!(matches!(open.await.unwrap(), Outcome::Lost));
    until_aborted(&mut charged.fleet, 0).await;
    match is_replaced {
        true => charged.fleet.add().await,
        false => charged.restart(0).await,
    }
    charged.until_evicted(1).await;
    if is_replaced {
        charged.until_evicted(0).await;
    }
    charged.until_answers(0, 2).await;
    charged.fleet.gateways[0].wait_for_line("fleet_member_evicted").await;
    charged.check(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_was_not_begun_is_made_after_a_restart() {
    abort_at_eviction("eviction_due", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_has_returned_no_lease_is_completed_by_another_gateway() {
    abort_at_eviction("eviction_begun", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_has_returned_the_leases_is_completed_after_a_restart() {
    abort_at_eviction("leases_returned", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reservations_of_an_evicted_gateway_are_voided_after_a_restart() {
    abort_at_eviction("gateway_evicted", false).await;
}

/// Runs a batch until the gateway with the failpoint, the last one, aborts. Another gateway completes the batch, and the
/// aborted one starts again. Each line has one result and one charge, and the sweep removes what the abort left behind.
async fn abort_in_batch(failpoints: &[&str], count: usize) {
    let server = SeaweedServer::start();
    let bucket = Bucket::new(&server.options("it")).unwrap();
    let fleet = Fleet::start_with_bucket(&server, 0, "claim = \"5s\"\nlease = \"30s\"").await;
    let mut charged = Charged::start(fleet, failpoints).await;
    if failpoints.len() > 1 {
        until_reports_are_read(&charged.fleet.homes).await;
    }
    // Answers that come at once would leave no work for a second gateway.
    let slow = [vec![ScriptStep::Pause(Duration::from_millis(20))], plain("Hello")].concat();
    charged.fleet.provider.always(slow);
    let made = batch(&charged.fleet.at(0, &charged.key), &lines(count)).await;
    let last = failpoints.len() - 1;
    until_aborted(&mut charged.fleet, last).await;
    if last == 0 {
        charged.fleet.add().await;
    }
    let client = charged.fleet.at(1 - last, &charged.key);
    until_answered("the key", || async { client.get("/v1/models").await.status == 200 }).await;
    let end = ended(&client, &made).await;
    assert_eq!(end["request_counts"]["completed"], json!(count), "{end}");
    let found = results(&client, &end).await;
    assert_eq!(found.len(), count);
    charged.restart(last).await;
    let all = records(&client).await;
    let fleet = restart_and_sweep(charged.fleet).await;
    let is_swept = || Stored::read(&fleet, &bucket).check(&all).is_ok();
    until("the sweep", is_swept).await;
    assert_eq!(records(&client).await, all, "the sweep deletes no record");
    assert_eq!(results(&client, &end).await.len(), count, "after the sweep");
    let fleet = fleet.stop().await;
    check_money(&fleet, GRANTED);
    assert_charged(&fleet.homes[0], found.values());
}

#[tokio::test(flavor = "multi_thread")]
async fn results_that_are_stored_but_not_committed_are_charged_once() {
    abort_in_batch(&["output_stored=1*off->return"], 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_file_that_is_complete_but_not_committed_is_completed_once() {
    abort_in_batch(&["output_completed=return"], 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_segment_that_is_stored_but_not_committed_is_charged_once() {
    abort_in_batch(&["", "segment_stored=1*off->return"], 2_200).await;
}
