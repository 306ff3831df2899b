//! Outage of a fleet's database: requests that continue, requests that are refused, and the ledger afterwards.

use super::charges::ChargedAnswer;
use super::gateways::{Fleet, ask, served};
use crate::harness::tcp_proxy::Network;
use crate::harness::{Answer, Client, batch_jobs, is_long_run, until, until_answered};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Time from the start of an outage after which no request waits for the database.
const FAIL_FAST: Duration = Duration::from_secs(20);
/// Maximum duration of a refusal after that time.
const REFUSAL: Duration = Duration::from_secs(2);
/// Time between the requests of a loop that ends by a condition: a fast machine would otherwise spend the leases, which
/// last for some thousand requests.
const REQUEST_INTERVAL: Duration = Duration::from_millis(50);

/// Requests of one test, and their answers.
#[derive(Default)]
pub struct Served {
    pub requests: Vec<String>,
    micro_credits: i64,
}

impl Served {
    pub async fn ask(&mut self, client: &Client) {
        let answer = ask(client).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        self.add(&answer);
    }

    /// Sends a request and waits until the next one is due.
    async fn ask_at_interval(&mut self, client: &Client) {
        let sent = Instant::now();
        self.ask(client).await;
        until_next_is_due(sent).await;
    }

    pub fn add(&mut self, answer: &Answer) {
        self.add_charge(ChargedAnswer::from_answer(answer));
    }

    pub fn add_charge(&mut self, answer: ChargedAnswer) {
        self.micro_credits += answer.micro_credits;
        self.requests.push(answer.request);
    }

    /// Sends requests until the gateway has noticed the outage; each answer is 200.
    pub async fn until_noticed(&mut self, fleet: &Fleet, gateway: usize, client: &Client) {
        let begun = Instant::now();
        loop {
            self.ask_at_interval(client).await;
            let ready = fleet.admin(gateway).get("/readyz").await;
            assert_eq!(ready.status, 200, "{}", ready.text());
            if ready.text().contains("the database cannot be reached") {
                return;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "nobody noticed");
        }
    }

    /// Checks that each answered request is charged once, and that there are no other charges.
    pub fn assert_charged(&self, fleet: &Fleet) {
        let entries = fleet.exported_entries().into_iter();
        let settled: Vec<Value> = entries.filter(|entry| entry["act"] == "settle").collect();
        let amounts = settled.iter().map(|entry| entry["amount"].as_i64().unwrap());
        assert_eq!((settled.len(), amounts.sum::<i64>()), (self.requests.len(), self.micro_credits));
        let requests = |all: &[String]| all.iter().cloned().collect::<std::collections::BTreeSet<_>>();
        let charged: Vec<String> =
            settled.iter().map(|entry| entry["request"].as_str().unwrap().to_owned()).collect();
        assert_eq!(requests(&charged), requests(&self.requests));
    }
}

/// Waits until the request after one that was sent at this time is due.
async fn until_next_is_due(sent: Instant) {
    until("the next request to be due", || sent.elapsed() >= REQUEST_INTERVAL).await;
}

/// Checks that a request that needs the database is refused soon, with the header `retry-after`.
async fn assert_refused(asked: impl Future<Output = Answer>) {
    let begun = Instant::now();
    let answer = asked.await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert_eq!(answer.header("retry-after"), Some("5"), "{}", answer.text());
    assert!(begun.elapsed() < REFUSAL, "{:?}", begun.elapsed());
}

