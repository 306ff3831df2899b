//! Repeated kills during a large batch, and cancels: each line is sent once, except those in flight at a kill, and no
//! provider is called after a cancel.

use crate::harness::batch_jobs::{assert_charged, batch, cancel, ended, lines, results, retrieve};
use crate::harness::process::{Home, Process, catalogue, complaint};
use crate::harness::{Client, Provider, is_long_run, until};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Number of lines in flight.
const AT_WORK: usize = 16;
/// Time after the acknowledged cancellation from which the provider must receive no more calls for the batch.
const STILL: Duration = Duration::from_secs(1);

fn home(provider: &Provider) -> Home {
    let home = Home::new();
    let settings = format!("[batches]\nconcurrency = {AT_WORK}\n[files]\nkeep_free = \"0B\"\n");
    home.write(&format!("{settings}{}", catalogue(provider, "")));
    home
}

/// Lets the gateway work: for 5 seconds in the long form of the tests, until `more` further calls in the short form.
async fn works(provider: &Provider, more: usize, over: impl AsyncFn() -> bool) {
    if is_long_run() {
        tokio::time::sleep(Duration::from_secs(5)).await;
        return;
    }
    let calls = provider.calls() + more;
    while provider.calls() < calls && !over().await {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Number of calls for each line, by its content.
fn asked(provider: &Provider) -> BTreeMap<String, usize> {
    let mut asked = BTreeMap::new();
    for seen in provider.seen().iter().filter(|seen| seen.method == "POST") {
        let text = seen.json()["messages"][0]["content"].as_str().unwrap().to_owned();
        *asked.entry(text).or_default() += 1;
    }
    asked
}

async fn stopped(mut process: Process) {
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_killed_again_and_again_asks_each_line_once_and_those_at_work_once_more() {
    let count = if is_long_run() { 50_000 } else { 900 };
    let provider = Provider::start().await;
    let home = home(&provider);
    let (client, _) = home.key();
    let mut process = home.run().await;
    let made = batch(&client, &lines(count)).await;
    let over = |batch: &serde_json::Value| batch["status"] == "completed";
    let begun = Instant::now();
    let mut kills = 0;
    loop {
        works(&provider, count / 7, async || over(&retrieve(&client, &made).await)).await;
        if over(&retrieve(&client, &made).await) {
            break;
        }
        process.kill().await;
        kills += 1;
        process = home.run().await;
    }
    let end = ended(&client, &made).await;
    assert_eq!(end["request_counts"]["completed"], count, "{end}");
    let found = results(&client, &end).await;
    assert_eq!(found.len(), count);
    stopped(process).await;
    let asked = asked(&provider);
    assert_eq!(asked.len(), count, "a line was never asked");
    assert!(kills >= 3, "{kills} kills tell nothing");
    let most = asked.values().max().unwrap();
    assert!(*most <= 1 + kills, "a line was asked {most} times with {kills} kills");
    let calls = provider.calls();
    assert!(calls <= count + kills * AT_WORK, "{calls} calls for {count} lines and {kills} kills");
    assert_charged(&home, found.values());
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
    eprintln!("{count} lines, {kills} kills, {calls} calls, {:?}", begun.elapsed());
}

/// Cancels a batch in the middle of its lines; returns the time of the acknowledgement.
async fn called_off(client: &Client, provider: &Provider, count: usize) -> (serde_json::Value, Instant) {
    let made = batch(client, &lines(count)).await;
    let calls = provider.calls() + count / 4;
    until("a quarter of the calls", || provider.calls() >= calls).await;
    let answer = cancel(client, &made).await;
    let at = Instant::now();
    assert_eq!((answer.status, answer.json()["status"].as_str()), (200, Some("cancelled")));
    (answer.json(), at)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_cancel_no_provider_is_called_even_after_a_kill() {
    let count = if is_long_run() { 50_000 } else { 600 };
    let provider = Provider::start().await;
    let home = home(&provider);
    let (client, _) = home.key();
    let mut process = home.run().await;
    for kill in [false, true] {
        let before = provider.calls();
        let (end, acknowledged) = called_off(&client, &provider, count).await;
        if kill {
            process.kill().await;
            process = home.run().await;
        }
        // The absence of calls can only be tested by waiting.
        tokio::time::sleep_until((acknowledged + STILL * 2).into()).await;
        let late = |seen: &crate::harness::provider::RecordedRequest| {
            seen.method == "POST" && seen.at > acknowledged + STILL
        };
        assert_eq!(provider.seen().into_iter().filter(late).count(), 0, "asked after {STILL:?}");
        assert_eq!(retrieve(&client, &end).await, end, "it stays as it was told");
        let found = results(&client, &end).await;
        let calls = provider.calls() - before;
        assert!(found.len() < count, "there was nothing left to call off");
        assert_eq!(end["request_counts"]["completed"], found.len());
        assert!(calls <= found.len() + AT_WORK, "{calls} calls, {} results", found.len());
        eprintln!("called off after {calls} calls: {} results, none asked later", found.len());
    }
    stopped(process).await;
    let proof = home.command(&["store", "verify"]);
    assert!(proof.status.success(), "{}", complaint(&proof));
}
