//! Large lines of batches: as long as a request may be; a memory limit holds for all of them together.

use crate::harness::batch_jobs::{batch, cancel, ended, let_go, line, line_with, results, upload};
use crate::harness::script::held;
use crate::harness::{Bench, Provider, until};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

const MIB: usize = 1 << 20;

/// Returns a chat line whose content has this number of bytes.
fn large(id: &str, bytes: usize) -> String {
    line_with(id, json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(bytes)}]}))
}

/// Context window so large that no tokens have to be counted.
const WINDOW: &str = "context_length = 100000000";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_lines_arrive_whole_and_hold_no_more_than_their_memory() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let running = Bench::new()
        .settings("[batches]\nmemory = \"8MiB\"\n")
        .model(WINDOW)
        .provider("p", &provider)
        .start()
        .await;
    let client = &running.client;
    // Sizes just below and above the limit from which lines share a memory limit, and one above that memory limit.
    let sizes = [3 * MIB, 10, MIB - 200, MIB + 1, 9 * MIB, 3 * MIB, 20];
    let text: Vec<String> =
        sizes.iter().enumerate().map(|(number, size)| large(&format!("line-{number}"), *size)).collect();
    let made = batch(client, &text.join("\n")).await;
    let second = batch(client, &[large("a", 5 * MIB), line("b", "Hi"), large("c", 5 * MIB)].join("\n")).await;
    // Both batches run at the same time, and their large lines share the memory limit.
    let both = async { (ended(client, &made).await, ended(client, &second).await) };
    let (first, second) = let_go(&go, both).await;
    for (end, count) in [(&first, sizes.len()), (&second, 3)] {
        assert_eq!(
            (&end["status"], &end["request_counts"]["completed"]),
            (&json!("completed"), &json!(count))
        );
        assert_eq!(results(client, end).await.len(), count);
    }
    assert_eq!(first["model"], "m", "the first line is a large one");
    let mut arrived: Vec<usize> = provider
        .seen()
        .iter()
        .map(|seen| seen.json()["messages"][0]["content"].as_str().unwrap().len())
        .collect();
    arrived.sort_unstable();
    let mut sent = [&sizes[..], &[5 * MIB, 2, 5 * MIB]].concat();
    sent.sort_unstable();
    assert_eq!(arrived, sent);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_line_that_waits_for_memory_is_cancelled_and_goes_on_after_a_restart() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    provider.always(held(&go, "Hello"));
    let bench =
        || Bench::new().settings("[batches]\nmemory = \"4MiB\"\n").model(WINDOW).provider("p", &provider);
    let running = bench().start().await;
    let first = batch(&running.client, &large("a", 4 * MIB)).await;
    provider.until_calls(1).await;
    let (second, third) = (
        batch(&running.client, &large("b", 2 * MIB)).await,
        batch(&running.client, &large("c", 2 * MIB)).await,
    );
    let app = running.gateway.app.clone();
    until("all to be at work", || app.batches.stats(0).lines_in_flight == 3).await;
    assert_eq!(provider.calls(), 1, "there is memory for one");
    let cancelled = cancel(&running.client, &second).await;
    assert_eq!(cancelled.json()["status"], "cancelled");
    drop(app);
    let left = running.halt().await;
    let running = bench().restart(left).await;
    let ends = async { (ended(&running.client, &first).await, ended(&running.client, &third).await) };
    let (first, third) = let_go(&go, ends).await;
    for end in [first, third] {
        assert_eq!(end["request_counts"]["completed"], 1, "{end}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_longest_line_is_configured() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .settings("[batches]\nline = \"2MiB\"\n")
        .model(WINDOW)
        .provider("p", &provider)
        .start()
        .await;
    let around = large("x", 0).len();
    for (size, fits) in [(2 * MIB, true), (2 * MIB + 1, false)] {
        let answer = upload(&running.client, &large("x", size - around)).await;
        assert_eq!(answer.status == 200, fits, "{size}: {}", answer.text());
        if !fits {
            let error = &answer.json()["error"];
            assert_eq!(error["details"]["errors"][0]["code"], "line_too_long");
            assert!(error["message"].as_str().unwrap().contains("at most 2097152 bytes"), "{error}");
        }
    }
    running.stop().await;
}
