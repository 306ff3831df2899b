//! Charges for answers that fail, break off or fail over, and for clients that disconnect.

use super::{CHAT, balance, entries, of, one};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{
    Script, ScriptStep, cut, json_answer, plain, role, silent, sse, status, stream, text,
};
use crate::harness::{Bench, Provider, within};
use serde_json::{Value, json};
use std::sync::LazyLock;
use std::time::Duration;

/// Text so long that the prompt is negligible.
static LONG_TEXT: LazyLock<String> = LazyLock::new(|| "x".repeat(40_000) + "end");

/// Asserts exactly one reserve and one void, and no charge.
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
async fn an_error_without_output_is_free_and_its_energy_is_recorded() {
    for script in [status(500), status(503), json_answer(200, &json!({"nonsense": true})), cut()] {
        let (_provider, running) = one(script).await;
        assert_eq!(running.chat().await.status, 503);
        let void = assert_free(&running, "failed").await;
        let footprint: f64 = void["kwh"].as_str().unwrap_or("0").parse().unwrap();
        assert!(footprint > 0.0, "the prompt was worked on: {void}");
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
    // Charged at the price of the offer that answered: 18 tokens at 50 EUR a million.
    assert_eq!((charges.len(), charges[0]["amount"].as_i64()), (1, Some(90_000)));
    assert_eq!(charges[0]["provider"], "good");
    let alone = one(plain("Hello")).await.1.chat().await.json();
    let kwh: f64 = charges[0]["kwh"].as_str().unwrap().parse().unwrap();
    assert!(kwh > alone["environment_impact"]["energy_kwh"].as_f64().unwrap(), "the failed attempt drew too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_cut_by_the_provider_is_free() {
    for then in [
        ScriptStep::Cut,
        ScriptStep::End,
        ScriptStep::Chunk(b"data: {\"error\":{\"message\":\"x\"}}\n\n".to_vec()),
    ] {
        let (_provider, running) = one(vec![sse(), role(), text("One "), text("two "), then]).await;
        let answer = running.chat_stream().await;
        assert!(answer.text().contains("\"error\""), "{}", answer.text());
        assert_free(&running, "failed").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rescued_stream_is_paid_once() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(vec![sse(), role(), text("One "), ScriptStep::Cut]);
    good.always(stream(&["One ", "two"]));
    let running = Bench::new()
        .provider("bad", &bad)
        .provider_with("good", &good, PATIENT, "price = { input = 50.0, output = 50.0 }")
        .start()
        .await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    assert_eq!(running.client.post(CHAT, &ask).await.streamed_text(), "One two");
    let charges = of(&running, "settle").await;
    assert_eq!((charges.len(), charges[0]["provider"].as_str()), (1, Some("good")));
    assert_eq!(charges[0]["amount"], (11 + 2) * 5_000);
}

/// Tests that a client that disconnects after each event pays for the output until then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnected_client_pays_the_received_output_at_each_event() {
    let words = ["Alpha beta gamma ", "delta epsilon zeta ", "eta theta iota "];
    for event in 0..=words.len() {
        let mut script = vec![sse(), role()];
        script.extend(words.iter().take(event).map(|word| text(word)));
        script.push(ScriptStep::Hang);
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
async fn a_disconnect_before_a_plain_answer_is_free() {
    let (provider, running) = one(vec![ScriptStep::Hang]).await;
    let body = running.ask().to_string();
    let open = running.client.open("POST", CHAT, &[], body.as_bytes()).await;
    provider.until_calls(1).await;
    drop(open);
    provider.until_left(1).await;
    assert_free(&running, "left").await;
}

/// Returns the charge of a long stream that broke and was rescued with this script; the client disconnects at
/// `leaves_at`.
async fn taken_over(second: Script, offer: &str, leaves_at: &str) -> Value {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.always(vec![sse(), role(), text(LONG_TEXT.as_str()), ScriptStep::Cut]);
    good.always(second);
    let offer = format!("price = {{ input = 50.0, output = 50.0 }}\n{offer}");
    let running =
        Bench::new().provider("bad", &bad).provider_with("good", &good, PATIENT, &offer).start().await;
    let mut ask = running.ask_stream();
    ask["model"] = json!("m:price");
    let open = running.client.stream_until(CHAT, &ask, leaves_at).await;
    good.until_calls(1).await;
    drop(open);
    let charges = of(&running, "settle").await;
    assert_eq!((bad.calls(), good.calls(), charges.len()), (1, 1, 1));
    charges[0].clone()
}

fn kwh(charge: &Value) -> f64 {
    charge["kwh"].as_str().unwrap().parse().unwrap()
}

/// A disconnect during stream failover is charged once, and each provider's energy counts once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_during_failover_records_each_attempt_once() {
    let (provider, running) = one(vec![sse(), role(), text(LONG_TEXT.as_str()), ScriptStep::Hang]).await;
    drop(running.client.stream_until(CHAT, &running.ask_stream(), "end").await);
    provider.until_left(1).await;
    let alone = of(&running, "settle").await.remove(0);

    // The second provider has not answered yet.
    let charge = taken_over(vec![ScriptStep::Hang], "", "end").await;
    assert_eq!((charge["provider"].as_str(), &charge["amount"]), (Some("bad"), &alone["amount"]));
    assert_eq!((&charge["output"], &charge["kwh"]), (&alone["output"], &alone["kwh"]));

    // The second provider continues the answer, and has sent one word.
    let goes_on = "continuation = \"continue_final_message\"";
    let charge = taken_over(vec![sse(), role(), text(" more"), ScriptStep::Hang], goes_on, "more").await;
    assert_eq!(charge["provider"], "good");
    assert!(charge["output"].as_u64() > alone["output"].as_u64());
    assert!(kwh(&charge) > kwh(&alone) && kwh(&charge) < kwh(&alone) * 1.1, "{charge}\n{alone}");

    // The second provider completes the answer.
    let charge = taken_over(stream(&[" more"]), goes_on, "[DONE]").await;
    assert!(charge["output"].as_u64() > alone["output"].as_u64(), "the client pays for all that it has");
    assert!(kwh(&charge) > kwh(&alone) && kwh(&charge) < kwh(&alone) * 1.1, "{charge}\n{alone}");
}

/// Tests requests that outlast the time to drain: their clients get an error, and pay for what they received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_long_requests_with_an_error_and_charges_the_delivered_part() {
    let provider = Provider::start().await;
    provider.streams(vec![sse(), role(), text("Alpha beta "), ScriptStep::Hang]);
    provider.always(silent());
    let bench = || Bench::new().settings("[routing]\nattempts = 1").provider("a", &provider);
    let running = bench().start().await;
    let client = running.client.clone();
    let mut chat = client.stream_until(CHAT, &running.ask_stream(), "Alpha beta ").await;
    let mut several = running.ask_stream();
    several["n"] = json!(2);
    let mut choices = client.stream_until(CHAT, &several, "Alpha beta ").await;
    let ask = json!({"model": "m", "stream": true, "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    let mut messages = client.stream_until("/v1/messages", &ask, "Alpha beta ").await;
    let ask = running.ask().to_string();
    let mut plain = client.open("POST", CHAT, &[], ask.as_bytes()).await;
    provider.until_calls(4).await;
    let stop = tokio::spawn(running.halt_within(Duration::from_secs(2)));
    let refused = within("the interruption", plain.finish()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")), "{}", refused.text());
    assert_eq!(refused.json()["error"]["code"], "SERVER_9002");
    for stream in [&mut chat, &mut choices, &mut messages] {
        let answer = within("the end of a stream", stream.finish()).await.text();
        assert!(answer.contains("SERVER_9002") && answer.contains("billing_cost"), "{answer}");
    }
    let (parts, interrupted) = within("the stop", stop).await.unwrap();
    assert_eq!(interrupted, 4);
    let running = bench().restart(parts).await;
    let charges = of(&running, "settle").await;
    let amounts: Vec<i64> = charges.iter().map(|charge| charge["amount"].as_i64().unwrap()).collect();
    assert!(amounts.len() == 3 && amounts.iter().all(|amount| *amount > 0), "{charges:?}");
    assert_eq!(of(&running, "void").await[0]["why"], "left");
}
