//! `POST /v1/completions`: a whole gateway in front of simulated engines.

use crate::harness::gateway::Running;
use crate::harness::{Answer, Bench, Provider};
use penstock_simulator::{SimulatedFault, SimulatedServer, SimulatorOptions};
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";
const MODEL: &str =
    "supported_parameters = [\"logprobs\", \"seed\", \"temperature\", \"stop\", \"max_tokens\"]";

async fn engine() -> SimulatedServer {
    SimulatedServer::start(SimulatorOptions::default()).await.unwrap()
}

fn bench(engines: &[(&str, &SimulatedServer, &str)]) -> Bench {
    let add = |bench: Bench, (id, engine, offer): &(&str, &SimulatedServer, &str)| {
        bench.provider_at(id, &format!("http://{}/v1", engine.address), "", offer)
    };
    engines.iter().fold(Bench::new().model(MODEL), add)
}

async fn complete(running: &Running, members: Value) -> Answer {
    let mut body = json!({"model": "m", "prompt": "Once upon a time", "max_tokens": 8});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    running.client.post(PATH, &body).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_with_the_endpoint_continues_the_prompt() {
    let engine = engine().await;
    let running = bench(&[("a", &engine, "completions = true")]).start().await;
    let answer = complete(&running, json!({"user": "someone", "temperature": 0})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["object"], &body["model"]), (&json!("text_completion"), &json!("m")));
    assert!(body["id"].as_str().unwrap().starts_with("cmpl-"));
    assert!(!body["choices"][0]["text"].as_str().unwrap().is_empty());
    assert_eq!(body["usage"]["completion_tokens"], 8);
    // One euro per million tokens of input and two of output; a credit is a cent.
    let prompt = body["usage"]["prompt_tokens"].as_f64().unwrap();
    let credits = (prompt + 16.0) / 1e6 / 0.01;
    assert!((body["billing_cost"]["credits"].as_f64().unwrap() - credits).abs() < 1e-9);
    assert!(body["environment_impact"]["energy_kwh"].as_f64().unwrap() > 0.0);
    assert_eq!(answer.header("x-penstock-provider"), Some("a"));
    let call = engine.control().last_call().unwrap();
    assert_eq!(call.path, "/v1/completions");
    assert_eq!(
        call.json(),
        json!({"model": "theirs", "prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_likelihoods_of_token_ids_are_those_of_the_engine() {
    let engine = engine().await;
    let running = bench(&[("a", &engine, "completions = true")]).start().await;
    let ask =
        json!({"prompt": [[5, 6, 7], [8, 9]], "max_tokens": 0, "echo": true, "logprobs": 1, "seed": 1234});
    let answer = complete(&running, ask).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    let choices = body["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    assert_eq!(choices[0]["text"], "<5><6><7>");
    let logprobs = &choices[0]["logprobs"];
    assert_eq!(logprobs["tokens"], json!(["<5>", "<6>", "<7>"]));
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert!(logprobs["token_logprobs"][2].as_f64().unwrap() < 0.0);
    assert!(logprobs["top_logprobs"][1].is_object());
    assert_eq!(choices[1]["logprobs"]["text_offset"].as_array().unwrap().len(), 2);
    assert_eq!(
        body["usage"],
        json!({"prompt_tokens": 5, "completion_tokens": 0, "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0}, "completion_tokens_details": {"reasoning_tokens": 0}})
    );
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0005", "an echo is not charged as output");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_usage_and_both_objects() {
    let engine = engine().await;
    let running = bench(&[("a", &engine, "completions = true")]).start().await;
    for include in [true, false] {
        let ask =
            json!({"prompt": ["One", "Two"], "stream": true, "stream_options": {"include_usage": include}});
        let answer = complete(&running, ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.text().ends_with("data: [DONE]\n\n"));
        let events = answer.events();
        let last = events.last().unwrap();
        assert_eq!(last["choices"].as_array().unwrap().is_empty(), include);
        assert_eq!(last["usage"]["completion_tokens"], 16);
        assert!(last["billing_cost"]["credits"].as_f64().unwrap() > 0.0);
        assert!(last["environment_impact"].is_object());
        for choice in [0, 1] {
            let of = || events.iter().flat_map(|event| event["choices"].as_array().unwrap());
            let of = || of().filter(|one| one["index"] == choice);
            assert!(!of().map(|one| one["text"].as_str().unwrap()).collect::<String>().is_empty());
            assert_eq!(of().filter(|one| !one["finish_reason"].is_null()).count(), 1);
        }
        assert!(events.iter().all(|event| event["object"] == "text_completion"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_with_chat_alone_is_asked_in_chat() {
    let engine = engine().await;
    let running = bench(&[("a", &engine, "")]).start().await;
    let answer = complete(&running, json!({"prompt": ["Once upon a time"]})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["object"], "text_completion");
    assert!(!body["choices"][0]["text"].as_str().unwrap().is_empty());
    let call = engine.control().last_call().unwrap();
    assert_eq!(call.path, "/v1/chat/completions");
    assert_eq!(call.json()["messages"], json!([{"role": "user", "content": "Once upon a time"}]));
    for (members, field) in [
        (json!({"prompt": [1, 2]}), "prompt"),
        (json!({"echo": true}), "echo"),
        (json!({"logprobs": 1}), "logprobs"),
        (json!({"n": 2}), "n"),
    ] {
        let answer = complete(&running, members).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        assert_eq!(answer.json()["error"]["param"], field);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_fails_is_replaced_and_chat_of_other_offers_serves_what_it_can() {
    let (broken, whole) = (engine().await, engine().await);
    broken.control().add_rule(SimulatedFault::status(503));
    let cheap = "completions = true\nprice = { input = 0.1, output = 0.1 }";
    let running = bench(&[("a", &broken, cheap), ("b", &whole, "completions = true")]).start().await;
    let answer = running
        .client
        .post(PATH, &json!({"model": "m:price", "prompt": ["a", "b"], "n": 2, "max_tokens": 3}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-penstock-provider"), Some("b"));
    assert_eq!(answer.json()["choices"].as_array().unwrap().len(), 4);
    assert_eq!(whole.control().last_call().unwrap().json()["n"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absurd_usage_is_bounded_by_what_was_asked() {
    let provider = Provider::start().await;
    let body = json!({"id": "x", "choices": [{"index": 0, "text": "word", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 4_000_000_000_u64, "completion_tokens": 4_000_000_000_u64}});
    provider.always(crate::harness::script::json_answer(200, &body));
    let running = Bench::new().provider_with("a", &provider, "", "completions = true").start().await;
    let answer = running.client.post(PATH, &json!({"model": "m", "prompt": "Once", "max_tokens": 8})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let usage = &answer.json()["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(1), &json!(1)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_tokens_beyond_the_window_are_not_charged() {
    let provider = Provider::start().await;
    let body = json!({"id": "x", "choices": [{"index": 0, "text": "word", "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 500_000, "completion_tokens": 1}});
    provider.always(crate::harness::script::json_answer(200, &body));
    let running = Bench::new().provider_with("a", &provider, "", "completions = true").start().await;
    let prompt = "a ".repeat(300_000);
    let answer = running.client.post(PATH, &json!({"model": "m", "prompt": prompt, "max_tokens": 8})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["usage"]["prompt_tokens"], 131_072);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_exceeds_the_window_is_refused_with_both_numbers() {
    let engine = engine().await;
    let model = "context_length = 1000\ntokenizer = { builtin = \"gpt-oss\" }";
    let start = |model: &str| {
        Bench::new()
            .model(model)
            .provider_at("a", &format!("http://{}/v1", engine.address), "", "completions = true")
            .start()
    };
    let (counted, uncounted) = (start(model).await, start("context_length = 1000").await);
    let ids = |count: u32| (0..count).collect::<Vec<u32>>();
    for (running, prompt, tokens) in [
        (&counted, json!("a ".repeat(100_000)), 1..=u64::MAX),
        (&counted, json!(["short", "a ".repeat(3_000)]), 3_000..=3_001),
        (&counted, json!(ids(1_000)), 1_000..=1_000),
        (&uncounted, json!(ids(200_000)), 200_000..=200_000),
        (&uncounted, json!(["short", ids(1_001)]), 1_001..=1_001),
    ] {
        let answer = running.client.post(PATH, &json!({"model": "m", "prompt": prompt})).await;
        assert_eq!(answer.status, 400, "{}", answer.text());
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "INFERENCE_3207", "{error}");
        assert_eq!(error["details"]["context_length"], 1_000);
        assert!(tokens.contains(&error["details"]["input_tokens"].as_u64().unwrap()), "{error}");
    }
    assert_eq!(engine.control().calls().len(), 0);
    // If prompt and answer exceed the window, the answer is limited to the rest. A request without output needs no
    // rest.
    for (count, members, sent) in
        [(990, json!({"max_tokens": 100}), 10), (1_000, json!({"max_tokens": 0, "echo": true}), 0)]
    {
        let mut body = json!({"model": "m", "prompt": ids(count)});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let answer = uncounted.client.post(PATH, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(engine.control().last_call().unwrap().json()["max_tokens"], sent);
    }
}
