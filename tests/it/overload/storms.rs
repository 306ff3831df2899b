//! Providers that fail: they are not buried under retries, a dead one is left
//! alone at once and found again, and others do not notice.

use super::{CHAT, form, full, percentile, timed};
use crate::harness::script::{Act, cut, plain, role, sse, status, text};
use crate::harness::{Bench, Provider};
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_fail_they_are_asked_little_more_than_clients_ask() {
    let requests = form(150, 20_000);
    let mut bench = Bench::new();
    let mut providers = Vec::new();
    // Ejection would hide what the budget does: it is switched off.
    bench = bench.settings("[routing.breaker]\nconsecutive = 1000\nminimum = 100000\nerror_rate = 1");
    for id in ["a", "b", "c"] {
        let provider = Provider::start().await;
        provider.always(status(500));
        bench = bench.provider(id, &provider);
        providers.push(provider);
    }
    let running = bench.start().await;
    let began = Instant::now();
    for _ in 0..requests {
        let answer = running.chat().await;
        assert_eq!(answer.status, 503);
        assert!(answer.header("retry-after").is_some());
    }
    let took = began.elapsed().as_secs_f64();
    let calls: usize = providers.iter().map(Provider::calls).sum();
    // The budget looks back on ten seconds: those before the first request count too.
    let most = 1.2 * requests as f64 + 3.0 * (took + 10.0);
    eprintln!("storm: {requests} requests, {calls} calls in {took:.1} s, at most {most:.0}");
    assert!(calls as f64 <= most, "{calls} calls, at most {most}");
    assert!(calls > requests, "some are tried elsewhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_first_token_nobody_is_asked_again_unless_to_rescue() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("One "), Act::Cut]);
    let never = "[routing.breaker]\nconsecutive = 1000\nminimum = 100000";
    let running = Bench::new().settings(never).model("rescue = false").provider("a", &provider).start().await;
    for request in 1..=form(20, 1_000) {
        let answer = running.chat_stream().await;
        assert!(answer.text().contains("\"error\"") && answer.streamed() == "One ", "{}", answer.text());
        assert_eq!(provider.calls(), request);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_provider_is_left_alone_at_once_and_found_again() {
    let (dead, good) = (Provider::start().await, Provider::start().await);
    let rest_max = form("1s", "30s");
    let settings = format!("[routing.breaker]\nrest_max = \"{rest_max}\"\n[routing]\nquick_retry = \"1ms\"");
    // The cheapest, so that it is always asked first.
    let dear = "price = { input = 50.0, output = 50.0 }";
    let running = Bench::new()
        .settings(&settings)
        .provider("dead", &dead)
        .provider_with("good", &good, "", dear)
        .start()
        .await;
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    let asked = async || {
        let (answer, took) = timed(running.client.post(CHAT, &ask)).await;
        assert_eq!(answer.status, 200, "failures are invisible");
        (answer.header("x-penstock-provider").unwrap().to_owned(), took)
    };
    let mut before = Vec::new();
    for _ in 0..form(30, 300) {
        before.push(asked().await.1);
    }
    assert_eq!(good.calls(), 0);
    dead.always(cut());
    let (offer, calls) = (running.gateway.house.live().offers[0].clone(), dead.calls());
    let now = || running.gateway.house.clock.now();
    let open = || !matches!(offer.breaker.lock().state(now()), penstock_routing::State::Closed);
    let began = Instant::now();
    while !open() {
        asked().await;
        // A connection from the pool that turns out to be closed is no failure, and another is tried.
        assert!(dead.calls() - calls <= 5 * 4, "it is not ejected");
    }
    let (ejected, tried) = (began.elapsed(), dead.calls() - calls);
    // Long enough for its rests to grow.
    let mut after = Vec::new();
    let dying = Instant::now() + Duration::from_secs(form(3, 70));
    let mut probes = dead.calls();
    while Instant::now() < dying {
        let (_, took) = asked().await;
        // One that probed it is told apart: it was sent to the dead first.
        if dead.calls() == probes {
            after.push(took);
        }
        probes = dead.calls();
    }
    dead.always(plain("Hello"));
    let began = Instant::now();
    while asked().await.0 != "dead" {
        assert!(began.elapsed() < Duration::from_secs(60), "it never came back");
    }
    let back = began.elapsed();
    let (old, new) = (percentile(&mut before, 99), percentile(&mut after, 99));
    eprintln!(
        "dead: ejected after {tried} calls in {ejected:?}, probed {} times, back after {back:?}; p99 {old:?} before, {new:?} meanwhile",
        probes - calls - tried
    );
    assert!(back <= Duration::from_secs(form(4, 35)), "{back:?}");
    if full() {
        assert!(new.as_secs_f64() <= old.as_secs_f64() * 1.1, "{old:?} became {new:?}");
    }
}
