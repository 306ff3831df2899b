//! Batches whose lines together exceed the balance: each line waits for funds, and a line is rejected only if it
//! exceeds the balance by itself.

use crate::harness::batch_jobs::{batch, ended, line_with, results};
use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, completion, held, json_answer, plain};
use crate::harness::{Bench, Client, Provider, until, within};
use penstock::billing::report;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

const PREPAID: &str = "[billing]\ncredit = \"prepaid\"\n";
/// At 2 EUR per million tokens and batch price, the reserve of a line is 3.28 credits.
const MAX_TOKENS: u64 = 32_768;

async fn bench() -> (Provider, Running) {
    let provider = Provider::start().await;
    provider.always([vec![ScriptStep::Pause(Duration::from_millis(200))], plain("Hello")].concat());
    let running = Bench::new().settings(PREPAID).provider("p", &provider).start().await;
    (provider, running)
}

async fn grant(running: &Running, credits: &str) {
    let grant = json!({"account": "default", "credits": credits});
    let made = running.admin().post("/admin/credits/grant", &grant).await;
    assert_eq!(made.status, 201, "{}", made.text());
}

fn lines(count: usize) -> String {
    let body =
        json!({"model": "m", "max_tokens": MAX_TOKENS, "messages": [{"role": "user", "content": "Hi"}]});
    (0..count).map(|number| line_with(&format!("line-{number}"), body.clone()) + "\n").collect()
}

/// Runs a batch of the given number of lines; returns the number of answers and the results.
async fn completed(client: &Client, count: usize) -> (u64, BTreeMap<String, Value>) {
    let end = ended(client, &batch(client, &lines(count)).await).await;
    assert_eq!(end["status"], "completed", "{end}");
    let found = results(client, &end).await;
    assert_eq!(found.len(), count);
    (end["request_counts"]["completed"].as_u64().unwrap(), found)
}

/// Returns the number of attempts of lines that ended without a result and are retried.
async fn retried(running: &Running) -> u64 {
    let metrics = running.admin().get("/metrics").await.text();
    let name = "penstock_batch_results_total{outcome=\"retried\"} ";
    metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap()
}

/// Returns the number of charged requests; asserts that each is charged once.
async fn charges(running: &Running) -> usize {
    let ledger = &running.gateway.app.ledger;
    until("the ledger to be written", || {
        let state = ledger.durability_snapshot();
        running.gateway.app.in_flight_exchanges() == 0 && state.waiting == 0 && state.open == 0
    })
    .await;
    let (mut charged, mut after) = (Vec::new(), 0);
    while let Some((text, last)) = report::read_text_page(&ledger.store, &[after]).unwrap() {
        let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let entries = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        charged.extend(
            entries.filter(|entry| entry["act"] == "settle").map(|entry| entry["request"].to_string()),
        );
        after = last;
    }
    let count = charged.len();
    charged.sort();
    charged.dedup();
    assert_eq!(charged.len(), count, "charged twice");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_balance_of_three_reserves_is_enough_for_fifty_lines() {
    let (provider, running) = bench().await;
    grant(&running, "10").await;
    let (completed, found) = completed(&running.client, 50).await;
    let refused = found.values().find(|result| result["status_code"] != 200);
    assert_eq!((completed, refused), (50, None));
    assert_eq!((charges(&running).await, provider.calls()), (50, 50));
    // The bound is above the real limit: the provider counts a call until its task ends, which may be after the next
    // call has begun.
    assert!(provider.max_in_flight() <= 6, "{}", provider.max_in_flight());
    // 11 tokens in and 7 out at batch price.
    let balance = running.gateway.app.ledger.balance("default").credits;
    assert_eq!((balance.amount, balance.held), (10_000_000 - 50 * 1_250, 0));
    let refusals = retried(&running).await;
    assert!((1..=400).contains(&refusals), "{refusals}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_three_lines_at_once_is_enough_for_fifty() {
    let (provider, running) = bench().await;
    grant(&running, "1000").await;
    let client = running.key(&json!({"name": "small", "limits": {"budget_per_month": "10"}})).await;
    let (completed, found) = completed(&client, 50).await;
    let refused = found.values().find(|result| result["status_code"] != 200);
    assert_eq!((completed, refused), (50, None));
    assert_eq!((charges(&running).await, provider.calls()), (50, 50));
    // The bound is above the real limit: the provider counts a call until its task ends, which may be after the next
    // call has begun.
    assert!(provider.max_in_flight() <= 6, "{}", provider.max_in_flight());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_waits_for_funds_that_a_request_holds() {
    let (provider, running) = bench().await;
    grant(&running, "10").await;
    let go = Arc::new(Notify::new());
    provider.then(held(&go, "Hello"));
    let mut ask = running.ask();
    // Reserves nearly the complete balance: 45,000 tokens at 2 EUR per million are 9 credits.
    ask["max_tokens"] = json!(45_000);
    let (client, asked) = (running.client.clone(), ask.clone());
    let first = tokio::spawn(async move { client.post("/v1/chat/completions", &asked).await.status });
    provider.until_calls(1).await;
    let second = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!((second.status, second.header("retry-after")), (402, Some("1")), "{}", second.text());
    assert!(second.text().contains("while other requests are in flight"), "{}", second.text());
    let made = batch(&running.client, &lines(2)).await;
    within("the lines to come back", async { while retried(&running).await < 2 {} }).await;
    assert_eq!(provider.calls(), 1);
    go.notify_one();
    let end = ended(&running.client, &made).await;
    assert_eq!((first.await.unwrap(), &end["request_counts"]["completed"]), (200, &json!(2)), "{end}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_beyond_the_balance_is_rejected_at_once() {
    let (provider, running) = bench().await;
    grant(&running, "1").await;
    let (completed, found) = completed(&running.client, 20).await;
    assert_eq!((completed, provider.calls()), (0, 0));
    for result in found.values() {
        assert_eq!(result["status_code"], 402, "{result}");
        assert_eq!(result["response"]["error"]["code"], "BILLING_4001");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_wait_are_refused_once_nothing_is_held_and_too_little_is_left() {
    let (provider, running) = bench().await;
    grant(&running, "3.5").await;
    // The first answer uses the maximum number of tokens and costs 3.28 credits at batch price. The rest of the
    // balance is too small for another line.
    let mut dear = completion(&"x".repeat(usize::try_from(MAX_TOKENS).unwrap()));
    dear["usage"] =
        json!({"prompt_tokens": 10, "completion_tokens": MAX_TOKENS, "total_tokens": MAX_TOKENS + 10});
    provider.always([vec![ScriptStep::Pause(Duration::from_millis(50))], json_answer(200, &dear)].concat());
    let (completed, found) = completed(&running.client, 5).await;
    assert_eq!((completed, provider.calls()), (1, 1));
    assert_eq!(found.values().filter(|result| result["status_code"] == 402).count(), 4);
    running.stop().await;
}
