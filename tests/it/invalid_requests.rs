//! Invalid requests: an error in the client library's format that names the field, without a provider call.

use crate::harness::{Answer, Bench, Client, Provider};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn bench() -> (Provider, crate::harness::gateway::Running) {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    (provider, running)
}

fn error(answer: &Answer, status: u16, code: &str) -> Value {
    let body = answer.json();
    assert_eq!((answer.status, body["error"]["code"].as_str()), (status, Some(code)), "{}", answer.text());
    assert!(body["error"]["message"].is_string());
    assert!(answer.header("x-request-id").is_some());
    body["error"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_json_and_broken_text_are_refused_and_the_process_goes_on() {
    let (provider, running) = bench().await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep = format!("{{\"model\":\"m\",\"messages\":{deep}}}");
    let cases: [&[u8]; 6] = [
        b"{\"model\": \"m\", \"messages\": [",
        b"{\"model\": \"m\", \"messages\": [{\"role\":\"user\",\"content\":\"\xff\"}]}",
        b"{\"model\": \"m\", \"model\": \"m\", \"messages\": [{\"role\":\"user\",\"content\":\"Hi\"}]}",
        b"[]",
        b"null",
        deep.as_bytes(),
    ];
    for body in cases {
        let answer = running.client.send("POST", "/v1/chat/completions", &[], body).await;
        error(&answer, 400, "INFERENCE_3201");
    }
    assert_eq!(provider.calls(), 0);
    assert_eq!(running.chat().await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_field_is_named() {
    let (provider, running) = bench().await;
    let cases = [
        (json!({"temperature": 3}), "temperature"),
        (json!({"top_p": -0.1}), "top_p"),
        (json!({"n": 11}), "n"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"stream": "yes"}), "stream"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "Hi"}]}), "messages[0].role"),
        (json!({"tool_choice": {"type": "function"}}), "tool_choice"),
        (json!({"response_format": {"type": "xml"}}), "response_format"),
        (json!({"preset": "fast"}), "preset"),
    ];
    for (change, field) in cases {
        let mut ask = running.ask();
        for (key, value) in change.as_object().unwrap() {
            ask[key] = value.clone();
        }
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        let error = error(&answer, 400, "INFERENCE_3201");
        let param = error["param"].as_str().unwrap_or_default();
        assert!(param.starts_with(field), "{field} is named, not {param}: {error}");
        assert_eq!(error["type"], "invalid_request_error");
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_asked_for_and_both_headers_work() {
    let (_provider, running) = bench().await;
    let body = running.ask().to_string();
    let nobody = Client { address: running.client.address, key: String::new() };
    let invalid = format!("Bearer {}x", running.client.key);
    let key = running.client.key.clone();
    for headers in [
        &[][..],
        &[("authorization", "Bearer nonsense")][..],
        &[("x-api-key", "sk-svc-abc")][..],
        &[("authorization", invalid.as_str())][..],
    ] {
        let answer = nobody.send("POST", "/v1/chat/completions", headers, body.as_bytes()).await;
        let error = error(&answer, 401, "AUTH_1001");
        assert_eq!(error["type"], "invalid_api_key");
        assert_eq!(error["details"]["name"], "invalid_api_key");
        let answer = nobody.send("POST", "/v1/messages", headers, body.as_bytes()).await;
        let error = self::error(&answer, 401, "AUTH_1001");
        assert_eq!(
            (&error["type"], &error["details"]["name"]),
            (&json!("authentication_error"), &json!("invalid_api_key"))
        );
    }
    let bearer = format!("bearer {key}");
    for headers in [
        &[("x-api-key", key.as_str())][..],
        &[("authorization", bearer.as_str())][..],
        &[("authorization", "Bearer nonsense"), ("x-api-key", key.as_str())][..],
    ] {
        let answer = nobody.send("POST", "/v1/chat/completions", headers, body.as_bytes()).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_without_the_scope_gets_an_error_that_names_it() {
    let (provider, running) = bench().await;
    let reader = running.key(&json!({"name": "reader", "scopes": ["inference.models"]})).await;
    let answer = reader.post("/v1/chat/completions", &running.ask()).await;
    let error = error(&answer, 403, "AUTH_1003");
    assert_eq!(error["details"]["required_scope"], "inference.chat");
    assert_eq!(error["details"]["name"], "insufficient_scope");
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        let error = self::error(&reader.post(path, &running.ask()).await, 403, "AUTH_1003");
        assert_eq!(error["type"], "permission_error");
        assert_eq!(error["details"]["name"], "insufficient_scope", "{path}");
    }
    assert_eq!(reader.get("/v1/models").await.status, 200);
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_routes_methods_and_types_that_are_not_there() {
    let (_provider, running) = bench().await;
    let client = &running.client;
    let mut ask = running.ask();
    ask["model"] = json!("nobody");
    let unknown = error(&client.post("/v1/chat/completions", &ask).await, 404, "INFERENCE_3101");
    assert_eq!(
        (unknown["param"].as_str(), unknown["type"].as_str()),
        (Some("model"), Some("model_not_found"))
    );
    // Only the names of the five flavors are valid suffixes.
    for (name, expected) in [
        ("m:fast", "has no flavor 'fast'"),
        ("m:", "has no flavor ''"),
        ("m:eco:speed", "one flavor"),
        ("m:Speed", "has no flavor 'Speed'"),
    ] {
        ask["model"] = json!(name);
        let flavor = error(&client.post("/v1/chat/completions", &ask).await, 404, "INFERENCE_3101");
        assert!(flavor["message"].as_str().unwrap().contains(expected), "{name}: {flavor}");
        assert_eq!(flavor["details"]["flavors"], json!(["balanced", "speed", "price", "eco", "batch"]));
    }
    for name in ["nobody:fast", ":fast", "a:b:c", ":"] {
        ask["model"] = json!(name);
        let unknown = error(&client.post("/v1/chat/completions", &ask).await, 404, "INFERENCE_3101");
        assert!(unknown["message"].as_str().unwrap().contains("does not exist"), "{name}: {unknown}");
    }
    error(&client.post("/v1/nothing", &ask).await, 404, "RESOURCE_5001");
    let method = client.get("/v1/chat/completions").await;
    error(&method, 405, "RESOURCE_5002");
    assert_eq!(method.header("allow"), Some("POST"));
    let typed = client.send("POST", "/v1/chat/completions", &[("content-type", "text/plain")], b"{}").await;
    error(&typed, 415, "RESOURCE_5005");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_too_large_is_refused_with_and_without_its_length() {
    let provider = Provider::start().await;
    let running =
        Bench::new().settings("[limits]\njson_body = \"64KiB\"").provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["messages"][0]["content"] = json!("x".repeat(100_000));
    let body = ask.to_string();
    let announced = running.client.send("POST", "/v1/chat/completions", &[], body.as_bytes()).await;
    error(&announced, 413, "RESOURCE_5004");
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let headers = [("transfer-encoding", "chunked")];
    let unannounced = running.client.send("POST", "/v1/chat/completions", &headers, chunked.as_bytes()).await;
    error(&unannounced, 413, "RESOURCE_5004");
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_sending_is_not_waited_for() {
    let provider = Provider::start().await;
    // Either limit, `body` or `body_idle`, ends the request when it is exceeded first.
    for (body, idle) in [("300ms", "20s"), ("20s", "300ms")] {
        let settings = format!("[limits]\nbody = \"{body}\"\nbody_idle = \"{idle}\"");
        let running = Bench::new().settings(&settings).provider("a", &provider).start().await;
        let headers = [("content-length", "1000")];
        let began = Instant::now();
        let answer = running.client.send("POST", "/v1/chat/completions", &headers, b"{\"model\":").await;
        error(&answer, 408, "INFERENCE_3204");
        assert!(began.elapsed() < Duration::from_secs(10), "body {body}, idle {idle}: {:?}", began.elapsed());
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_capability_of_a_model_is_rejected_with_the_field() {
    let provider = Provider::start().await;
    let running =
        Bench::new().model("supported_parameters = [\"temperature\"]").provider("a", &provider).start().await;
    let mut ask = running.ask();
    ask["tools"] = json!([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]);
    let tools = error(&running.client.post("/v1/chat/completions", &ask).await, 400, "INFERENCE_3202");
    assert_eq!(tools["param"], "tools");
    let mut ask = running.ask();
    ask["response_format"] =
        json!({"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}});
    let format = error(&running.client.post("/v1/chat/completions", &ask).await, 400, "INFERENCE_3202");
    assert!(
        format["message"]
            .as_str()
            .unwrap()
            .contains("'response_format' of type 'json_schema' is not supported")
    );
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_shaping_parameter_is_rejected_by_name() {
    let bias = json!({"logit_bias": {"5": -100}});
    let probabilities = json!({"logprobs": true, "top_logprobs": 2});
    let parameters = |names: &str| format!("supported_parameters = [\"temperature\", \"stream\"{names}]");
    let messages = "dialects = [\"messages\"]";
    for (names, lines, more, param) in [
        ("", "", &bias, "logit_bias"),
        (", \"logprobs\"", "", &bias, "logit_bias"),
        ("", "", &probabilities, "logprobs"),
        (", \"logit_bias\"", "", &probabilities, "logprobs"),
        // A provider of the messages dialect cannot get these parameters, even if the catalogue lists them.
        (", \"logit_bias\", \"logprobs\"", messages, &bias, "logit_bias"),
        (", \"logit_bias\", \"logprobs\"", messages, &probabilities, "top_logprobs"),
        ("", "", &json!({"response_format": {"type": "json_object"}}), "response_format"),
    ] {
        let provider = Provider::start().await;
        let bench = Bench::new().model(&parameters(names)).provider_with("a", &provider, lines, "");
        let running = bench.start().await;
        let mut ask = running.ask();
        ask.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        for stream in [false, true] {
            ask["stream"] = json!(stream);
            let refusal =
                error(&running.client.post("/v1/chat/completions", &ask).await, 400, "INFERENCE_3202");
            assert_eq!(refusal["param"], param, "{names} {lines}: {refusal}");
            let other = if param == "logit_bias" { "logprob" } else { "logit_bias" };
            assert!(!refusal["message"].as_str().unwrap().contains(other), "{refusal}");
        }
        assert_eq!(provider.calls(), 0);
    }
    // If a provider's error names the member, the client's error names it too.
    let provider = Provider::start().await;
    let rejection = json!({"error": {"message": "logit_bias is not supported; logprobs are", "code": 400}});
    provider.always(crate::harness::script::json_answer(400, &rejection));
    let bench = Bench::new().model(&parameters(", \"logit_bias\", \"logprobs\"")).provider("a", &provider);
    let running = bench.start().await;
    let mut ask = running.ask();
    ask["logit_bias"] = bias["logit_bias"].clone();
    let answer = running.client.post("/v1/chat/completions", &ask).await;
    assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("logit_bias")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_path_gets_the_right_one_in_the_clients_dialect() {
    let (_provider, running) = bench().await;
    let messages = [("anthropic-version", "2023-06-01")];
    for (method, path, right) in [
        ("GET", "/models", "/v1/models"),
        ("GET", "//v1/models", "/v1/models"),
        ("POST", "/v1//chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/reranking", "/v1/rerank"),
        ("POST", "/v1/audio/translations", "/v1/audio/transcriptions"),
        ("POST", "/v2/embed", "/v1/embeddings"),
        ("POST", "/v1/chat/completions/chat/completions", "/v1/chat/completions"),
        ("GET", "/v1/v1/v1/models", "/v1/models"),
    ] {
        let refusal = error(&running.client.send(method, path, &[], b"").await, 404, "RESOURCE_5001");
        assert_eq!(refusal["details"]["path"], right, "{path}");
        assert!(refusal["message"].as_str().unwrap().contains(right), "{path}: {refusal}");
        let answer = running.client.send(method, path, &messages, b"").await;
        error(&answer, 404, "RESOURCE_5001");
        assert_eq!(answer.json()["type"], "error", "{path}");
    }
    for (path, right) in [
        ("/messages", "/v1/messages"),
        ("//v1/messages", "/v1/messages"),
        ("/v1/messages/batches", "/v1/batches"),
    ] {
        let answer = running.client.send("POST", path, &[], b"{}").await;
        assert_eq!(error(&answer, 404, "RESOURCE_5001")["details"]["path"], right);
        assert_eq!(answer.json()["type"], "error", "{path}");
    }
    let refusal =
        error(&running.client.send("POST", "/v1/assistants", &[], b"{}").await, 404, "RESOURCE_5001");
    assert!(refusal["message"].as_str().unwrap().contains("not offered"));
    // A path with a repeated `/v1` is served, and so is the second path of rerank, `/v2/rerank`.
    assert_eq!(running.client.get("/v1/v1/models").await.status, 200);
    error(&running.client.get("/v2/rerank").await, 405, "RESOURCE_5002");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_byte_order_mark_before_a_body_is_read_over() {
    let (provider, running) = bench().await;
    let ask = running.ask().to_string();
    let marked = |text: &str| format!("\u{feff}{text}").into_bytes();
    for path in ["/v1/chat/completions", "/v1/messages/count_tokens"] {
        let answer = running.client.send("POST", path, &[], &marked(&ask)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    assert_eq!(provider.calls(), 1);
    // Only one byte order mark is accepted, and only before the text.
    for body in [
        marked(""),
        marked(&format!("\u{feff}{ask}")),
        format!("{ask}\u{feff}").into_bytes(),
        b"\xef\xbb".to_vec(),
    ] {
        error(&running.client.send("POST", "/v1/chat/completions", &[], &body).await, 400, "INFERENCE_3201");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cap_of_minus_one_is_no_cap() {
    let (provider, running) = bench().await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let mut ask = running.ask();
        ask[name] = json!(-1);
        assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 200);
        let sent = provider.last().json();
        assert!(sent.get("max_tokens").is_none() && sent.get("max_completion_tokens").is_none(), "{sent}");
        for invalid in [json!(-2), json!(0), json!("-1"), json!(-1.0)] {
            ask[name] = invalid;
            let refusal =
                error(&running.client.post("/v1/chat/completions", &ask).await, 400, "INFERENCE_3201");
            assert_eq!(refusal["param"], name);
        }
    }
    // The other limit still applies.
    let mut ask = running.ask();
    ask["max_completion_tokens"] = json!(-1);
    ask["max_tokens"] = json!(7);
    assert_eq!(running.client.post("/v1/chat/completions", &ask).await.status, 200);
    assert_eq!(provider.last().json()["max_tokens"], 7);
    // The messages dialect requires `max_tokens`, so -1 does not mean "no limit" there.
    let ask = json!({"model": "m", "max_tokens": -1, "messages": [{"role": "user", "content": "Hi"}]});
    error(&running.client.post("/v1/messages", &ask).await, 400, "INFERENCE_3201");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn different_output_constraints_are_rejected_with_both_names() {
    let schema = json!({"type": "json_schema", "name": "n", "schema": {"type": "object"}});
    let own = json!({"type": "json_schema", "schema": {"type": "object"}});
    let named = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}});
    for lines in ["", "dialects = [\"messages\"]", "dialects = [\"responses\"]"] {
        let provider = Provider::start().await;
        let listed = "supported_parameters = [\"response_format\", \"guided_json\", \"stream\"]";
        let bench = Bench::new().model(listed).provider_with("a", &provider, lines, "");
        let running = bench.start().await;
        for (path, format, members) in [
            ("/v1/chat/completions", "response_format", json!({ "response_format": named })),
            ("/v1/messages", "output_config.format", json!({"output_config": {"format": own}})),
            ("/v1/responses", "text.format", json!({"text": {"format": schema}})),
        ] {
            let mut ask = running.ask();
            if path == "/v1/responses" {
                ask = json!({"model": ask["model"], "input": "Hi"});
            }
            ask["max_tokens"] = json!(9);
            ask.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
            ask["guided_json"] = json!({"type": "array"});
            let answer = running.client.post(path, &ask).await;
            assert_eq!(answer.status, 400, "{path} {lines}: {}", answer.text());
            let text = answer.text();
            assert!(text.contains(&format!("`{format}` and `guided_json`")), "{path} {lines}: {text}");
        }
        assert_eq!(provider.calls(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_no_offer_can_continue_is_rejected_by_name() {
    let (provider, running) = bench().await;
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So"}]);
    for (path, name) in [("/v1/chat/completions", "messages"), ("/v1/responses", "input")] {
        let mut ask = json!({"model": running.ask()["model"], "continue_final_message": true});
        ask[name] = messages.clone();
        let refusal = error(&running.client.post(path, &ask).await, 400, "INFERENCE_3202");
        assert_eq!(refusal["param"], name, "{refusal}");
        ask[name] = json!([messages[0]]);
        let refusal = error(&running.client.post(path, &ask).await, 400, "INFERENCE_3201");
        assert_eq!(refusal["param"], "continue_final_message", "{refusal}");
    }
    assert_eq!(provider.calls(), 0);
}
