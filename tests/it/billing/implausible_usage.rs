//! Providers that report impossible usage and models with invalid output: the charge, and whether the failure counts
//! against the provider.

use super::{CHAT, balance, of, one};
use crate::harness::batch_jobs::{batch, ended, line_with, results};
use crate::harness::script::{
    Script, ScriptStep, completion, delta, done, event, finish, json_answer, role, scores, sse, status, text,
    usage, vectors,
};
use crate::harness::{Bench, Provider};
use crate::transcriptions;
use serde_json::{Value, json};

const ABSURD: u64 = 2_147_483_647;
/// The gateway's own count for a prompt with "Hi": one token per four bytes of the messages.
const PROMPT: u64 = 8;
const MESSAGES: &str = "/v1/messages";

/// Charge for the only answer: prompt tokens, output tokens, true if the gateway counted them, and micro-credits.
async fn charged(running: &crate::harness::gateway::Running) -> (u64, u64, bool, i64) {
    let charges = of(running, "settle").await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    let number = |name: &str| charges[0][name].as_u64().unwrap_or(0);
    let amount = charges[0]["amount"].as_i64().unwrap();
    (number("input"), number("output"), charges[0]["counted"] == true, amount)
}

fn plain_using(text: &str, usage: &Value) -> Script {
    let mut body = completion(text);
    body["usage"] = usage.clone();
    json_answer(200, &body)
}

fn stream_using(text_: &str, usage: &Value) -> Script {
    let counted = json!({"id": "p", "object": "chat.completion.chunk", "created": 1, "model": "theirs",
        "choices": [], "usage": usage});
    vec![sse(), role(), text(text_), finish("stop"), event(&counted), done(), ScriptStep::End]
}

/// Returns the charge of an answer with this text and usage. Asserts that it is the same plain, streamed, and in both
/// dialects, and that it equals the usage in the client's answer.
async fn answered(text: &str, max_tokens: Option<u64>, usage: Value) -> (u64, u64, bool) {
    let mut seen = None;
    for (path, stream) in [(CHAT, false), (CHAT, true), (MESSAGES, false), (MESSAGES, true)] {
        let script = if stream { stream_using(text, &usage) } else { plain_using(text, &usage) };
        let (_provider, running) = one(script).await;
        let mut ask =
            json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream});
        match max_tokens {
            Some(most) => ask["max_tokens"] = json!(most),
            None if path == MESSAGES => continue,
            None => {}
        }
        if stream && path == CHAT {
            ask["stream_options"] = json!({"include_usage": true});
        }
        let answer = running.client.post(path, &ask).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let (input, output, counted, amount) = charged(&running).await;
        // 1 EUR a million in, 2 EUR a million out: 100 and 200 micro-credits a token.
        assert_eq!(amount as u64, 100 * input + 200 * output, "{usage} {path} {stream}");
        let reported = if path == CHAT {
            format!("\"completion_tokens\":{output}")
        } else {
            format!("\"output_tokens\":{output}")
        };
        assert!(answer.text().contains(&reported), "{reported}: {}", answer.text());
        assert_eq!(
            *seen.get_or_insert((input, output, counted)),
            (input, output, counted),
            "{path} {stream}"
        );
    }
    seen.unwrap()
}

