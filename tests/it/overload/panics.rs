//! Injected panics: only the request itself fails, and its resources are released.

use super::{CHAT, form, full, until_empty};
use crate::harness::gateway::Running;
use crate::harness::script::stream;
use crate::harness::{Bench, Provider, batch_jobs, until};
use penstock::net::panic_injection::PanicInjectionPoint;
use serde_json::json;
use std::process::Command;

/// Environment variable that is set in the process that runs only the panics.
const ALONE: &str = "PENSTOCK_IT_PANICS";
/// Number of descriptors by which the count may vary: both ends of the idle connections to the provider, and one file
/// of the store.
const COMING_AND_GOING: usize = 12;
/// Allowed growth of memory after nine thousand panics, in KiB: less than one KiB each.
const GROWTH: u64 = 8 << 10;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Resident memory of this process, in KiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_only_its_own_request_and_releases_its_resources() {
    let each = form(10, 3_400);
    let provider = Provider::start().await;
    provider.always(stream(&["One ", "two ", "three "]));
    let lines = format!("max_in_flight = 2\n{}", crate::harness::gateway::PATIENT);
    let running = Bench::new().provider_with("a", &provider, &lines, "").start().await;
    let app = running.gateway.app.clone();
    for at in PanicInjectionPoint::STREAM_POINTS {
        for _ in 0..each {
            app.panic_injector.arm(at, 1);
            // Each request has its own connection, which must not leave any state either.
            let broken = running.chat_stream().await;
            if at == PanicInjectionPoint::Stream {
                assert_eq!(broken.status, 200);
                assert!(
                    !broken.text().contains("[DONE]") && broken.text().contains("One "),
                    "{}",
                    broken.text()
                );
            } else {
                assert_eq!(broken.status, 500, "{}", broken.text());
                assert_eq!(broken.json()["error"]["code"], "SERVER_9001");
                assert!(!broken.text().contains("injected"));
            }
            let good = running.chat_stream().await;
            assert_eq!(good.streamed_text(), "One two three ", "the next is served by the same threads");
        }
    }
    until_empty(&running).await;
    let ends = crate::billing::entries(&running).await;
    let count = |act: &str| ends.iter().filter(|entry| entry["act"] == act).count();
    let (good, broken) = (each * 3, each * 2);
    assert_eq!(count("settle"), good, "what was delivered whole, and nothing else");
    assert_eq!(count("void"), broken, "a reserve for each that had one, ended");
    let metrics = running.admin().get("/metrics").await.text();
    assert!(metrics.contains(&format!("penstock_panics_total {}", each * 3)), "{metrics}");
}

/// Tests that a panic in the first phase of the proxy is caught as in the other phases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_before_the_endpoint_is_known_is_answered_too() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    running.gateway.app.panic_injector.arm(PanicInjectionPoint::Route, 1);
    let broken = running.chat().await;
    assert_eq!(broken.status, 500, "{}", broken.text());
    assert_eq!(broken.json()["error"]["code"], "SERVER_9001");
    assert_eq!(running.chat().await.status, 200);
    assert!(running.admin().get("/metrics").await.text().contains("penstock_panics_total 1"));
    until_empty(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beside_a_panic_do_not_notice() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    running.gateway.app.panic_injector.arm(PanicInjectionPoint::Attempt, 8);
    let asks = (0..32).map(|_| {
        let (client, ask) = (running.client.clone(), running.ask());
        tokio::spawn(async move { client.post(CHAT, &ask).await.status })
    });
    let asks: Vec<_> = asks.collect();
    let mut answers = Vec::new();
    for ask in asks {
        answers.push(ask.await.unwrap());
    }
    let of = |status: u16| answers.iter().filter(|known| **known == status).count();
    assert_eq!((of(500), of(200)), (8, 24));
    until_empty(&running).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_a_batch_that_panics_is_asked_again_and_is_not_asked_for_ever() {
    let provider = Provider::start().await;
    let settings = "[batches]\nretries = 2\nretry_first = \"1ms\"\nretry_most = \"2ms\"";
    let running = Bench::new().settings(settings).provider("a", &provider).start().await;
    running.gateway.app.panic_injector.arm(PanicInjectionPoint::Attempt, 2);
    let batch = batch_jobs::batch(&running.client, &batch_jobs::lines(3)).await;
    let end = batch_jobs::ended(&running.client, &batch).await;
    assert_eq!(end["request_counts"]["completed"], 3, "{end}");
    running.gateway.app.panic_injector.arm(PanicInjectionPoint::Attempt, 1_000);
    let batch = batch_jobs::batch(&running.client, &batch_jobs::lines(2)).await;
    let end = batch_jobs::ended(&running.client, &batch).await;
    assert_eq!(end["request_counts"]["failed"], 2, "{end}");
    for result in batch_jobs::results(&running.client, &end).await.values() {
        assert_eq!(result["status_code"], json!(500));
    }
    running.gateway.app.panic_injector.arm(PanicInjectionPoint::Attempt, 0);
    until_empty(&running).await;
}

/// Runs a test of this binary again in its own process, and prints its output. Backtraces are disabled, because their
/// memory would count as memory of the gateway.
fn again(test: &str) {
    let me = std::env::current_exe().unwrap();
    let ran = Command::new(me)
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .env("RUST_BACKTRACE", "0")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    // Each panic prints a line; the last lines contain the reason of a failure.
    let last: Vec<&str> = output.lines().skip(output.lines().count().saturating_sub(40)).collect();
    assert!(ran.status.success() && output.contains("1 passed"), "{}", last.join("\n"));
    output.lines().filter(|line| line.starts_with("panics: ")).for_each(|line| eprintln!("{line}"));
}

/// Sends requests that cause panics, with these numbers; the number selects the injection point.
async fn panics(running: &Running, all: std::ops::Range<usize>) {
    for number in all {
        running
            .gateway
            .app
            .panic_injector
            .arm(PanicInjectionPoint::STREAM_POINTS[number % PanicInjectionPoint::STREAM_POINTS.len()], 1);
        let broken = running.chat_stream().await;
        assert!(broken.status == 500 || !broken.text().contains("[DONE]"), "{}", broken.text());
    }
    until_empty(running).await;
    assert_eq!(running.chat_stream().await.streamed_text(), "One two three ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_leave_no_descriptor_and_no_memory_behind() {
    if std::env::var_os(ALONE).is_none() {
        return again("overload::panics::ten_thousand_leave_no_descriptor_and_no_memory_behind");
    }
    let (some, many) = form((30, 150), (1_000, 10_000));
    // The provider stores no requests, because that would use memory too.
    let provider = Provider::with_selector(Box::new(|_| stream(&["One ", "two ", "three "]))).await;
    let running = Bench::new().provider("a", &provider).start().await;
    panics(&running, 0..some).await;
    let (open, baseline) = (descriptors(), memory());
    panics(&running, some..many).await;
    until("descriptors to be closed", || descriptors() <= open + COMING_AND_GOING).await;
    let grown = memory().saturating_sub(baseline);
    eprintln!(
        "panics: {open} descriptors after {some}, {} after {many}; grown by {grown} KiB over {baseline}",
        descriptors()
    );
    // The baseline is measured after a few panics, when memory has reached its normal size.
    assert!(grown <= GROWTH || !full(), "grown by {grown} KiB over {baseline}");
}
