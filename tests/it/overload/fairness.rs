//! Fairness: an account with a hundred times the load of every other account hardly affects the others, and a backlog
//! of batches does not delay synchronous requests.

use super::{CHAT, form, full, of_account, percentile, thinker, timed};
use crate::harness::{Bench, Client, batch_jobs, gateway::Running};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const MAX_IN_FLIGHT: usize = 2;
const THINKS: Duration = Duration::from_millis(160);

async fn in_front_of(address: std::net::SocketAddr) -> Running {
    let lines = format!("max_in_flight = {MAX_IN_FLIGHT}\n{}", crate::harness::gateway::PATIENT);
    Bench::new()
        .settings("[overload]\nqueue = 100")
        .provider_at("a", &format!("http://{address}/v1"), &lines, "")
        .start()
        .await
}

fn brief_request() -> Value {
    json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]})
}

/// Sends requests of several clients, each with one request per `pace`; returns the duration of each answer. Asserts
/// that all are answered.
async fn paced(clients: &[Client], pace: Duration, lasts: Duration) -> Vec<Duration> {
    let (began, mut asked) = (Instant::now(), JoinSet::new());
    for (index, client) in clients.iter().enumerate() {
        let client = client.clone();
        // The clients start at different moments.
        let first = began + pace.mul_f64(index as f64 / clients.len() as f64);
        asked.spawn(async move {
            let mut times = Vec::new();
            for round in 0..(lasts.as_secs_f64() / pace.as_secs_f64()) as u32 {
                tokio::time::sleep_until((first + pace * round).into()).await;
                let (answer, took) = timed(client.post(CHAT, &brief_request())).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                times.push(took);
            }
            times
        });
    }
    asked.join_all().await.concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nine_accounts_hardly_notice_a_tenth_that_takes_all_it_can() {
    let lasts = Duration::from_secs(form(8, 240));
    let server = thinker(THINKS).await;
    let running = in_front_of(server.address).await;
    let mut modest = Vec::new();
    for number in 0..9 {
        modest.push(of_account(&running, &format!("modest-{number}")).await);
    }
    let greedy = of_account(&running, "greedy").await;
    // The modest clients together send a third of the requests that the permits allow.
    let pace = Duration::from_secs(4);
    let mut alone = paced(&modest, pace, lasts).await;

    // The greedy account sends a hundred times as many requests, without waiting for the answers.
    let (stop, served) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut flood = JoinSet::new();
    let (stopped, counted) = (stop.clone(), served.clone());
    let pouring = tokio::spawn(async move {
        let (began, mut number) = (Instant::now(), 0_u32);
        while !stopped.load(Ordering::Relaxed) {
            number += 1;
            tokio::time::sleep_until((began + pace / 100 * number).into()).await;
            let (client, counted) = (greedy.clone(), counted.clone());
            flood.spawn(async move {
                let status = client.post(CHAT, &brief_request()).await.status;
                assert!([200, 503].contains(&status), "{status}");
                counted.fetch_add(usize::from(status == 200), Ordering::Relaxed);
            });
        }
        flood.join_all().await;
        number
    });
    let provider = running.gateway.app.config_snapshot().providers[0].clone();
    crate::harness::until("the flood to queue", || provider.concurrency.waiter_count() > 5).await;
    let mut beside = paced(&modest, pace, lasts).await;
    stop.store(true, Ordering::Relaxed);
    let asked = pouring.await.unwrap();
    let hundredths = form(50, 99);
    let (solo, shared) = (percentile(&mut alone, hundredths), percentile(&mut beside, hundredths));
    eprintln!(
        "greedy: {asked} asked, {} served; the others' p{hundredths} {solo:?} alone, {shared:?} beside it ({} answers)",
        served.load(Ordering::Relaxed),
        beside.len()
    );
    assert!(shared <= solo * 2, "{solo:?} became {shared:?}");
}

/// Time to the first token of streams, one after the other.
async fn first_tokens(client: &Client, count: usize) -> Vec<Duration> {
    let ask = json!({"model": "m", "stream": true, "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]});
    let mut times = Vec::new();
    for _ in 0..count {
        let (mut open, took) = timed(client.stream_until(CHAT, &ask, "\"content\":\"")).await;
        times.push(took);
        assert_eq!(open.finish().await.status, 200);
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backlog_of_batches_is_not_felt_by_requests_at_once() {
    let (count, lines) = form((20, 400), (600, 20_000));
    let server = thinker(THINKS).await;
    let running = in_front_of(server.address).await;
    let mut alone = first_tokens(&running.client, count).await;
    let batch = batch_jobs::batch(&running.client, &batch_jobs::lines(lines)).await;
    let provider = running.gateway.app.config_snapshot().providers[0].clone();
    crate::harness::until("the batch to have its slots", || provider.concurrency.waiter_count() > 5).await;
    let mut beside = first_tokens(&running.client, count).await;
    let now = batch_jobs::retrieve(&running.client, &batch).await;
    assert_eq!(now["status"], "in_progress", "it was at work all the while: {now}");
    assert!(now["request_counts"]["completed"].as_u64().unwrap() > 0, "and was not starved");
    let (half, other) = (percentile(&mut alone, 50), percentile(&mut beside, 50));
    let (most, others) = (percentile(&mut alone, 99), percentile(&mut beside, 99));
    eprintln!("backlog: first token p50 {half:?} alone, {other:?} beside it; p99 {most:?}, {others:?}");
    let (before, after) = if full() { (most, others) } else { (half, other) };
    assert!(after.as_secs_f64() <= before.as_secs_f64() * form(1.5, 1.1), "{before:?} became {after:?}");
    batch_jobs::cancel(&running.client, &batch).await;
}

/// Tests that one account with slow uploads of large bodies, announced or not, does not block those of another account.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_uploads_of_an_account_leave_memory_to_the_others() {
    const LARGE: usize = 1 << 20;
    let server = thinker(Duration::ZERO).await;
    let running = Bench::new()
        .settings("[limits]\njson_body = \"1MiB\"\n[overload]\nbytes = \"16MiB\"\nwait = \"10ms\"")
        .provider_at("a", &format!("http://{}/v1", server.address), "", "")
        .start()
        .await;
    let (greedy, modest) = (of_account(&running, "greedy").await, of_account(&running, "modest").await);
    let admission = running.gateway.app.admission.clone();
    let length = LARGE.to_string();
    let headers = [("content-type", "application/json"), ("content-length", length.as_str())];
    let mut uploads = Vec::new();
    // Twelve would fill the three quarters for large bodies.
    for number in 1..=10 {
        uploads.push(greedy.open("POST", CHAT, &headers, b"{").await);
        crate::harness::until("the upload to be admitted", || admission.load_status().requests == number)
            .await;
    }
    let mut refused = greedy.open("POST", CHAT, &headers, b"{").await;
    let refused = crate::harness::within("the refusal", refused.finish()).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    let content = "x".repeat(LARGE / 2);
    let request = json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": content}]});
    let answer = modest.post(CHAT, &request).await;
    assert_ne!(answer.json()["error"]["code"], "SERVER_9002", "{}", answer.text());
    drop(uploads);
}
