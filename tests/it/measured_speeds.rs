//! Measured speeds: a few requests are enough to find the faster provider, and the measurements survive reloads and
//! restarts.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{ScriptStep, completion, plain};
use crate::harness::{Bench, Provider};
use serde_json::json;
use std::time::Duration;

const CHEAP: &str = "price = { input = 1.0, output = 1.0 }";
const DEARER: &str = "price = { input = 1.9, output = 1.9 }";
const TOO_DEAR: &str = "price = { input = 2.1, output = 2.1 }";

async fn asked(running: &Running, model: &str, times: usize) {
    let mut ask = running.ask();
    ask["model"] = json!(model);
    for _ in 0..times {
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// Returns a provider that takes 400 ms, and one that answers at once.
async fn slow_and_fast() -> (Provider, Provider) {
    let (slow, fast) = (Provider::start().await, Provider::start().await);
    let body = completion("Hello").to_string().into_bytes();
    let head = ScriptStep::Head(200, vec![("content-type", "application/json".into())]);
    slow.always(vec![ScriptStep::Pause(Duration::from_millis(400)), head, ScriptStep::Body(body)]);
    fast.always(plain("Hello"));
    (slow, fast)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faster_dearer_provider_is_found_under_speed_and_balanced() {
    // All requests belong to the same conversation. Session affinity must not bind it to the slow provider.
    for (flavor, price) in [("speed", DEARER), ("balanced", DEARER), ("speed", CHEAP), ("balanced", CHEAP)] {
        let (slow, fast) = slow_and_fast().await;
        let running = Bench::new()
            .provider_with("slow", &slow, PATIENT, CHEAP)
            .provider_with("fast", &fast, PATIENT, price)
            .start()
            .await;
        asked(&running, &format!("m:{flavor}"), 60).await;
        assert!(fast.calls() >= 50, "{flavor}: {} and {}", slow.calls(), fast.calls());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exploration_costs_at_most_twice_the_price_and_nothing_under_price() {
    for (offer, flavor) in [(TOO_DEAR, "speed"), (DEARER, "price"), (DEARER, "batch")] {
        let (cheap, dear) = (Provider::start().await, Provider::start().await);
        let running = Bench::new()
            .provider_with("cheap", &cheap, PATIENT, CHEAP)
            .provider_with("dear", &dear, PATIENT, offer)
            .start()
            .await;
        asked(&running, &format!("m:{flavor}"), 30).await;
        assert_eq!((cheap.calls(), dear.calls()), (30, 0), "{flavor}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speeds_and_the_last_hour_outlive_reload_and_restart() {
    let (slow, fast) = slow_and_fast().await;
    let bench = || {
        Bench::new()
            .provider_with("slow", &slow, PATIENT, CHEAP)
            .provider_with("fast", &fast, PATIENT, DEARER)
    };
    let running = bench().start().await;
    asked(&running, "m:speed", 10).await;
    // Compared as text, because a number parsed from JSON may differ in the last bit.
    let speeds = |running: &Running| {
        let app = &running.gateway.app;
        let now = app.clock.steady_now();
        let live = app.config_snapshot();
        let text = |number: f64| format!("{number:.3}");
        let each =
            live.offers.iter().map(|offer| offer.latency_stats.lock().tokens_per_second(now).map(text));
        let rates = live.model("m").unwrap().hourly_stats.lock().summary(now);
        let rates = [rates.throughput, rates.latency, rates.popularity].map(|rate| rate.map(text));
        (each.collect::<Vec<_>>(), rates)
    };
    let (measured, rates) = speeds(&running);
    assert!(
        measured.iter().all(Option::is_some) && rates[2].as_deref() == Some("10.000"),
        "{measured:?} {rates:?}"
    );
    running.reload(bench().load(running.storage())).await;
    assert_eq!(speeds(&running), (measured.clone(), rates.clone()));
    let left = running.halt().await;
    let again = bench().restart(left).await;
    assert_eq!(speeds(&again), (measured.clone(), rates.clone()));
    let calls = (slow.calls(), fast.calls());
    asked(&again, "m:speed", 10).await;
    assert_eq!((slow.calls(), fast.calls()), (calls.0, calls.1 + 10), "nothing is measured again");
    // With another address, the provider's offer counts as a new one without measurements, and the stored row of the
    // old one is removed.
    let other = Provider::start().await;
    let moved = || {
        Bench::new()
            .provider_with("slow", &slow, PATIENT, CHEAP)
            .provider_with("fast", &other, PATIENT, DEARER)
    };
    let third = moved().restart(again.halt().await).await;
    let (known, rates) = speeds(&third);
    assert!(known[0].is_some() && known[1].is_none(), "{known:?}");
    assert_eq!(rates[2].as_deref(), Some("20.000"));
    let fourth = bench().restart(third.halt().await).await;
    assert_eq!(speeds(&fourth).0[1], None, "what is not configured is not kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_rows_are_no_reason_not_to_start() {
    use penstock_storage::{StoreTable, Transaction};
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    asked(&running, "m", 3).await;
    let (folder, key) = running.halt().await;
    {
        let store = crate::harness::within("the store", async {
            loop {
                match penstock_storage::open(&folder.path().join("store"), Default::default()) {
                    Ok(store) => break store,
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
            }
        })
        .await;
        let rows = store.scan(StoreTable::Measurements, b"", None, 100).unwrap().rows;
        assert_eq!(rows.len(), 3, "an offer, a model and a grid zone");
        for row in rows {
            store
                .apply(Transaction::new().put(
                    StoreTable::Measurements,
                    row.key,
                    b"{\"v\":1,\"steady\":null}".to_vec(),
                ))
                .unwrap();
        }
    }
    let again = Bench::new().provider("a", &provider).restart((folder, key)).await;
    let app = &again.gateway.app;
    assert_eq!(
        app.config_snapshot().offers[0].latency_stats.lock().tokens_per_second(app.clock.steady_now()),
        None
    );
    // The only allowed row is the current grid intensity, which may have been written already.
    let rows = app.stores.store.scan(StoreTable::Measurements, b"", None, 100).unwrap().rows;
    assert!(rows.iter().all(|row| row.key == b"gFR" && row.value.len() > 40), "{rows:?}");
    asked(&again, "m", 1).await;
}
