//! Providers that speak responses, asked by clients of every dialect.

use crate::harness::batch_jobs::{ended, results, uploaded};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::script::{Script, ScriptStep, json_answer, sse, status, stream};
use crate::harness::{Answer, Bench, Provider};
use penstock_dialect::conformance;
use penstock_simulator::{FaultRule, SimulatedFault, SimulatedServer, SimulatorOptions};
use serde_json::{Value, json};

const SPEAKS: &str = "dialects = [\"responses\"]";
const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const PATHS: [&str; 3] = [CHAT, MESSAGES, RESPONSES];

fn ask(path: &str, stream: bool, text: &str) -> Value {
    let mut body = json!({"model": "m", "stream": stream});
    match path {
        RESPONSES => body["input"] = json!(text),
        _ => body["messages"] = json!([{"role": "user", "content": text}]),
    }
    body[if path == RESPONSES { "max_output_tokens" } else { "max_tokens" }] = json!(100);
    body
}

/// The text of an answer that follows the grammar of its dialect.
fn answered(path: &str, streamed: bool, answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    if !streamed {
        let body = answer.json();
        return match path {
            CHAT => body["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
            MESSAGES => body["content"][0]["text"].as_str().unwrap().to_owned(),
            _ => {
                assert_eq!(conformance::check_response(&body), Ok(()));
                body["output"][0]["content"][0]["text"].as_str().unwrap().to_owned()
            }
        };
    }
    let checked = match path {
        CHAT => conformance::check_chat_stream(&answer.body, false),
        MESSAGES => conformance::check_messages_stream(&answer.body),
        _ => conformance::check_responses_stream(&answer.body),
    };
    assert_eq!(checked, Ok(()), "{}", answer.text());
    let text = answer.text();
    let data = text.lines().filter_map(|line| line.strip_prefix("data: {"));
    let events = data.map(|data| serde_json::from_str::<Value>(&format!("{{{data}")).unwrap());
    events
        .filter_map(|event| {
            let text = match path {
                CHAT => &event["choices"][0]["delta"]["content"],
                MESSAGES => &event["delta"]["text"],
                _ if event["type"] == "response.output_text.delta" => &event["delta"],
                _ => return None,
            };
            text.as_str().map(str::to_owned)
        })
        .collect()
}

async fn simulated(lines: &str) -> (SimulatedServer, Running) {
    let server = SimulatedServer::start(SimulatorOptions::default()).await.unwrap();
    let lines = format!("{SPEAKS}\n{PATIENT}\n{lines}");
    let running =
        Bench::new().provider_at("a", &format!("http://{}/v1", server.address), &lines, "").start().await;
    (server, running)
}

fn event(data: &Value) -> ScriptStep {
    ScriptStep::Chunk(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()).into_bytes())
}

fn begun(text: &str) -> Script {
    let response = json!({"id": "resp_1", "object": "response", "status": "in_progress", "output": []});
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": []});
    vec![
        sse(),
        event(&json!({"type": "response.created", "response": response})),
        event(&json!({"type": "response.output_item.added", "output_index": 0, "item": item})),
        event(
            &json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}),
        ),
    ]
}

fn response(text: &str, usage: Value) -> Value {
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    let item = json!({"type": "message", "id": "msg_1", "role": "assistant", "content": content});
    json!({"id": "resp_1", "object": "response", "status": "completed", "error": null, "output": [item],
        "usage": usage})
}

fn usage(input: u64, cached: u64, output: u64) -> Value {
    json!({"input_tokens": input, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output})
}

