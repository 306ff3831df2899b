//! `POST /v1/embeddings`: a whole gateway in front of scripted providers.

use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, cut, json_answer, retry_after, status, vectors};
use crate::harness::{Answer, Bench, Provider};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_simulator::{SimulatedServer, SimulatorOptions};
use serde_json::{Value, json};

const PATH: &str = "/v1/embeddings";
const CHEAP: &str = "price = { input = 0.1 }";
const DEAR: &str = "price = { input = 9.0 }";
const ONE: &[&[f32]] = &[&[0.5, -0.25]];
const TWO: &[&[f32]] = &[&[0.5, -0.25], &[0.125, 1.0]];

pub fn bench() -> Bench {
    Bench::new().kind("embedding").settings("[routing]\nquick_retry = \"0s\"")
}

pub async fn embed(running: &Running, input: Value) -> Answer {
    running.client.post(PATH, &json!({"model": "m", "input": input})).await
}

/// Decodes base64 to floats.
fn floats(base64: &Value) -> Vec<f32> {
    let bytes = STANDARD.decode(base64.as_str().unwrap()).unwrap();
    bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_the_contracts_shape_and_both_objects() {
    let provider = Provider::start().await;
    provider.then(vectors(TWO, 12));
    let running = bench().provider("a", &provider).start().await;
    let answer = embed(&running, json!(["one", "two"])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["object"], &body["model"]), (&json!("list"), &json!("m")));
    assert_eq!(body["data"][1], json!({"object": "embedding", "index": 1, "embedding": [0.125, 1.0]}));
    assert_eq!(body["usage"], json!({"prompt_tokens": 12, "total_tokens": 12}));
    assert_eq!(body["environment_impact"]["provider_id"], "a");
    assert_eq!(body["environment_impact"]["location"], "Paris, France");
    assert_eq!(body["billing_cost"]["paid_with"], "credits");
    // 12 tokens at 1 EUR a million, a credit is a cent.
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0012");
    // An encoder of 8e9 parameters: 0.0072 J per token and per 1e9 parameters, without a term for the context length.
    let joules = 12.0 * 0.0072 * 8.0 * 1.30 * 1.12 * 1.16;
    let reported = body["environment_impact"]["energy_kwh"].as_f64().unwrap();
    assert!((reported - joules / 3.6e6).abs() < 1e-12, "{reported}");
    assert_eq!(answer.header("x-penstock-provider"), Some("a"));
    assert_eq!(answer.header("x-penstock-flavor"), Some("price"));
    assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
    let sent = provider.last();
    assert_eq!(
        (sent.path.as_str(), sent.header("content-type")),
        ("/v1/embeddings", Some("application/json"))
    );
    assert_eq!(sent.json(), json!({"model": "theirs", "input": ["one", "two"]}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_form_comes_from_either_form() {
    let provider = Provider::start().await;
    let running = bench().provider("a", &provider).start().await;
    let packed =
        STANDARD.encode([0.5_f32, -0.25].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    let strings = json!({"data": [{"object": "embedding", "index": 0, "embedding": packed}],
        "usage": {"prompt_tokens": 3, "total_tokens": 3}});
    for script in [vectors(ONE, 3), json_answer(200, &strings)] {
        for format in ["float", "base64"] {
            provider.then(script.clone());
            let ask = json!({"model": "m", "input": "x", "encoding_format": format});
            let answer = running.client.post(PATH, &ask).await.json();
            let vector = &answer["data"][0]["embedding"];
            match format {
                "float" => assert_eq!(vector, &json!([0.5, -0.25])),
                _ => assert_eq!(floats(vector), [0.5, -0.25]),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_is_that_of_the_inputs() {
    let provider = Provider::start().await;
    let item = |index: u32| json!({"object": "embedding", "index": index, "embedding": [index, 1]});
    provider.then(json_answer(200, &json!({"data": [item(2), item(0), item(1)]})));
    let running = bench().provider("a", &provider).start().await;
    let body = embed(&running, json!(["a", "b", "c"])).await.json();
    let found: Vec<(u64, u64)> = (0..3)
        .map(|at| {
            (body["data"][at]["index"].as_u64().unwrap(), body["data"][at]["embedding"][0].as_u64().unwrap())
        })
        .collect();
    assert_eq!(found, [(0, 0), (1, 1), (2, 2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_longer_than_a_provider_takes_are_split_and_joined() {
    let provider = Provider::start().await;
    provider
        .then(vectors(TWO, 7))
        .then(vectors(&[&[3.0, 3.0], &[4.0, 4.0]], 8))
        .then(vectors(&[&[5.0, 5.0]], 2));
    let running = bench().provider_with("a", &provider, "", "max_inputs = 2").start().await;
    let answer = embed(&running, json!(["a", "b", "c", "d", "e"])).await;
    let body = answer.json();
    assert_eq!(body["data"].as_array().unwrap().len(), 5);
    assert_eq!(body["data"][3], json!({"object": "embedding", "index": 3, "embedding": [4.0, 4.0]}));
    assert_eq!(body["usage"]["total_tokens"], 17);
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0017");
    assert_eq!(answer.header("x-penstock-attempts"), Some("1"));
    let sent: Vec<Value> = provider.seen().iter().map(|seen| seen.json()["input"].clone()).collect();
    assert_eq!(sent, [json!(["a", "b"]), json!(["c", "d"]), json!(["e"])]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_fails_fails_over_whole_and_is_paid_once() {
    let (first, second) = (Provider::start().await, Provider::start().await);
    first.then(vectors(TWO, 7)).always(status(503));
    second.always(vectors(&[&[1.0], &[2.0], &[3.0]], 9));
    let running = bench()
        .provider_with("first", &first, "", &format!("{CHEAP}\nmax_inputs = 2"))
        .provider_with("second", &second, "", DEAR)
        .start()
        .await;
    let answer = embed(&running, json!(["a", "b", "c"])).await;
    let body = answer.json();
    assert_eq!((first.calls(), second.calls()), (2, 1));
    assert_eq!(answer.header("x-penstock-attempts"), Some("2"));
    assert_eq!(body["data"][2]["embedding"], json!([3.0]));
    assert_eq!(body["usage"]["total_tokens"], 9);
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0081", "9 tokens at 9 EUR a million");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_provider_failure_moves_to_the_next_provider() {
    let bad_answers = [
        status(500),
        status(401),
        retry_after(429, 5),
        cut(),
        json_answer(200, &json!({"error": {"message": "no", "code": 500}})),
        json_answer(200, &json!({"data": []})),
        vectors(TWO, 3),
        vectors(&[&[]], 3),
        vec![
            ScriptStep::Head(200, vec![("content-type", "text/html".into())]),
            ScriptStep::Body(b"<html>".to_vec()),
        ],
        vec![
            ScriptStep::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n{\"data\":[{".to_vec()),
            ScriptStep::Cut,
        ],
    ];
    for script in bad_answers {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        bad.always(script);
        good.always(vectors(ONE, 3));
        let running = bench()
            .provider_with("bad", &bad, "", CHEAP)
            .provider_with("good", &good, "", DEAR)
            .start()
            .await;
        let answer = embed(&running, json!("x")).await;
        assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
        assert!(bad.calls() >= 1 && good.calls() == 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_the_client_gets_503_with_the_attempts() {
    let provider = Provider::start().await;
    provider.always(vectors(TWO, 3));
    let running = bench().provider("a", &provider).start().await;
    let answer = embed(&running, json!("x")).await;
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (503, &json!("INFERENCE_3103")));
    assert_eq!(error["details"]["attempts"][0]["reason"], "unavailable");
    assert!(answer.header("retry-after").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cheapest_is_asked_unless_a_flavor_says_otherwise() {
    let (cheap, dear) = (Provider::start().await, Provider::start().await);
    cheap.always(vectors(ONE, 3));
    dear.always(vectors(ONE, 3));
    let poland = format!(
        "\n[[providers]]\nid = \"poland\"\noperator = \"Test\"\ncountry = \"PL\"\ncity = \"Warsaw\"\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"m\"\n{CHEAP}\n",
        cheap.address
    );
    let running = bench().provider_with("france", &dear, "", DEAR).more(&poland).start().await;
    for (model, provider, flavor) in [
        ("m", "poland", "price"),
        ("m:price", "poland", "price"),
        ("m:eco", "france", "eco"),
        ("m:batch", "poland", "batch"),
    ] {
        let answer = running.client.post(PATH, &json!({"model": model, "input": "x"})).await;
        assert_eq!(answer.header("x-penstock-provider"), Some(provider), "{model}");
        assert_eq!(answer.header("x-penstock-flavor"), Some(flavor));
        assert_eq!(answer.json()["model"], "m");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scopes_and_kinds_are_separate() {
    let provider = Provider::start().await;
    provider.always(vectors(ONE, 3));
    let running = bench().provider("a", &provider).start().await;
    let embeds = running.key(&json!({"scopes": ["inference.embeddings"]})).await;
    let chats = running.key(&json!({"scopes": ["inference.chat", "inference.rerank"]})).await;
    let ask = json!({"model": "m", "input": "x"});
    assert_eq!(embeds.post(PATH, &ask).await.status, 200);
    let refused = chats.post(PATH, &ask).await;
    let error = &refused.json()["error"];
    assert_eq!((refused.status, &error["type"]), (403, &json!("insufficient_scope")));
    assert_eq!(error["details"]["required_scope"], "inference.embeddings");
    let mismatched = running.chat().await;
    assert_eq!((mismatched.status, &mismatched.json()["error"]["param"]), (400, &json!("model")));
    assert!(mismatched.text().contains("/v1/embeddings"));
    assert_eq!(provider.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_names_its_field_and_reaches_no_provider() {
    let provider = Provider::start().await;
    let running = bench().provider("a", &provider).start().await;
    for (body, param) in [
        (json!({"model": "m"}), "input"),
        (json!({"input": "x"}), "model"),
        (json!({"model": "m", "input": ""}), "input"),
        (json!({"model": "m", "input": []}), "input"),
        (json!({"model": "m", "input": ["a", ""]}), "input[1]"),
        (json!({"model": "m", "input": ["a", 1]}), "input[1]"),
        (json!({"model": "m", "input": [[1], ""]}), "input[1]"),
        (json!({"model": "m", "input": [[1], []]}), "input[1]"),
        (json!({"model": "m", "input": [1, -1]}), "input[1]"),
        (json!({"model": "m", "input": [1, 2, 100_300]}), "input[2]"),
        (json!({"model": "m", "input": [[1], [2, 100_256]]}), "input[1][1]"),
        (json!({"model": "m", "input": {"text": "x"}}), "input"),
        (json!({"model": "m", "input": "x", "encoding_format": "hex"}), "encoding_format"),
        (json!({"model": "m", "input": "x", "dimensions": 0}), "dimensions"),
        (json!({"model": "m", "input": "x", "dimensions": 256}), "dimensions"),
        (json!({"model": "m", "input": vec!["x"; 2049]}), "input"),
    ] {
        let answer = running.client.post(PATH, &body).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, error["param"].as_str()), (400, Some(param)), "{error}");
        assert!(error["message"].as_str().unwrap().contains(param.split('[').next().unwrap()), "{error}");
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_ids_become_the_text_that_they_stand_for() {
    let provider = Provider::start().await;
    provider.always(vectors(TWO, 3));
    let running = bench().provider("a", &provider).start().await;
    // Token ids of "Hello world" and "tiktoken is great!" in cl100k_base.
    let ids = json!([[9906, 1917], [83, 1609, 5963, 374, 2294, 0]]);
    assert_eq!(embed(&running, ids).await.status, 200);
    assert_eq!(provider.last().json()["input"], json!(["Hello world", "tiktoken is great!"]));
    provider.then(vectors(ONE, 3));
    assert_eq!(embed(&running, json!([9906, 1917])).await.status, 200);
    assert_eq!(provider.last().json()["input"], json!(["Hello world"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_ids_match_the_model() {
    for (setting, sent) in [
        ("o200k_base", Some(json!(["Hello world"]))),
        ("native", Some(json!([[13225, 2375]]))),
        ("refuse", None),
    ] {
        let provider = Provider::start().await;
        provider.always(vectors(ONE, 3));
        let model = format!("token_ids = \"{setting}\"");
        let running = bench().model(&model).provider("a", &provider).start().await;
        let answer = embed(&running, json!([[13225, 2375]])).await;
        match sent {
            Some(sent) => assert_eq!(provider.last().json()["input"], sent),
            None => assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("input"))),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dimensions_go_where_the_model_takes_them() {
    let provider = Provider::start().await;
    provider.always(vectors(ONE, 3));
    let running =
        bench().model("supported_parameters = [\"dimensions\"]").provider("a", &provider).start().await;
    let ask = |length: u32| json!({"model": "m", "input": "x", "dimensions": length});
    assert_eq!(running.client.post(PATH, &ask(2)).await.status, 200);
    assert_eq!(provider.last().json()["dimensions"], 2);
    // A length that the provider ignores is an error of the client, which must not eject the provider.
    for calls in 2..22 {
        let answer = running.client.post(PATH, &ask(3)).await;
        assert_eq!((answer.status, &answer.json()["error"]["param"]), (400, &json!("dimensions")));
        assert_eq!(provider.calls(), calls);
    }
    assert_eq!(running.client.post(PATH, &ask(2)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_text_has_the_window_to_itself() {
    let provider = Provider::start().await;
    let running = bench()
        .model("context_length = 16\ntokenizer = { builtin = \"gpt-oss\" }")
        .provider("a", &provider)
        .start()
        .await;
    let long = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen";
    let answer = embed(&running, json!(["short", long])).await;
    let error = &answer.json()["error"];
    assert_eq!((answer.status, &error["code"]), (400, &json!("INFERENCE_3207")), "{error}");
    assert_eq!(
        error["details"],
        json!({"name": "context_length_exceeded", "context_length": 16, "input_tokens": 17})
    );
    assert_eq!(provider.calls(), 0);
    // Together the inputs exceed the context window; each alone does not.
    provider.always(vectors(&[&[1.0], &[2.0], &[3.0]], 30));
    let text = "one two three four five six seven eight nine ten";
    assert_eq!(embed(&running, json!([text, text, text])).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_provider_shapes_get_requests_of_their_own_form() {
    let provider = Provider::start().await;
    provider.always(vec![
        ScriptStep::Head(
            200,
            vec![("content-type", "application/json".into()), ("x-compute-tokens", "21".into())],
        ),
        ScriptStep::Body(b"[[0.5,-0.25],[0.125,1.0]]".to_vec()),
    ]);
    let base = format!("http://{}", provider.address);
    let running = bench().provider_at("a", &base, "", "shape = \"tei\"").start().await;
    let body = embed(&running, json!(["one", "two"])).await.json();
    assert_eq!(body["data"][1]["embedding"], json!([0.125, 1.0]));
    assert_eq!(body["usage"], json!({"prompt_tokens": 21, "total_tokens": 21}));
    assert_eq!(
        (provider.last().path.as_str(), provider.last().json()),
        ("/embed", json!({"inputs": ["one", "two"]}))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_usage_is_counted_by_the_gateway_and_marked() {
    let provider = Provider::start().await;
    provider.always(json_answer(200, &json!({"data": [{"index": 0, "embedding": [1, 2]}]})));
    let running = bench().provider("a", &provider).start().await;
    let body = embed(&running, json!("twelve bytes")).await.json();
    assert_eq!(body["usage"]["prompt_tokens"], 3);
    assert_eq!(body["environment_impact"]["provenance"]["usage_source"], "gateway");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_result_is_read_in_the_background_and_is_complete() {
    let server = SimulatedServer::start(SimulatorOptions::default()).await.unwrap();
    let base = format!("http://{}/v1", server.address);
    let running = bench().provider_at("a", &base, crate::harness::gateway::PATIENT, "").start().await;
    let texts: Vec<String> = (0..60).map(|index| format!("text number {index}")).collect();
    let ask = |format: &str| json!({"model": "m", "input": texts, "encoding_format": format});
    let numbers = running.client.post(PATH, &ask("float")).await;
    assert!(numbers.whole && numbers.body.len() > 1_000_000, "{} bytes", numbers.body.len());
    let strings = running.client.post(PATH, &ask("base64")).await.json();
    let numbers = numbers.json();
    for at in 0..60 {
        let expected: Vec<f32> = numbers["data"][at]["embedding"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_f64().unwrap() as f32)
            .collect();
        assert_eq!(floats(&strings["data"][at]["embedding"]), expected);
    }
    assert_eq!(numbers["billing_cost"], strings["billing_cost"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_counted_by_endpoint_and_logged_without_their_text() {
    let provider = Provider::start().await;
    provider.always(vectors(ONE, 30));
    let running = bench().provider("a", &provider).start().await;
    embed(&running, json!("x")).await;
    let metrics = running.admin().get("/metrics").await.text();
    for line in [
        r#"penstock_requests_total{endpoint="embeddings",model="m",outcome="ok",status="200",work="request"} 1"#,
        r#"gen_ai_client_token_usage_sum{gen_ai_operation_name="embeddings",gen_ai_provider_name="a",gen_ai_request_model="m",gen_ai_token_type="input"} 30"#,
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
}
