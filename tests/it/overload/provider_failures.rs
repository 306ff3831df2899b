//! Failing providers: retries are bounded, a dead provider is ejected at once and readmitted, and other models are
//! unaffected.

use super::{CHAT, form, full, percentile};
use crate::harness::gateway::PATIENT;
use crate::harness::script::{Script, ScriptStep, completion, cut, role, sse, status, text};
use crate::harness::{Bench, Client, Provider};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

/// Failures in a row that eject a provider.
const FAILURES: usize = 5;
/// Pause between requests for the model of the failing provider, and between requests for the model of the healthy
/// provider.
const PACE: Duration = Duration::from_millis(20);
const OTHERS: Duration = Duration::from_millis(10);
/// Allowed change of the p99 of the other model's requests, in addition to a tenth. Client, gateway and both
/// providers share two cores; an answer takes about a millisecond, and a tenth of that is less than one time slice of
/// another thread.
const NOISE: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_all_fail_they_are_asked_little_more_than_clients_ask() {
    let requests = form(150, 20_000);
    let mut bench = Bench::new();
    let mut providers = Vec::new();
    // Ejection is disabled, because it would hide the effect of the retry budget.
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
    // The retry budget allows some retries per second, counted over the last ten seconds. At the first request, the
    // ten seconds before it count too.
    let most = 1.2 * requests as f64 + 3.0 * (took + 10.0);
    eprintln!("storm: {requests} requests, {calls} calls in {took:.1} s, at most {most:.0}");
    assert!(calls as f64 <= most, "{calls} calls, at most {most}");
    assert!(calls > requests, "some are tried elsewhere");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_first_token_only_stream_failover_calls_a_provider() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("One "), ScriptStep::Cut]);
    let never = "[routing.breaker]\nconsecutive = 1000\nminimum = 100000";
    let running = Bench::new().settings(never).model("rescue = false").provider("a", &provider).start().await;
    for request in 1..=form(20, 1_000) {
        let answer = running.chat_stream().await;
        assert!(answer.text().contains("\"error\"") && answer.streamed_text() == "One ", "{}", answer.text());
        assert_eq!(provider.calls(), request);
    }
}

/// Returns a script with a good answer, after which the provider closes the connection.
fn parting() -> Script {
    let head = vec![("content-type", "application/json".into()), ("connection", "close".into())];
    vec![
        ScriptStep::Head(200, head),
        ScriptStep::Body(completion("Hello").to_string().into_bytes()),
        ScriptStep::Cut,
    ]
}

/// Sends requests for the healthy provider's own model until stopped; returns start and duration of each request.
fn beside(client: Client, stop: Arc<AtomicBool>) -> JoinHandle<Vec<(Instant, Duration)>> {
    let ask = json!({"model": "n", "messages": [{"role": "user", "content": "Hi"}]});
    tokio::spawn(async move {
        let (mut due, mut times) = (interval(OTHERS), Vec::new());
        due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !stop.load(Ordering::Relaxed) {
            due.tick().await;
            let began = Instant::now();
            let answer = client.post(CHAT, &ask).await;
            times.push((began, began.elapsed()));
            assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
        }
        times
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_provider_is_left_alone_at_once_and_found_again() {
    let (dead, good) = (Provider::start().await, Provider::start().await);
    // The gateway has no idle connection to this provider: a request on a closed idle connection would be a call that
    // does not count as a failure.
    dead.always(parting());
    let rest_max = form("1s", "30s");
    let settings = format!(
        "[routing.breaker]\nconsecutive = {FAILURES}\nrest_max = \"{rest_max}\"\n[routing]\nquick_retry = \"1ms\""
    );
    // The healthy provider is more expensive, so the failing provider is always tried first.
    let dear = "price = { input = 50.0, output = 50.0 }\n[[providers.offers]]\nmodel = \"n\"";
    let running = Bench::new()
        .settings(&settings)
        .provider("dead", &dead)
        .provider_with("good", &good, PATIENT, dear)
        .more("[[models]]\nid = \"n\"\nkind = \"chat\"\ncontext_length = 4096")
        .start()
        .await;
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    let mut due = interval(PACE);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = async || {
        due.tick().await;
        let answer = running.client.post(CHAT, &ask).await;
        assert_eq!(answer.status, 200, "failures are invisible");
        answer.header("x-penstock-provider").unwrap().to_owned()
    };
    let stop = Arc::<AtomicBool>::default();
    let others = beside(running.client.clone(), stop.clone());
    let alive = Instant::now() + Duration::from_secs(form(1, 70));
    while Instant::now() < alive {
        assert_eq!(asked().await, "dead");
    }

    dead.always(cut());
    let (offer, calls, died) =
        (running.gateway.app.config_snapshot().offers[0].clone(), dead.calls(), Instant::now());
    let now = || running.gateway.app.clock.steady_now();
    let open = || !matches!(offer.breaker.lock().state(now()), penstock_routing::BreakerState::Closed);
    while !open() {
        assert_eq!(asked().await, "good");
        assert!(dead.calls() - calls <= FAILURES, "it is not ejected");
    }
    let ejected = Instant::now();
    assert_eq!(dead.calls() - calls, FAILURES, "not one more than it takes");
    // The provider fails long enough for increasing ejection times.
    let dying = Instant::now() + Duration::from_secs(form(3, 70));
    while Instant::now() < dying {
        assert_eq!(asked().await, "good");
    }
    let revived = Instant::now();
    let called: Vec<Instant> = dead.seen()[calls..].iter().map(|seen| seen.at).collect();
    dead.always(parting());
    while asked().await != "dead" {
        assert!(revived.elapsed() < Duration::from_secs(60), "it never came back");
    }
    let back = revived.elapsed();
    stop.store(true, Ordering::Relaxed);

    // All requests for the other model count, including those during the failures and during each probe.
    let times = others.await.unwrap();
    let of = |from: Instant, to: Instant| -> Vec<Duration> {
        times.iter().filter(|(began, _)| (from..to).contains(began)).map(|(_, took)| *took).collect()
    };
    let (mut before, mut after) = (of(times[0].0, died), of(died, revived));
    let (old, new) = (percentile(&mut before, 99), percentile(&mut after, 99));
    let ejected = ejected.duration_since(called[FAILURES - 1]);
    eprintln!(
        "dead: ejected {ejected:?} after failure {FAILURES}, {:?} after the first, probed {} times, back after {back:?}; \
         p99 of the others {old:?} before ({}), {new:?} meanwhile ({})",
        ejected + called[FAILURES - 1].duration_since(called[0]),
        called.len() - FAILURES,
        before.len(),
        after.len()
    );
    assert!(ejected <= Duration::from_secs(1), "{ejected:?}");
    // The first ejection lasts a second, during which the provider gets no requests.
    if let Some(probe) = called.get(FAILURES) {
        let rest = probe.duration_since(called[FAILURES - 1]);
        assert!(rest >= Duration::from_secs(1), "asked again after {rest:?}");
    }
    assert!(back <= Duration::from_secs(form(4, 35)), "{back:?}");
    if full() {
        assert!(new <= old.mul_f64(1.1) + NOISE && old <= new.mul_f64(1.1) + NOISE, "{old:?} became {new:?}");
    }
}
