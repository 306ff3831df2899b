//! Admission limit of the gateway: a permit, a brief wait, or 503 at once.

use super::{CHAT, form, of_account, timed, until_empty, with_concurrency};
use crate::harness::script::{completion, held, json_answer};
use crate::harness::{Bench, Provider, until};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_ceiling_one_waits_and_the_next_is_refused_at_once_in_its_dialect() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running = Bench::new()
        .settings("[overload]\nrequests = 1\nqueue = 1\nwait = \"20s\"")
        .provider("a", &provider)
        .start()
        .await;
    let app = running.gateway.app.clone();
    let ask = |content: &str| json!({"model": "m", "messages": [{"role": "user", "content": content}]});
    let (client, first) = (running.client.clone(), ask("first"));
    let first = tokio::spawn(async move { client.post(CHAT, &first).await });
    provider.until_calls(1).await;
    let (client, second) = (running.client.clone(), ask("second"));
    let second = tokio::spawn(async move { client.post(CHAT, &second).await });
    until("the second to wait", || app.admission.load_status().waiting == 1).await;
    assert_eq!(running.client.get("/v1/models").await.status, 200, "what needs no place is answered");
    let (chat, took) = timed(running.client.post(CHAT, &ask("third"))).await;
    let mut other = ask("fourth");
    other["max_tokens"] = json!(9);
    let messages = running.client.post("/v1/messages", &other).await;
    assert!(took < Duration::from_secs(10), "{took:?}: refused at once, not after the wait");
    for answer in [&chat, &messages] {
        assert_eq!(answer.status, 503, "{}", answer.text());
        let seconds: u32 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=3).contains(&seconds));
    }
    assert_eq!(chat.json()["error"]["code"], "SERVER_9002");
    assert_eq!(messages.json()["error"]["type"], "overloaded_error");
    assert_eq!(provider.calls(), 1);
    go.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
    go.notify_one();
    provider.until_calls(2).await;
    go.notify_one();
    assert_eq!(second.await.unwrap().status, 200);
    until_empty(&running).await;
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains("penstock_overload_refused_total{reason=\"queue\"} 2"), "{metrics}");
    assert!(metrics.contains("penstock_queue_wait_seconds_count{queue=\"process\"} 1"));
    assert!(metrics.contains("penstock_requests_admitted 0") && metrics.contains("penstock_held_bytes 0"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unsuccessful_wait_ends_in_a_rejection() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running = Bench::new()
        .settings("[overload]\nrequests = 1\nwait = \"300ms\"")
        .provider("a", &provider)
        .start()
        .await;
    let (client, ask) = (running.client.clone(), running.ask());
    let first = tokio::spawn(async move { client.post(CHAT, &ask).await });
    provider.until_calls(1).await;
    let (answer, took) = timed(running.chat()).await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (503, Some("SERVER_9002")));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    go.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_provider_queues_accounts_fairly_and_then_gives_503() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running =
        with_concurrency(&provider, 1).settings("[overload]\nqueue = 3\nwait = \"30s\"").start().await;
    let (greedy, modest) = (of_account(&running, "greedy").await, of_account(&running, "modest").await);
    let app = running.gateway.app.clone();
    let waits = || app.config_snapshot().providers[0].concurrency.waiter_count();
    let mut tasks = Vec::new();
    let ask = |who: &str| json!({"model": "m", "messages": [{"role": "user", "content": who}]});
    for number in 0..4 {
        let (client, ask) = (greedy.clone(), ask(&format!("greedy {number}")));
        tasks.push(tokio::spawn(async move { client.post(CHAT, &ask).await }));
        provider.until_calls(1).await;
        until("it to wait", || waits() >= number).await;
    }
    let refused = greedy.post(CHAT, &ask("greedy 4")).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("INFERENCE_3103")));
    assert_eq!(refused.json()["error"]["details"]["attempts"], json!([]));
    assert!(refused.header("retry-after").is_some());
    let (client, last) = (modest.clone(), ask("modest"));
    tasks.push(tokio::spawn(async move { client.post(CHAT, &last).await }));
    // The modest account's request took the place of the greedy account's newest request in the queue.
    let gone = tasks.remove(3).await.unwrap();
    assert_eq!(gone.status, 503);
    for call in 1..=4 {
        provider.until_calls(call).await;
        go.notify_one();
    }
    for task in tasks {
        assert_eq!(task.await.unwrap().status, 200);
    }
    let order: Vec<String> = provider
        .seen()
        .iter()
        .map(|seen| seen.json()["messages"][0]["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(order, ["greedy 0", "greedy 1", "modest", "greedy 2"], "accounts in turn");
    assert_eq!(provider.max_in_flight(), 1);
    until_empty(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_share_a_bound_and_small_ones_are_still_admitted() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    let running = Bench::new()
        .settings("[limits]\njson_body = \"1MiB\"\n[overload]\nbytes = \"2MiB\"\nwait = \"200ms\"")
        .provider("a", &provider)
        .start()
        .await;
    let long =
        |bytes: usize| json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(bytes)}]});
    provider.then(held(&go, "Hello"));
    let (client, ask) = (running.client.clone(), long(900_000));
    let first = tokio::spawn(async move { client.post(CHAT, &ask).await });
    provider.until_calls(1).await;
    assert!(running.gateway.app.admission.load_status().bytes > 900_000);
    let refused = running.client.post(CHAT, &long(800_000)).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("SERVER_9002")));
    // A chunked body, whose length is unknown, is refused once it exceeds the limit.
    let mut chunked = format!("{:x}\r\n", 600_000).into_bytes();
    chunked.extend(vec![b' '; 600_000]);
    chunked.extend(format!("\r\n{:x}\r\n", 600_000).bytes());
    chunked.extend(vec![b' '; 600_000]);
    chunked.extend(b"\r\n0\r\n\r\n");
    let headers = [("transfer-encoding", "chunked")];
    let refused = running.client.send("POST", CHAT, &headers, &chunked).await;
    assert!([413, 503].contains(&refused.status), "{}", refused.text());
    for _ in 0..form(3, 200) {
        assert_eq!(running.chat().await.status, 200, "short ones pass");
    }
    go.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
    until_empty(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_too_much_for_all_together_is_503_and_nobodys_failure() {
    let provider = Provider::start().await;
    provider.then(json_answer(200, &completion(&"long ".repeat(800_000))));
    let running = Bench::new()
        .settings("[limits]\njson_body = \"1MiB\"\n[overload]\nbytes = \"2MiB\"")
        .provider("a", &provider)
        .start()
        .await;
    let answer = running.chat().await;
    assert_eq!((answer.status, answer.json()["error"]["code"].as_str()), (503, Some("SERVER_9002")));
    assert_eq!(running.chat().await.status, 200);
    assert_eq!(provider.calls(), 2, "nobody else was asked for the first");
    until_empty(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_batch_request_yields_to_a_synchronous_one() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.always(held(&go, "Hello"));
    let running =
        with_concurrency(&provider, 1).settings("[overload]\nrequests = 2\nwait = \"20s\"").start().await;
    let (client, ask) = (running.client.clone(), running.ask());
    let first = tokio::spawn(async move { client.post(CHAT, &ask).await });
    provider.until_calls(1).await;
    let mut patient = running.ask();
    patient["model"] = json!("m:batch");
    // A batch-flavor request is refused, because it would take the last free permit and block the next urgent
    // request.
    let refused = running.client.post(CHAT, &patient).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    go.notify_one();
    assert_eq!(first.await.unwrap().status, 200);
    until_empty(&running).await;
}

#[test]
fn check_adds_the_memory_up() {
    let home = crate::harness::process::Home::new();
    home.write(
        "[process]\nthreads = 2\n[overload]\nrequests = 1000\nbytes = \"100MiB\"\n[limits]\nconnections = 2048\nhead = \"16KiB\"\n[batches]\nmemory = \"24MiB\"\nconcurrency = 128\n",
    );
    let checked = home.command(&["check"]);
    let text = String::from_utf8(checked.stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "memory at most",
        "requests 125 MiB",
        "streams 562.5 MiB",
        "connections 128 MiB",
        "heads 189.8 MiB",
        "queue 500 MiB",
        "bodies 200 MiB",
        "batches 168 MiB",
        "counting 640 MiB",
    ] {
        assert!(text.contains(words), "{words:?} is not in\n{text}");
    }
    home.write("[overload]\ncounting = 3\n");
    let text = String::from_utf8(home.command(&["check"]).stdout).unwrap();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("counting 960 MiB"), "{text}");
    home.write("[overload]\nbytes = \"40MiB\"\n");
    let complaint = crate::harness::process::complaint(&home.command(&["check"]));
    assert!(complaint.contains("overload.bytes") && complaint.contains("64MiB"), "{complaint}");
}
