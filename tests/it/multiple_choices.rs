//! Several choices (`n`) from providers that return one at a time: each choice is a separate request, and the client
//! gets one answer.

mod fallback_models;
mod learned;

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::provider::RecordedRequest;
use crate::harness::script::{
    Script, ScriptStep, done, finish, json_answer, message, plain, role, sse, status, stream, text, usage,
};
use crate::harness::{Answer, Bench, Provider, batch_jobs, within};
use parking_lot::Mutex;
use penstock_dialect::conformance;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";
/// Supported parameters that include `n`.
const LISTED: &str = r#"supported_parameters = ["stream", "n", "temperature", "max_tokens"]"#;
/// No quick retries, so that calls can be counted.
const CALM: &str = "[routing]\nquick_retry = \"0s\"";
const DEAR: &str = "price = { input = 50.0, output = 50.0 }";

fn bench() -> Bench {
    Bench::new().settings(CALM)
}

fn ask(n: u32) -> Value {
    json!({"model": "m", "n": n, "messages": [{"role": "user", "content": "Hi"}]})
}

fn ask_stream(n: u32) -> Value {
    json!({"model": "m", "n": n, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Hi"}]})
}

async fn post(running: &Running, ask: &Value) -> Answer {
    running.client.post(CHAT, ask).await
}

fn balance(running: &Running) -> i64 {
    running.gateway.app.ledger.balance("default").credits.amount
}

/// Asserts a good plain answer; returns the texts of its choices in order.
fn texts(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    let choices = body["choices"].as_array().unwrap();
    for (at, choice) in choices.iter().enumerate() {
        assert_eq!(choice["index"], at, "{body}");
        assert_eq!(choice["finish_reason"], "stop");
    }
    assert!(body["environment_impact"]["energy_kwh"].as_f64().unwrap() > 0.0);
    assert!(body["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
    choices.iter().map(|choice| choice["message"]["content"].as_str().unwrap().to_owned()).collect()
}

/// Asserts a good stream; returns the texts of its choices in order.
fn streamed(answer: &Answer, n: u64) -> Vec<String> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.whole);
    assert_eq!(conformance::check_chat_stream(&answer.body, true), Ok(()), "{}", answer.text());
    let of = |index: u64| {
        let events = answer.events();
        let choices = events.iter().flat_map(|event| event["choices"].as_array().unwrap().clone());
        let mine = choices.filter(|choice| choice["index"] == index);
        mine.filter_map(|choice| choice["delta"]["content"].as_str().map(str::to_owned)).collect()
    };
    (0..n).map(of).collect()
}

fn last(answer: &Answer) -> Value {
    answer.events().last().unwrap().clone()
}

/// Starts a provider whose script depends on the request; returns the provider, and the list in which its requests
/// are recorded.
async fn engine(
    pick: impl Fn(&RecordedRequest) -> Script + Send + Sync + 'static,
) -> (Provider, Arc<Mutex<Vec<Value>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let recorded = seen.clone();
    let provider = Provider::with_selector(Box::new(move |asked: &RecordedRequest| {
        recorded.lock().push(asked.json());
        pick(asked)
    }))
    .await;
    (provider, seen)
}

/// Returns a plain answer with these texts and this usage.
fn many(texts: &[&str], output: u64) -> Script {
    let choice = |(index, text): (usize, &&str)| {
        json!({"index": index, "finish_reason": "stop",
        "message": {"role": "assistant", "content": text}})
    };
    let choices: Vec<Value> = texts.iter().enumerate().map(choice).collect();
    json_answer(
        200,
        &json!({"id": "p", "object": "chat.completion", "created": 1, "model": "theirs", "choices": choices,
        "usage": {"prompt_tokens": 11, "completion_tokens": output, "total_tokens": 11 + output}}),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_whose_list_lacks_n_is_asked_for_each_choice() {
    let provider = Provider::start().await;
    for content in ["One", "Two", "Three"] {
        provider.then(plain(content));
    }
    let running = bench().provider("a", &provider).start().await;
    let before = balance(&running);
    let answer = post(&running, &ask(3)).await;
    let mut contents = texts(&answer);
    contents.sort();
    assert_eq!(contents, ["One", "Three", "Two"]);
    assert!(provider.seen().iter().all(|seen| seen.json().get("n").is_none()));
    assert_eq!(provider.calls(), 3);
    let body = answer.json();
    assert_eq!(
        (&body["usage"]["prompt_tokens"], &body["usage"]["completion_tokens"]),
        (&json!(33), &json!(21))
    );
    assert_eq!(body["model"], "m");
    assert_eq!(answer.header("x-penstock-provider"), Some("a"));
    // 33 at 1 EUR a million, 21 at 2, 0.01 EUR a credit.
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0075");
    assert_eq!(before - balance(&running), 7_500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_many_choices_a_request_may_ask_for_is_configured() {
    for (model, provider_lines, offer, n, calls) in [
        (LISTED, "", "", 2, 1),
        ("", "", "max_n = 2", 2, 1),
        ("", "", "max_n = 2", 3, 3),
        (LISTED, "", "max_n = 1", 2, 2),
        (LISTED, "max_n = 1", "", 2, 2),
        (LISTED, "max_n = 1", "max_n = 10", 2, 1),
        ("supported_parameters = []", "", "", 2, 1),
        ("supported_parameters = []\nmax_n = 1", "", "", 2, 2),
        (LISTED, "", "supported_parameters = [\"stream\"]", 2, 2),
    ] {
        let (provider, seen) = engine(|asked| match asked.json()["n"].as_u64() {
            Some(2) => many(&["One", "Two"], 7),
            _ => plain("One"),
        })
        .await;
        let lines = format!("{PATIENT}\n{provider_lines}");
        let running = bench().model(model).provider_with("a", &provider, &lines, offer).start().await;
        assert_eq!(texts(&post(&running, &ask(n)).await).len() as u64, u64::from(n));
        assert_eq!(seen.lock().len(), calls, "{model} {provider_lines} {offer} {n}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_choices_come_interleaved_with_one_end() {
    let go = Arc::new(Notify::new());
    let provider = Provider::start().await;
    for content in ["One", "Two"] {
        provider.then(vec![
            sse(),
            role(),
            text(content),
            ScriptStep::Wait(go.clone()),
            text("!"),
            finish("stop"),
            usage(11, 2),
            done(),
            ScriptStep::End,
        ]);
    }
    let running = bench().provider("a", &provider).start().await;
    let mut open = running.client.stream_until(CHAT, &ask_stream(2), "\"content\":\"One\"").await;
    within("the other choice", open.until("\"content\":\"Two\"")).await;
    assert!(
        !String::from_utf8_lossy(&open.bytes).contains("finish_reason\":\"stop"),
        "no choice ends before all do"
    );
    go.notify_one();
    go.notify_one();
    let answer = within("the end", open.finish()).await;
    let mut contents = streamed(&answer, 2);
    contents.sort();
    assert_eq!(contents, ["One!", "Two!"]);
    let end = last(&answer);
    assert_eq!((&end["usage"]["prompt_tokens"], &end["usage"]["completion_tokens"]), (&json!(22), &json!(4)));
    assert!(end["billing_cost"]["credits"].as_f64().unwrap() > 0.0, "{end}");
    assert_eq!(answer.text().matches("billing_cost").count(), 1);
    assert_eq!(answer.header("x-penstock-provider"), Some("a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_include_usage_the_objects_stand_on_the_last_finish() {
    let provider = Provider::start().await;
    let running = bench().provider("a", &provider).start().await;
    let mut ask = ask_stream(3);
    ask.as_object_mut().unwrap().remove("stream_options");
    let answer = post(&running, &ask).await;
    assert_eq!(conformance::check_chat_stream(&answer.body, false), Ok(()), "{}", answer.text());
    assert!(last(&answer)["environment_impact"]["energy_kwh"].as_f64().unwrap() > 0.0);
    assert_eq!(last(&answer)["choices"][0]["index"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_messages_provider_gives_several_choices() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &message("Hello", "end_turn")));
    let lines = format!("{PATIENT}\ndialects = [\"messages\"]");
    let running = bench().model(LISTED).provider_with("a", &provider, &lines, "").start().await;
    assert_eq!(texts(&post(&running, &ask(2)).await), ["Hello", "Hello"]);
    assert_eq!(provider.calls(), 2);
    assert_eq!(provider.last().path, "/v1/messages");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_choice_that_fails_goes_to_another_provider_alone() {
    let (a, b) = (Provider::start().await, Provider::start().await);
    a.then(plain("Hello")).then(status(503)).always(plain("Hello"));
    let running = bench().provider("a", &a).provider_with("b", &b, PATIENT, DEAR).start().await;
    let mut ask = ask(3);
    ask["model"] = json!("m:price");
    let answer = post(&running, &ask).await;
    assert_eq!(texts(&answer), ["Hello", "Hello", "Hello"]);
    assert_eq!((a.calls(), b.calls()), (3, 1));
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 33);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_choice_that_breaks_is_rescued_alone_and_no_text_comes_twice() {
    let (a, b) = (Provider::start().await, Provider::start().await);
    a.then(vec![sse(), role(), text("Hel"), ScriptStep::Cut]).always(stream(&["Hel", "lo"]));
    b.always(stream(&["Hello"]));
    let running = bench().provider("a", &a).provider_with("b", &b, PATIENT, DEAR).start().await;
    let mut ask = ask_stream(2);
    ask["model"] = json!("m:price");
    assert_eq!(streamed(&post(&running, &ask).await, 2), ["Hello", "Hello"]);
    assert_eq!((a.calls(), b.calls()), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unanswered_choice_fails_the_request_without_a_charge() {
    let provider = Provider::start().await;
    provider.then(plain("Hello")).then(status(503)).always(plain("Hello"));
    let running = bench().provider("a", &provider).start().await;
    let before = balance(&running);
    let answer = post(&running, &ask(3)).await;
    assert_eq!((answer.status, &answer.json()["error"]["code"]), (503, &json!("INFERENCE_3103")));
    assert_eq!(balance(&running), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_which_a_choice_fails_ends_with_an_error_and_stops_the_others() {
    let provider = Provider::start().await;
    let go = Arc::new(Notify::new());
    provider.then(vec![sse(), role(), text("One"), ScriptStep::Hang]);
    provider.then([vec![ScriptStep::Wait(go.clone())], status(503)].concat());
    let running = bench().model("rescue = false").provider("a", &provider).start().await;
    let before = balance(&running);
    let mut open = running.client.stream_until(CHAT, &ask_stream(2), "\"content\":\"One\"").await;
    provider.until_calls(2).await;
    go.notify_one();
    let answer = within("the end", open.finish()).await;
    assert_eq!(conformance::check_chat_stream(&answer.body, true), Ok(()), "{}", answer.text());
    assert_eq!(last(&answer)["error"]["code"], "INFERENCE_3103", "{}", answer.text());
    assert!(!answer.text().contains("\"finish_reason\":\"stop\""));
    assert_eq!(balance(&running), before);
    provider.until_left(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnect_stops_all_choices_and_charges_the_received_output() {
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("Forty bytes of text, and not one more .."), ScriptStep::Hang]);
    let running = bench().provider("a", &provider).start().await;
    let before = balance(&running);
    let mut open =
        running.client.stream_until(CHAT, &ask_stream(2), "\"index\":0,\"delta\":{\"content\":\"F").await;
    within("the other choice", open.until("\"index\":1,\"delta\":{\"content\":\"F")).await;
    drop(open);
    provider.until_left(2).await;
    crate::harness::until("the charge", || balance(&running) < before).await;
    // The charge covers at least ten output tokens for each of the two choices.
    assert!(before - balance(&running) >= 2 * 10 * 200, "{}", before - balance(&running));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn choices_queue_at_a_provider_with_few_slots() {
    for max_in_flight in [1, 2] {
        let provider = Provider::start().await;
        let lines = format!("{PATIENT}\nmax_in_flight = {max_in_flight}");
        let running = bench().provider_with("a", &provider, &lines, "").start().await;
        assert_eq!(texts(&post(&running, &ask(5)).await).len(), 5);
        assert_eq!(streamed(&post(&running, &ask_stream(5)).await, 5).len(), 5);
        assert_eq!(provider.calls(), 10);
        assert!(provider.max_in_flight() <= max_in_flight, "{} of {max_in_flight}", provider.max_in_flight());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_a_batch_may_want_several_choices() {
    let provider = Provider::start().await;
    let running = bench().provider("a", &provider).start().await;
    let client = &running.client;
    let batch = batch_jobs::batch(client, &batch_jobs::line_with("one", ask(2))).await;
    let ended = batch_jobs::ended(client, &batch).await;
    let results = batch_jobs::results(client, &ended).await;
    let response = &results["one"]["response"];
    assert_eq!(response["choices"][1]["index"], 1, "{results:?}");
    assert_eq!(response["usage"]["prompt_tokens"], 22);
    assert!(response["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_number_that_is_none_is_refused_by_name() {
    let provider = Provider::start().await;
    let running = bench().provider("a", &provider).start().await;
    for n in [json!(0), json!(11), json!(128), json!(-1), json!(1.5), json!("2"), json!(4294967297u64)] {
        let mut ask = ask(1);
        ask["n"] = n.clone();
        let answer = post(&running, &ask).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("n")), "{n}");
    }
    assert_eq!(provider.calls(), 0);
    assert_eq!(texts(&post(&running, &ask(10)).await).len(), 10);
}
