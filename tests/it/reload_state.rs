//! State across a reload: resolved addresses and taken permits are retained; limits and breaker thresholds change.

use crate::harness::gateway::Running;
use crate::harness::script::{held, status};
use crate::harness::{Answer, Bench, Provider, until};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

fn asked(running: &Running) -> JoinHandle<Answer> {
    let (client, ask) = (running.client.clone(), running.ask());
    tokio::spawn(async move { client.post("/v1/chat/completions", &ask).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_by_name_is_there_at_once_after_a_reload() {
    let provider = Provider::start().await;
    let bench = || {
        let base = format!("http://localhost:{}/v1", provider.address.port());
        Bench::new().provider_at("a", &base, "", "")
    };
    let running = bench().start().await;
    // The host name may first resolve to an address on which no provider listens; the attempt at the next address
    // succeeds.
    assert_eq!(running.chat().await.status, 200);
    for _ in 0..3 {
        running.reload(bench().load(running.storage())).await;
        assert_eq!(running.chat().await.status, 200);
    }
    // A new name is resolved before the configuration takes effect.
    let other = Provider::start().await;
    let base = format!("http://localhost:{}/v1", other.address.port());
    running.reload(Bench::new().provider_at("b", &base, "", "").load(running.storage())).await;
    assert_eq!(running.chat().await.header("x-penstock-provider"), Some("b"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permit_remains_taken_after_a_reload() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let bench = |max_in_flight: u32| {
        let lines = format!("max_in_flight = {max_in_flight}");
        Bench::new().settings("[overload]\nwait = \"50ms\"").provider_with("a", &provider, &lines, "")
    };
    let running = bench(1).start().await;
    let first = asked(&running);
    provider.until_calls(1).await;
    running.reload(bench(1).load(running.storage())).await;
    assert_eq!(running.chat().await.status, 503, "its only place is taken");
    assert_eq!(provider.calls(), 1);
    // A higher limit applies at once, and a lower one as soon as enough running requests have ended.
    running.reload(bench(2).load(running.storage())).await;
    let second = asked(&running);
    provider.until_calls(2).await;
    running.reload(bench(1).load(running.storage())).await;
    go.notify_one();
    until("one of them to end", || first.is_finished() || second.is_finished()).await;
    assert_eq!(running.chat().await.status, 503, "one is left of two, and one is all there are");
    go.notify_one();
    assert_eq!((first.await.unwrap().status, second.await.unwrap().status), (200, 200));
    let third = asked(&running);
    provider.until_calls(3).await;
    go.notify_one();
    assert_eq!(third.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_changes_the_breaker_thresholds() {
    let provider = Provider::start().await;
    provider.always(status(503));
    let bench = |consecutive: u32| {
        let lines = format!(
            "[routing.breaker]\nconsecutive = {consecutive}\nminimum = 1000\nrest = \"1h\"\nrest_max = \"1h\""
        );
        Bench::new().settings(&lines).provider("a", &provider)
    };
    let running = bench(1_000).start().await;
    let ready = async || running.admin().get("/readyz").await.text();
    for _ in 0..3 {
        running.chat().await;
    }
    assert_eq!(ready().await, "ready\n");
    running.reload(bench(2).load(running.storage())).await;
    running.chat().await;
    let text = ready().await;
    assert!(text.contains("no provider is healthy"), "it has failed often enough for that: {text}");
}
