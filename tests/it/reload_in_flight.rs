//! Requests in flight during a reload: streams end as they began, and requests under load get the same answers as
//! without a reload.

use crate::harness::script::{ScriptStep, done, finish, plain, role, sse, text, usage};
use crate::harness::{Answer, Bench, Client, Provider, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";
const RELOADS: usize = 10;

/// Returns the data of a stream's events, without the members that differ between requests.
fn events(answer: &Answer) -> Vec<Value> {
    let mut events = answer.events();
    for event in &mut events {
        for name in ["id", "created"] {
            event.as_object_mut().unwrap().remove(name);
        }
    }
    events
}

fn cost(answer: &Answer) -> f64 {
    let cost = answer.events().iter().find_map(|event| event["billing_cost"]["credits"].as_f64());
    cost.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_the_configuration_that_it_began_with() {
    let (provider, other, go) = (Provider::start().await, Provider::start().await, Arc::new(Notify::new()));
    let mut script = vec![sse(), role(), text("One "), ScriptStep::Wait(go.clone()), text("two")];
    script.extend([finish("stop"), usage(11, 2), done(), ScriptStep::End]);
    provider.streams(script);
    other.always(plain("other"));
    let bench =
        |id: &str, provider: &Provider, price: &str| Bench::new().provider_with(id, provider, "", price);
    let old = || bench("a", &provider, "price = { input = 1.0, output = 2.0 }");
    let running = old().start().await;
    let opened = |client: Client, ask: Value| async move { client.stream_until(CHAT, &ask, "One ").await };
    let mut undisturbed = opened(running.client.clone(), running.ask_stream()).await;
    go.notify_one();
    let undisturbed = undisturbed.finish().await;
    assert!(undisturbed.whole && undisturbed.text().contains("[DONE]"), "{}", undisturbed.text());
    let mut across = opened(running.client.clone(), running.ask_stream()).await;
    for number in 0..RELOADS {
        // The reload replaces the provider of the running request, and changes all prices.
        let price = format!("price = {{ input = {number}.5, output = 90.0 }}");
        running.reload(bench("b", &other, &price).load(running.storage())).await;
        assert_eq!(running.chat().await.header("x-penstock-provider"), Some("b"));
    }
    go.notify_one();
    let across = across.finish().await;
    assert!(across.whole);
    let stable = |answer: &Answer| {
        let mut events = events(answer);
        // The values of `environment_impact` depend on measured times, so they are not compared.
        events.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("environment_impact")));
        events
    };
    assert_eq!(stable(&across), stable(&undisturbed));
    assert_eq!(cost(&across), cost(&undisturbed), "the price of when it began");
    assert_eq!((provider.left(), running.gateway.app.in_flight_exchanges()), (0, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_the_same_answers_through_reload_after_reload() {
    let provider = Provider::start().await;
    provider.always(plain("Hello"));
    provider.streams(crate::harness::script::stream(&["Hel", "lo"]));
    let bench = |reload: usize| {
        Bench::new().settings(&format!("[routing]\nattempts = {}", 1 + reload % 2)).provider("a", &provider)
    };
    let running = bench(0).start().await;
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let crowd: Vec<_> = (0..4)
        .map(|number| {
            let (client, over, answered) = (running.client.clone(), over.clone(), answered.clone());
            let ask = if number % 2 == 0 { running.ask() } else { running.ask_stream() };
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let answer = client.post(CHAT, &ask).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                    let text = match answer.header("content-type") {
                        Some(kind) if kind.starts_with("text/event-stream") => answer.streamed_text(),
                        _ => answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
                    };
                    assert_eq!((text.as_str(), answer.whole), ("Hello", true), "{}", answer.text());
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for reload in 1..=RELOADS {
        let before = answered.load(Ordering::SeqCst);
        running.reload(bench(reload).load(running.storage())).await;
        until("answers with it", || {
            crowd.iter().any(tokio::task::JoinHandle::is_finished)
                || answered.load(Ordering::SeqCst) >= before + crowd.len()
        })
        .await;
    }
    over.store(true, Ordering::SeqCst);
    for client in crowd {
        client.await.unwrap();
    }
    assert!(answered.load(Ordering::SeqCst) >= 4 * RELOADS);
    assert_eq!(json!(provider.left()), json!(0));
    running.stop().await;
}
