//! Chat requests from authentication to billing.

use crate::harness::script::{completion, json_answer, stream};
use crate::harness::{Bench, Provider};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_answer_names_its_model_its_footprint_and_its_price() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.chat().await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["model"], "m");
    assert_eq!(body["choices"][0]["message"]["content"], "Hello");
    assert!(body["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert_eq!(body["usage"]["total_tokens"], 18);
    assert_eq!(body["environment_impact"]["provider_id"], "a");
    assert_eq!(body["environment_impact"]["location"], "Paris, France");
    assert_eq!(body["environment_impact"]["country"], "FR");
    // 11 input tokens at 1 EUR and 7 output tokens at 2 EUR a million: 25e-6 EUR, 0.0025 credits.
    assert_eq!(body["billing_cost"]["credits"], json!(0.0025));
    assert_eq!(body["billing_cost"]["paid_with"], "credits");
    assert_eq!(answer.header("x-penstock-provider"), Some("a"));
    assert_eq!(answer.header("x-penstock-flavor"), Some("balanced"));
    assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
    assert_eq!(answer.header("x-request-id"), answer.header("request-id"));
    let sent = provider.last();
    assert_eq!(sent.path, "/v1/chat/completions");
    assert_eq!(sent.json()["model"], "theirs");
    assert!(sent.header("authorization").is_none(), "the client's key stays here");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_flows_and_ends_with_both_objects() {
    let provider = Provider::start().await;
    provider.then(stream(&["One ", "two ", "three"]));
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.chat_stream().await;
    assert_eq!(answer.status, 200);
    assert!(answer.whole);
    assert_eq!(answer.streamed_text(), "One two three");
    penstock_dialect::conformance::check_chat_stream(&answer.body, false).unwrap();
    let events = answer.events();
    let last = events.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    // The request does not ask for usage, so only the last chunk has it, together with the gateway's objects.
    assert!(last["usage"]["completion_tokens"].as_u64().unwrap() > 0);
    assert!(events.iter().rev().skip(1).all(|event| event.get("usage").is_none()));
    assert_eq!(last["environment_impact"]["provider_id"], "a");
    assert!(last["billing_cost"]["credits"].is_number());
    assert_eq!(provider.last().json()["stream_options"]["include_usage"], true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_comes_in_a_chunk_of_its_own_when_asked_for() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let mut ask = running.ask_stream();
    ask["stream_options"] = json!({"include_usage": true});
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    penstock_dialect::conformance::check_chat_stream(&answer.body, true).unwrap();
    let events = answer.events();
    let last = events.last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["prompt_tokens"], 11);
    assert!(last["environment_impact"]["energy_kwh"].is_number());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engines_extras_do_not_reach_the_client() {
    let provider = Provider::start().await;
    let mut theirs = completion("Hello");
    theirs["prompt_logprobs"] = json!(null);
    theirs["kv_transfer_params"] = json!({"secret": 1});
    theirs["choices"][0]["message"]["tool_calls"] = json!([]);
    theirs["choices"][0]["finish_reason"] = json!("eos");
    provider.then(json_answer(200, &theirs));
    let running = Bench::new().provider("a", &provider).start().await;
    let body = running.chat().await.json();
    assert!(body.get("kv_transfer_params").is_none());
    assert!(body["choices"][0]["message"].get("tool_calls").is_none());
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
}
