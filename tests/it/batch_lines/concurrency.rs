//! Provider slots of batch lines: preemption, queue order, and waits that do not count towards time limits.

use super::{CHAT, ask, begin, code, enter, line_response};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{held, plain, silent};
use crate::harness::{Bench, Provider, until, within};
use penstock::batch::LineDisposition;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

fn waiting(running: &Running) -> u32 {
    running
        .gateway
        .app
        .config_snapshot()
        .providers
        .iter()
        .map(|provider| provider.concurrency.waiter_count())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_youngest_line_releases_its_slot_to_a_request_at_once() {
    let provider = Provider::start().await;
    provider.then(silent()).then(silent()).always(plain("Hello"));
    let running = Bench::new()
        .provider_with("a", &provider, &format!("max_in_flight = 2\n{PATIENT}"), "")
        .start()
        .await;
    let cancel = CancellationToken::default();
    let old = begin(&running, &running.client.key, CHAT, &running.ask(), &cancel);
    provider.until_calls(1).await;
    let young = begin(&running, &running.client.key, CHAT, &running.ask(), &cancel);
    provider.until_calls(2).await;
    // The line has one second to release its slot; after that, the gateway would reject the request.
    let answer = running.client.post(CHAT, &running.ask()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut gone = within("the younger line", young).await.unwrap();
    assert!(matches!(gone.disposition, LineDisposition::Yielded(_)));
    provider.until_left(1).await;
    enter(&running, &mut gone, b"yielded").await;
    assert!(!old.is_finished(), "the older one stays");
    assert_eq!(provider.calls(), 3);
    // After the end of the request, the released slot can be used by lines again.
    assert_eq!(ask(&running, &running.ask()).await.status, 200);
    cancel.cancel();
    assert_eq!(within("the older line", old).await.unwrap().disposition, LineDisposition::Cancelled);
    until("all slots to be free", || running.gateway.app.config_snapshot().providers[0].in_flight() == 0)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_lines_run_in_order_of_arrival() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running = Bench::new()
        .provider_with("a", &provider, &format!("max_in_flight = 1\n{PATIENT}"), "")
        .start()
        .await;
    let named =
        |model: &str, name: &str| json!({"model": model, "messages": [{"role": "user", "content": name}]});
    let cancel = CancellationToken::default();
    let (client, body) = (running.client.clone(), named("m", "first"));
    let first = tokio::spawn(async move { client.post(CHAT, &body).await });
    provider.until_calls(1).await;
    let second = begin(&running, &running.client.key, CHAT, &named("m", "second"), &cancel);
    until("the second to wait", || waiting(&running) == 1).await;
    let (client, body) = (running.client.clone(), named("m:batch", "third"));
    let third = tokio::spawn(async move { client.post(CHAT, &body).await });
    until("the third to wait", || waiting(&running) == 2).await;
    let fourth = begin(&running, &running.client.key, CHAT, &named("m", "fourth"), &cancel);
    until("the fourth to wait", || waiting(&running) == 3).await;
    for calls in 1..=4 {
        provider.until_calls(calls).await;
        go.notify_one();
    }
    assert_eq!((first.await.unwrap().status, third.await.unwrap().status), (200, 200));
    assert_eq!((second.await.unwrap().status, fourth.await.unwrap().status), (200, 200));
    let order: Vec<String> = provider
        .seen()
        .iter()
        .map(|seen| seen.json()["messages"][0]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(order, ["first", "second", "third", "fourth"]);
    assert_eq!(provider.max_in_flight(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_provider_slot_does_not_count_as_line_time() {
    let provider = Provider::start().await;
    provider.then(silent()).always(plain("Hello"));
    let lines = format!("max_in_flight = 1\n{PATIENT}");
    let running = Bench::new()
        .settings("[routing]\ntotal = \"2s\"")
        .provider_with("a", &provider, &lines, "")
        .start()
        .await;
    let (client, body) = (running.client.clone(), running.ask());
    let began = Instant::now();
    let held = tokio::spawn(async move { client.post(CHAT, &body).await });
    provider.until_calls(1).await;
    // The permit becomes free when the first request times out. The time limit of the line starts only then.
    let done = ask(&running, &running.ask()).await;
    assert_eq!(done.status, 200, "{}", line_response(&done));
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert_eq!(held.await.unwrap().status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_without_a_concurrency_limit_gets_a_default_number_of_lines() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running = Bench::new().settings("[routing]\nbatch_lines = 2").provider("a", &provider).start().await;
    let cancel = CancellationToken::default();
    let lines: Vec<_> =
        (0..5).map(|_| begin(&running, &running.client.key, CHAT, &running.ask(), &cancel)).collect();
    until("three to wait", || waiting(&running) == 3).await;
    provider.until_calls(2).await;
    // The limit does not apply to requests of clients.
    let (client, body) = (running.client.clone(), running.ask());
    let request = tokio::spawn(async move { client.post(CHAT, &body).await });
    provider.until_calls(3).await;
    until("all of them", || {
        go.notify_one();
        request.is_finished() && lines.iter().all(JoinHandle::is_finished)
    })
    .await;
    for line in lines {
        assert_eq!(line.await.unwrap().status, 200);
    }
    assert_eq!(request.await.unwrap().status, 200);
    assert_eq!((provider.calls(), provider.max_in_flight()), (6, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_without_a_provider_slot_has_not_failed() {
    let (one, other) = (Provider::start().await, Provider::start().await);
    one.always(silent());
    other.always(silent());
    let lines = format!("max_in_flight = 1\n{PATIENT}");
    let running = Bench::new()
        .settings("[routing]\nbatch_wait = \"100ms\"")
        .provider_with("a", &one, &lines, "")
        .provider_with("b", &other, &lines, "")
        .start()
        .await;
    let body = running.ask().to_string();
    let _first = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
    let _second = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
    one.until_calls(1).await;
    other.until_calls(1).await;
    let done = ask(&running, &running.ask()).await;
    assert_eq!(code(&done), (503, "INFERENCE_3103".to_owned()));
    assert!(matches!(done.disposition, LineDisposition::Yielded(_)));
    assert_eq!((one.calls(), other.calls()), (1, 1));
}