fn tokens(input: impl Into<Value>, output: impl Into<Value>) -> Value {
    json!({"prompt_tokens": input.into(), "completion_tokens": output.into()})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_counted_up_to_the_allowed_maximum() {
    let long = "word ".repeat(40);
    assert_eq!(answered(&long, Some(50), tokens(11, 50)).await, (11, 50, false));
    // If the reported output exceeds the limit, the gateway counts itself: one token per four bytes.
    assert_eq!(answered(&long, Some(51), tokens(11, 52)).await, (11, 50, true));
    assert_eq!(answered("Hello", Some(50), tokens(11, ABSURD)).await, (11, 2, true));
    // Output tokens beyond `max_tokens` are not charged.
    assert_eq!(answered(&long, Some(10), tokens(11, 11)).await, (11, 10, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_is_counted_up_to_the_bound_of_its_bytes() {
    assert_eq!(answered("Hello", None, tokens(11, 5 + 64)).await, (11, 69, false));
    assert_eq!(answered("Hello", None, tokens(11, 5 + 65)).await, (11, 2, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prompt_counts_up_to_its_bytes() {
    // Highest plausible prompt tokens: one per byte of the messages in the body, and 1,024 for the chat template.
    let most = r#"[{"role":"user","content":"Hi"}]"#.len() as u64 + 1_024;
    assert_eq!(answered("Hello", Some(50), tokens(most, 2)).await, (most, 2, false));
    assert_eq!(answered("Hello", Some(50), tokens(most + 1, 2)).await, (PROMPT, 2, true));
    assert_eq!(answered("Hello", Some(50), tokens(ABSURD, ABSURD)).await, (PROMPT, 2, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_token_number_is_replaced_by_the_gateways_count() {
    for absurd in
        [json!(-1), json!(1.5), json!("many"), json!(null), json!([1]), json!(1e300), json!(u64::MAX)]
    {
        assert_eq!(answered("Hello", Some(50), tokens(absurd.clone(), absurd)).await, (PROMPT, 2, true));
    }
    assert_eq!(answered("Hello", Some(50), tokens("11", "3")).await, (11, 3, false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absurd_figure_is_counted_in_a_metric_and_costs_no_more_than_was_reserved() {
    let (_provider, running) = one(plain_using("Hello", &tokens(ABSURD, ABSURD))).await;
    let mut ask = running.ask();
    ask["max_tokens"] = json!(50);
    running.client.post(CHAT, &ask).await;
    let reserved = of(&running, "reserve").await[0]["amount"].as_i64().unwrap();
    assert!(-balance(&running) <= reserved, "{} of {reserved}", balance(&running));
    let text = running.admin().get("/metrics").await.text();
    let line = "penstock_usage_overstated_total{figure=\"tokens\",model=\"m\",provider=\"a\"} 1";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn implausibly_large_energy_is_ignored() {
    for (kwh, method) in [
        (json!(0.000_01), "measured"),
        (json!(1e9), "benchmark"),
        (json!(-1), "benchmark"),
        (json!("NaN"), "benchmark"),
    ] {
        let mut body = completion("Hello");
        body["energy"] = json!({"energy_kwh": kwh});
        let (_provider, running) = one(json_answer(200, &body)).await;
        let answer = running.chat().await.json();
        assert_eq!(answer["environment_impact"]["provenance"]["method"], method, "{kwh}");
        assert!(answer["environment_impact"]["energy_kwh"].as_f64().unwrap() < 0.001, "{kwh}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_a_batch_is_bounded_too() {
    let provider = Provider::start().await;
    provider.always(plain_using("Hello", &tokens(ABSURD, ABSURD)));
    let running = Bench::new().provider("a", &provider).start().await;
    let body = json!({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]});
    let made = batch(&running.client, &(line_with("one", body) + "\n")).await;
    let end = ended(&running.client, &made).await;
    let found = results(&running.client, &end).await;
    assert_eq!(found["one"]["response"]["usage"]["completion_tokens"], 2, "{found:?}");
    let (input, output, counted, amount) = charged(&running).await;
    assert_eq!((input, output, counted, amount), (PROMPT, 2, true, 600), "half the price");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embeddings_are_bounded_by_their_texts() {
    let ask = json!({"model": "e", "input": "Hi"});
    // Highest plausible tokens: the bytes of the body and 128 for the input, or the context window if that is
    // smaller.
    let bytes = ask.to_string().len() as u64 + 128;
    for (window, most) in [(4_096, bytes), (150, 150)] {
        let provider = Provider::start().await;
        let toml = format!(
            "[[models]]\nid = \"e\"\nkind = \"embedding\"\ncontext_length = {window}\nprice = {{ input = 1.0 }}\n\
             [[providers]]\nid = \"p\"\noperator = \"T\"\ncountry = \"FI\"\ncity = \"Turku\"\n\
             base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"e\"\n",
            provider.address
        );
        let running = Bench::new().more(&toml).start().await;
        for (stated, reported) in [(most, most), (most + 1, 1), (ABSURD, 1)] {
            provider.then(vectors(&[&[1.0, 2.0]], stated));
            let answer = running.client.post("/v1/embeddings", &ask).await.json();
            assert_eq!(answer["usage"]["prompt_tokens"].as_u64(), Some(reported), "{stated}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rerank_is_bounded_by_its_documents_and_the_query_beside_each() {
    let provider = Provider::start().await;
    let running = Bench::new().kind("rerank").provider("p", &provider).start().await;
    let ask = json!({"model": "m", "query": "What?", "documents": ["A pipe.", "A gate."]});
    // Highest plausible tokens: the bytes of the body, and for each document the bytes of the quoted query and 128.
    let most = ask.to_string().len() as u64 + 2 * (7 + 128);
    let mut own = None;
    for stated in [most, most + 1, ABSURD, u64::MAX] {
        provider.then(scores(&[0.5, 0.25], stated));
        let answer = running.client.post("/v1/rerank", &ask).await.json();
        let reported = answer["usage"]["total_tokens"].as_u64().unwrap();
        if stated == most {
            assert_eq!(reported, most);
        } else {
            // The usage is the gateway's own count, regardless of the reported usage.
            assert!((1..30).contains(&reported), "{answer}");
            assert_eq!(*own.get_or_insert(reported), reported);
        }
        let charges = of(&running, "settle").await;
        let charge = charges.iter().max_by_key(|charge| charge["seq"].as_u64()).unwrap();
        assert_eq!(
            (charge["input"].as_u64(), charge["amount"].as_u64()),
            (Some(reported), Some(100 * reported))
        );
        assert_eq!(charge["counted"] == true, stated != most);
    }
    let text = running.admin().get("/metrics").await.text();
    let line = "penstock_usage_overstated_total{figure=\"tokens\",model=\"m\",provider=\"p\"} 3";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audio_is_charged_by_its_measured_duration() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &json!({"text": "a", "duration": 2_000_000})));
    let running = transcriptions::hears(&[("a", &provider, "")]).start().await;
    let mut wav = crate::sounds::wav(2000);
    wav[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
    let form = transcriptions::form(&[("model", false, b"w"), ("file", true, &wav)]);
    let answer = running.client.send("POST", transcriptions::PATH, &[transcriptions::TYPE], &form).await;
    assert_eq!(answer.json()["usage"]["seconds"], json!(2), "{}", answer.text());
    assert_eq!(answer.json()["billing_cost"]["credits"], json!(0.02));
}

/// A disconnected client pays only the delivered output, regardless of the usage that its provider reports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disconnected_client_pays_at_most_the_delivered_output() {
    for (stated, expected, counted) in
        [(5, 5, false), (28, 28, false), (29, 7, true), (5_000, 7, true), (1, 7, true)]
    {
        let mut early = delta(json!({"content": "Twenty-eight bytes of words."}), None);
        early["usage"] = tokens(11, stated);
        let expected = if stated == 5 { 7 } else { expected };
        let (provider, running) = one(vec![sse(), role(), event(&early), ScriptStep::Hang]).await;
        drop(running.client.stream_until(CHAT, &running.ask_stream(), "words.").await);
        provider.until_left(1).await;
        let (_, output, marked, _) = charged(&running).await;
        assert_eq!((output, marked), (expected, counted || stated == 5), "{stated}");
    }
}

fn call(arguments: &str) -> ScriptStep {
    let call =
        json!({"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}});
    event(&delta(json!({"tool_calls": [call]}), None))
}

fn tool_ask(stream: bool) -> Value {
    json!({"model": "m", "max_tokens": 500, "stream": stream, "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}]})
}

/// A prompt can make a model write tool arguments that are not a JSON object. The client pays, the gateway tries no
/// other provider, and ejects no offer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_model_writes_no_object_is_paid_and_asked_of_one_provider() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let script = || {
        vec![
            sse(),
            role(),
            text("Some text."),
            call("no object"),
            finish("tool_calls"),
            usage(11, 9),
            done(),
            ScriptStep::End,
        ]
    };
    first.always(script());
    second.always(script());
    let running = Bench::new().provider("a", &first).provider("b", &second).start().await;
    for number in 1..=7 {
        let answer = running.client.post(MESSAGES, &tool_ask(true)).await;
        assert_eq!(answer.status, 200);
        let body = answer.text();
        assert!(
            body.contains("Some text.") && body.contains("event: error") && !body.contains("message_stop"),
            "{body}"
        );
        assert!(
            body.contains("\"billing_cost\"") && body.contains("\"provider_id\""),
            "the error tells its cost: {body}"
        );
        assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
        let charges = of(&running, "settle").await;
        assert_eq!((charges.len(), charges[0]["output"].as_u64()), (number, Some(9)));
        assert_eq!(first.calls() + second.calls(), number, "nobody else is asked");
    }
    assert_eq!(balance(&running), -7 * (11 * 100 + 9 * 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_answer_has_arguments_that_are_no_object_and_is_paid() {
    let mut body = completion("Some text.");
    body["choices"][0]["message"]["tool_calls"] =
        json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "[1, 2"}}]);
    body["choices"][0]["finish_reason"] = json!("tool_calls");
    let (provider, running) = one(json_answer(200, &body)).await;
    let answer = running.client.post(MESSAGES, &tool_ask(false)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["content"][1]["input"], json!({"INVALID_JSON": "[1, 2"}));
    assert_eq!((provider.calls(), charged(&running).await.3), (1, 11 * 100 + 7 * 200));
}

/// A model writes more tool calls than the gateway passes on: the client pays for the delivered output, and the
/// gateway tries no other provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_too_many_calls_is_paid_and_not_rescued() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    let call = |index: usize| {
        let call =
            json!({"index": index, "id": format!("c{index}"), "function": {"name": "f", "arguments": "{}"}});
        event(&delta(json!({"tool_calls": [call]}), None))
    };
    let mut script = vec![sse(), role(), text("Some text.")];
    script.extend((0..=128).map(call));
    script.extend([finish("tool_calls"), usage(11, 9), done(), ScriptStep::End]);
    first.always(script);
    second.always(status(500));
    let running = Bench::new()
        .provider("a", &first)
        .provider_with("b", &second, "", "price = { input = 90.0, output = 90.0 }")
        .start()
        .await;
    let mut ask = tool_ask(true);
    ask["model"] = json!("m:price");
    let answer = running.client.post(MESSAGES, &ask).await;
    assert!(
        answer.text().contains("Some text.") && answer.text().contains("event: error"),
        "{}",
        answer.text()
    );
    let (_, output, counted, amount) = charged(&running).await;
    assert!(output > 0 && counted && amount > 0, "{output} {amount}");
    assert_eq!((first.calls(), second.calls()), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delta_of_an_invalid_type_fails_over_without_a_charge() {
    let odd = delta(json!({"content": 5}), None);
    let mut other = delta(json!({"content": "Hello"}), None);
    other["choices"][0]["index"] = json!(5);
    let mut whole = completion("Hello");
    whole["choices"][0]["message"]["content"] = json!(5);
    for (script, stream) in [
        (vec![sse(), role(), event(&odd), finish("stop"), usage(11, 7), done(), ScriptStep::End], true),
        (vec![sse(), role(), event(&other), finish("stop"), usage(11, 7), done(), ScriptStep::End], true),
        (json_answer(200, &whole), false),
    ] {
        let (_provider, running) = one(script).await;
        let answer = if stream { running.chat_stream().await } else { running.chat().await };
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert_eq!((of(&running, "settle").await.len(), balance(&running)), (0, 0));
    }
}
