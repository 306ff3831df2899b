//! Answers that fail, break off or go on elsewhere, and clients that leave: who pays for what was there.

use super::{CHAT, balance, entries, of, one};
use crate::harness::bench::{PATIENT, Running};
use crate::harness::script::{Act, cut, json_answer, plain, role, sse, status, stream, text};
use crate::harness::{Bench, Provider};
use serde_json::{Value, json};

/// Exactly one reserve and one void, and nothing was charged.
async fn assert_free(running: &Running, why: &str) -> Value {
    let all = entries(running).await;
    let acts: Vec<&str> = all.iter().map(|entry| entry["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["reserve", "void"], "{all:?}");
    assert_eq!(all[1]["why"], why);
    assert_eq!(all[0]["amount"], all[1]["held"]);
    assert_eq!(balance(running), 0);
    all[1].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_without_output_is_free_and_what_it_drew_is_kept() {
    for script in [status(500), status(503), json_answer(200, &json!({"nonsense": true})), cut()] {
        let (_provider, running) = one(script).await;
        assert_eq!(running.chat().await.status, 503);
        let void = assert_free(&running, "failed").await;
        let drawn: f64 = void["kwh"].as_str().unwrap_or("0").parse().unwrap();
        assert!(drawn > 0.0, "the prompt was worked on: {void}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_the_attempt_that_answered_is_paid_and_all_are_counted() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(status(500));
    let running = Bench::new()
        .provider("bad", &bad)
        .provider_with("good", &good, PATIENT, "price = { input = 50.0, output = 50.0 }")
        .start()
        .await;
    let mut ask = running.ask();
    ask["model"] = json!("m:price");
    let answer = running.client.post(CHAT, &ask).await;
    assert_eq!(answer.header("x-penstock-provider"), Some("good"));
    let charges = of(&running, "settle").await;
    // At the price of the offer that served: 18 tokens at 50 EUR a million.
    assert_eq!((charges.len(), charges[0]["amount"].as_i64()), (1, Some(90_000)));
    assert_eq!(charges[0]["provider"], "good");
    let alone = one(plain("Hello")).await.1.chat().await.json();
    let kwh: f64 = charges[0]["kwh"].as_str().unwrap().parse().unwrap();
    assert!(kwh > alone["environment_impact"]["energy_kwh"].as_f64().unwrap(), "the failed attempt drew too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_cut_by_the_provider_is_free() {
    for then in [Act::Cut, Act::End, Act::Chunk(b"data: {\"error\":{\"message\":\"x\"}}\n\n".to_vec())] {
        let (_provider, running) = one(vec![sse(), role(), text("One "), text("two "), then]).await;
        let answer = running.chat_stream().await;
        assert!(answer.text().contains("\"error\""), "{}", answer.text());
        assert_free(&running, "failed").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescued_stream_is_paid_once() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(vec![sse(), role(), text("One "), Act::Cut]);
    good.always(stream(&["One ", "two"]));
    let running = Bench::new()
        .provider("bad", &bad)
        .provider_with("good", &good, PATIENT, "price = { input = 50.0, output = 50.0 }")
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    assert_eq!(running.client.post(CHAT, &ask).await.streamed(), "One two");
    let charges = of(&running, "settle").await;
    assert_eq!((charges.len(), charges[0]["provider"].as_str()), (1, Some("good")));
    assert_eq!(charges[0]["amount"], (11 + 2) * 5_000);
}

/// A client that leaves after each event pays what it had until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_pays_what_was_received_at_each_event() {
    let words = ["Alpha beta gamma ", "delta epsilon zeta ", "eta theta iota "];
    for event in 0..=words.len() {
        let mut script = vec![sse(), role()];
        script.extend(words.iter().take(event).map(|word| text(word)));
        script.push(Act::Hang);
        let (provider, running) = one(script).await;
        if event == 0 {
            let body = running.ask_stream().to_string();
            let open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
            provider.until_calls(1).await;
            drop(open);
            provider.until_left(1).await;
            assert_free(&running, "left").await;
            continue;
        }
        let open = running.client.stream_until(CHAT, &running.ask_stream(), words[event - 1]).await;
        drop(open);
        provider.until_left(1).await;
        let charges = of(&running, "settle").await;
        assert_eq!(charges.len(), 1, "after event {event}");
        let bytes: usize = words.iter().take(event).map(|word| word.len()).sum();
        assert_eq!(charges[0]["output"].as_u64(), Some(bytes.div_ceil(4) as u64), "after event {event}");
        assert_eq!(charges[0]["counted"], true, "the gateway's own count is marked");
        assert!(charges[0]["amount"].as_i64().unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_before_a_plain_answer_pays_nothing() {
    let (provider, running) = one(vec![Act::Hang]).await;
    let body = running.ask().to_string();
    let open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
    provider.until_calls(1).await;
    drop(open);
    provider.until_left(1).await;
    assert_free(&running, "left").await;
}