async fn lose_and_return(network: Network) {
    let fleet = Fleet::start_behind_network(2, "").await;
    let (key, id) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10000").await;
    let clients = [fleet.at(0, &key), fleet.at(1, &key)];
    let mut answers = Served::default();
    for client in &clients {
        answers.add(&served(client).await);
    }
    fleet.until_funded().await;
    let file = batch_jobs::uploaded(&clients[0], &batch_jobs::lines(2)).await;

    fleet.network.as_ref().unwrap().set(network);
    let lost = Instant::now();
    for (gateway, client) in clients.iter().enumerate() {
        answers.until_noticed(&fleet, gateway, client).await;
    }
    while lost.elapsed() < FAIL_FAST {
        answers.ask_at_interval(&clients[0]).await;
    }
    for _ in 0..if is_long_run() { 2_000 } else { 50 } {
        for client in &clients {
            answers.ask(client).await;
        }
    }
    for (gateway, client) in clients.iter().enumerate() {
        let admin = fleet.admin(gateway);
        assert_refused(admin.post("/admin/keys", &json!({"name": "n"}))).await;
        assert_refused(admin.post(&format!("/admin/keys/{id}/revoke"), &json!({}))).await;
        assert_refused(batch_jobs::upload(client, &batch_jobs::lines(2))).await;
        assert_refused(batch_jobs::create(client, &file)).await;
        assert_refused(client.get("/v1/batches")).await;
        assert_eq!(admin.get("/healthz").await.status, 200);
        let status = admin.get("/status").await.json();
        assert_eq!(status["degraded_because"], "the database cannot be reached", "{status}");
        answers.ask(client).await;
    }

    fleet.network.as_ref().unwrap().set(Network::Open);
    for (gateway, client) in clients.iter().enumerate() {
        let admin = fleet.admin(gateway);
        let is_written = || async {
            let status = admin.get("/status").await.json();
            status["ledger"]["unwritten_bytes"] == json!(0) && status["degraded_because"] == Value::Null
        };
        until_answered("the charges to be written", is_written).await;
        answers.ask(client).await;
        let made = admin.post("/admin/keys", &json!({"name": "n"})).await;
        assert!(made.status < 300, "{}", made.text());
    }
    let fleet = fleet.stop().await;
    answers.assert_charged(&fleet);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_database_stops_only_what_needs_it_and_charges_are_written_later() {
    lose_and_return(Network::Silent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_refuses_connections_stops_only_what_needs_it() {
    lose_and_return(Network::Cut).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_and_known_keys_end_when_the_database_stays_away() {
    let fleet = Fleet::start_behind_network(1, "claim = \"5s\"\nlease = \"8s\"\nstale = \"20s\"").await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10000").await;
    let client = fleet.at(0, &key);
    let mut answers = Served::default();
    answers.add(&served(&client).await);
    fleet.until_funded().await;
    fleet.network.as_ref().unwrap().set(Network::Silent);
    let begun = Instant::now();
    // Leased credits may be used for three quarters of the lease time after the last heartbeat.
    let refusal = until_refused(&client, &mut answers).await;
    assert!(refusal.text().contains("balance"), "{}", refusal.text());
    let leased = begun.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(12)).contains(&leased), "{leased:?}");
    let admin = fleet.admin(0);
    let ready = admin.get("/readyz").await;
    assert!(ready.status == 200 && ready.text().contains("leased credits"), "{}", ready.text());
    let is_unknown = || async {
        let answer = client.get("/v1/models").await;
        assert!([200, 503].contains(&answer.status), "{}", answer.text());
        answer.status == 503 && answer.text().contains("API keys")
    };
    until_answered("the keys to count as unknown", is_unknown).await;
    assert_eq!(admin.get("/readyz").await.status, 503);
    let metrics = admin.get("/metrics").await.text();
    assert!(metrics.contains("\npenstock_ready 0\n") && metrics.contains("\npenstock_draining 0\n"));
    assert_eq!(admin.get("/healthz").await.status, 200);
    fleet.network.as_ref().unwrap().set(Network::Open);
    answers.add(&served(&client).await);
    let is_ready = || async { admin.get("/readyz").await.status == 200 };
    until_answered("the gateway to be ready again", is_ready).await;
    let fleet = fleet.stop().await;
    answers.assert_charged(&fleet);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_database_delays_a_request_and_does_not_refuse_it() {
    let fleet = Fleet::start_behind_network(2, "").await;
    let (key, _) = fleet.key(0, json!({})).await;
    fleet.until_everywhere(&key, 200).await;
    fleet.grant(0, "10000").await;
    let client = fleet.at(1, &key);
    let network = fleet.network.as_ref().unwrap();
    let mut answers = Served::default();
    network.set(Network::Silent);
    let begun = Instant::now();
    let asked = tokio::spawn({
        let client = client.clone();
        async move { ask(&client).await }
    });
    until("a second without the database", || begun.elapsed() >= Duration::from_secs(1)).await;
    assert!(!asked.is_finished(), "nothing was leased, so the request waits");
    network.set(Network::Open);
    let answer = asked.await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answers.add(&answer);
    let fleet = fleet.stop().await;
    answers.assert_charged(&fleet);
}

/// Sends requests until one is refused with 503; returns that answer.
async fn until_refused(client: &Client, answers: &mut Served) -> Answer {
    let begun = Instant::now();
    loop {
        let sent = Instant::now();
        let answer = ask(client).await;
        if answer.status == 503 {
            assert_eq!(answer.header("retry-after"), Some("5"), "{}", answer.text());
            return answer;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
        answers.add(&answer);
        until_next_is_due(sent).await;
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was refused");
    }
}