fn stream_of(text: &str, usage: Value) -> Script {
    let mut script = begun(text);
    let completed = json!({"type": "response.completed", "response": response(text, usage)});
    script.extend([event(&completed), ScriptStep::End]);
    script
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_every_dialect_are_answered() {
    let (_server, running) = simulated("").await;
    for path in PATHS {
        let plain = running.client.post(path, &ask(path, false, "Why do rivers bend?")).await;
        let plain = answered(path, false, &plain);
        let streamed = running.client.post(path, &ask(path, true, "Why do rivers bend?")).await;
        assert_eq!(answered(path, true, &streamed), plain, "{path}");
        assert!(plain.contains("simulated"), "{plain}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_gets_a_request_of_its_dialect() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &response("Hello", usage(11, 4, 2))));
    let running = Bench::new()
        .settings("[routing]\nquick_retry = \"0s\"")
        .provider_with("a", &provider, &format!("{SPEAKS}\napi_key = {{ env = \"KEY\" }}"), "")
        .start()
        .await;
    for path in PATHS {
        let answer = running.client.post(path, &ask(path, false, "Hi")).await;
        assert_eq!(answered(path, false, &answer), "Hello");
        let sent = provider.last();
        assert_eq!((sent.path.as_str(), sent.method.as_str()), ("/v1/responses", "POST"));
        assert_eq!(sent.header("authorization"), Some("Bearer value of KEY"));
        let expected = json!({"model": "theirs", "input": [{"role": "user", "content": "Hi"}],
            "max_output_tokens": 100, "store": false});
        assert_eq!(sent.json(), expected, "{path}");
        // Cached tokens are part of the input, at their own price: 0.1 instead of 1 euro a million.
        let body = answer.json();
        assert_eq!(body["billing_cost"]["credits"].to_string(), "0.00114", "{body}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_and_structured_output_reach_the_model() {
    let (_server, running) = simulated("").await;
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": false});
    let mut body = ask(CHAT, false, "Please use the tool.");
    body["tools"] = json!([{"type": "function", "function": {"name": "weather", "parameters": schema}}]);
    for stream in [false, true] {
        body["stream"] = json!(stream);
        let answer = running.client.post(CHAT, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if stream {
            assert_eq!(conformance::check_chat_stream(&answer.body, false), Ok(()));
            assert!(answer.text().contains("\"finish_reason\":\"tool_calls\""), "{}", answer.text());
            continue;
        }
        let message = answer.json()["choices"][0]["message"].clone();
        assert_eq!(message["tool_calls"][0]["function"]["name"], "weather", "{message}");
        // The client sends the tool call and its result in the next request.
        let call = message["tool_calls"][0].clone();
        let mut more = body.clone();
        let result = json!({"role": "tool", "tool_call_id": call["id"], "content": "Sunny"});
        more["messages"].as_array_mut().unwrap().extend([message, result]);
        let answer = running.client.post(CHAT, &more).await;
        assert!(answered(CHAT, false, &answer).contains("simulated"));
    }
    let mut body = ask(CHAT, false, "Where?");
    body["response_format"] =
        json!({"type": "json_schema", "json_schema": {"name": "place", "schema": schema, "strict": true}});
    let answer = running.client.post(CHAT, &body).await;
    let text = answered(CHAT, false, &answer);
    assert!(serde_json::from_str::<Value>(&text).unwrap()["city"].is_string(), "{text}");
    // The dialect has no stop sequences: the gateway cuts the answer.
    let whole = running.client.post(CHAT, &ask(CHAT, false, "Why?")).await;
    let whole = answered(CHAT, false, &whole);
    let stop: String = whole.chars().skip(8).take(4).collect();
    for stream in [false, true] {
        let mut body = ask(CHAT, stream, "Why?");
        body["stop"] = json!([stop]);
        let answer = running.client.post(CHAT, &body).await;
        assert_eq!(answered(CHAT, stream, &answer), whole.split(&stop).next().unwrap());
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_beyond_the_delivered_text_is_not_charged() {
    for stream in [false, true] {
        for absurd in [usage(11, 0, 1_000_000), usage(u64::MAX >> 12, 0, 2)] {
            let provider = Provider::start().await;
            let answer = response("Hello", absurd.clone());
            provider.always(if stream { stream_of("Hello", absurd) } else { json_answer(200, &answer) });
            let running = Bench::new().provider_with("a", &provider, SPEAKS, "").start().await;
            let answer = running.client.post(RESPONSES, &ask(RESPONSES, stream, "Hi")).await;
            assert_eq!(answered(RESPONSES, stream, &answer), "Hello");
            assert!(answer.text().contains("\"output_tokens\":2"), "{}", answer.text());
            running.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_provider_is_replaced_and_a_broken_stream_rescued() {
    let failed = json!({"type": "response.failed", "response": {"id": "resp_1", "object": "response",
        "status": "failed", "error": {"code": "server_error", "message": "It broke."}, "output": []}});
    let in_band = |event_: &Value| vec![sse(), begun("x").remove(1), event(event_), ScriptStep::End];
    let malformed =
        json!({"type": "response.function_call_arguments.delta", "output_index": 7, "delta": "x"});
    let broken = |end: ScriptStep| [begun("One "), vec![end]].concat();
    for bad_script in [
        status(503),
        in_band(&failed),
        in_band(&malformed),
        in_band(&json!({"type": "error", "code": "server_error", "message": "It broke."})),
        broken(ScriptStep::Cut),
        broken(event(&failed)),
        broken(event(&malformed)),
        broken(ScriptStep::End),
    ] {
        for (good_script, speaks) in
            [(stream(&["One ", "two"]), ""), (stream_of("One two", usage(11, 0, 3)), SPEAKS)]
        {
            let (bad, good) = (Provider::start().await, Provider::start().await);
            bad.always(bad_script.clone());
            good.always(good_script);
            let running = Bench::new()
                .settings("[routing]\nquick_retry = \"0s\"")
                .provider_with("bad", &bad, SPEAKS, "price = { input = 0.1, output = 0.1 }")
                .provider_with("good", &good, speaks, "price = { input = 9.0, output = 9.0 }")
                .start()
                .await;
            let path = if speaks.is_empty() { RESPONSES } else { CHAT };
            let mut body = ask(path, true, "Hi");
            body["model"] = json!("m:price");
            let answer = running.client.post(path, &body).await;
            assert_eq!(answered(path, true, &answer), "One two");
            assert_eq!(bad.calls().min(1), 1);
            running.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_the_same_however_the_provider_cuts_it() {
    let (server, running) = simulated("").await;
    for path in PATHS {
        let whole = answered(path, true, &running.client.post(path, &ask(path, true, "Cut?")).await);
        for fault in [
            SimulatedFault::Split { bytes: 1 },
            SimulatedFault::Merge { events: 5 },
            SimulatedFault::Crlf {},
            SimulatedFault::Comments {},
            SimulatedFault::NoUsage {},
        ] {
            server.control().add_rule(FaultRule::new(vec![fault]).times(1));
            let answer = running.client.post(path, &ask(path, true, "Cut?")).await;
            assert_eq!(answered(path, true, &answer), whole);
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_the_client_names_the_field() {
    let provider = Provider::start().await;
    provider.always(json_answer(
        400,
        &json!({"error": {"message": "Invalid value for temperature.", "type": "invalid_request_error",
            "param": "temperature", "code": "invalid_value"}}),
    ));
    let running = Bench::new().provider_with("a", &provider, SPEAKS, "").start().await;
    let answer = running.client.post(RESPONSES, &ask(RESPONSES, false, "Hi")).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("temperature")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_checks_and_batches_use_the_provider() {
    let (_server, running) = simulated("health = { interval = \"100ms\", timeout = \"40s\" }").await;
    let line = |id: usize, path: &str| json!({"custom_id": format!("l{id}"), "method": "POST", "url": path, "body": ask(path, false, "Hi")});
    let lines: String = (0..3).map(|id| format!("{}\n", line(id, RESPONSES))).collect();
    let file = uploaded(&running.client, &lines).await;
    let job = json!({"input_file_id": file, "endpoint": RESPONSES, "completion_window": "24h"});
    let job = running.client.post("/v1/batches", &job).await.json();
    let job = ended(&running.client, &job).await;
    assert_eq!(job["request_counts"]["completed"], 3, "{job}");
    for result in results(&running.client, &job).await.values() {
        assert_eq!(conformance::check_response(&result["response"]), Ok(()), "{result}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_to_stored_items_are_resolved() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    let mut body = ask(RESPONSES, false, "Hi");
    body["store"] = json!(true);
    let first = client.post(RESPONSES, &body).await.json();
    let listed =
        client.get(&format!("{RESPONSES}/{}/input_items", first["id"].as_str().unwrap())).await.json();
    let reference = |id: &Value| json!({"type": "item_reference", "id": id});
    let answer_id = &first["output"][0]["id"];
    body["input"] = json!([reference(&listed["data"][0]["id"]), reference(answer_id),
        {"role": "user", "content": "More"}]);
    let second = client.post(RESPONSES, &body).await;
    assert_eq!(second.status, 200, "{}", second.text());
    let sent = provider.last().json()["messages"].clone();
    let expected = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "More"}]);
    // The content of the first message is a list of parts, because it comes from a stored item.
    assert_eq!(sent[0]["role"], "user");
    assert!(sent[0]["content"].to_string().contains("Hi"), "{sent}");
    assert_eq!((&sent[1], &sent[2]), (&expected[1], &expected[2]));
    // The new response stores the items themselves, not the references to them.
    let listed =
        client.get(&format!("{RESPONSES}/{}/input_items", second.json()["id"].as_str().unwrap())).await;
    assert_eq!(listed.json()["data"].as_array().unwrap().len(), 3, "{}", listed.text());
    let count = client.post("/v1/responses/input_tokens", &body).await;
    assert_eq!(count.status, 200, "{}", count.text());

    let calls = provider.calls();
    let other = running.key(&json!({"name": "other", "store_responses": true})).await;
    for (client, id) in [(&client, json!("msg_none_0")), (&client, json!("own")), (&other, answer_id.clone())]
    {
        body["input"] = json!([{"role": "user", "content": "More"}, reference(&id)]);
        let refused = client.post(RESPONSES, &body).await;
        let error = refused.json()["error"].clone();
        assert_eq!((refused.status, &error["param"]), (400, &json!("input[1].id")), "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(id.as_str().unwrap()) && message.contains("`store: false`"), "{error}");
    }
    for id in [json!(null), json!(""), json!(5)] {
        body["input"] = json!([{"role": "user", "content": "More"}, reference(&id)]);
        let error = client.post(RESPONSES, &body).await.json()["error"].clone();
        assert_eq!(error["message"], "input[1].id: expected the id of a stored item.", "{error}");
    }
    // Without `store_responses`, an item reference is refused by its type.
    let refused = running.client.post(RESPONSES, &body).await;
    assert_eq!(refused.json()["error"]["param"], "input[1].type");
    assert_eq!(provider.calls(), calls);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_response_does_not_claim_to_be_stored() {
    let provider = Provider::start().await;
    provider.always([begun("Hel"), vec![ScriptStep::Cut]].concat());
    let running =
        Bench::new().model("rescue = false").provider_with("a", &provider, SPEAKS, "").start().await;
    let client = running.key(&json!({"name": "storing", "store_responses": true})).await;
    let mut body = ask(RESPONSES, true, "Hi");
    body["store"] = json!(true);
    body["metadata"] = json!({"note": "\"store\":true"});
    let answer = client.post(RESPONSES, &body).await;
    assert_eq!(conformance::check_responses_stream(&answer.body), Ok(()), "{}", answer.text());
    let text = answer.text();
    let last = text.lines().rev().find_map(|line| line.strip_prefix("data: ")).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["type"], &last["response"]["store"]), (&json!("response.failed"), &json!(false)));
    assert_eq!(last["response"]["metadata"]["note"], "\"store\":true");
    running.stop().await;
}
