//! `POST /v1/rerank`: a whole gateway in front of scripted providers.

use crate::harness::gateway::Running;
use crate::harness::script::{ScriptStep, json_answer, scores, status};
use crate::harness::{Answer, Bench, Provider};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const PATH: &str = "/v1/rerank";

pub fn bench() -> Bench {
    Bench::new().kind("rerank").settings("[routing]\nquick_retry = \"0s\"")
}

fn ask() -> Value {
    json!({"model": "m", "query": "What is a penstock?", "documents": ["A pipe.", "A bird.", "A gate."]})
}

/// The request with these members changed.
pub fn with(members: &Value) -> Value {
    let mut ask = ask();
    ask.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    ask
}

pub async fn rerank(running: &Running, ask: &Value) -> Answer {
    running.client.post(PATH, ask).await
}

pub fn order(answer: &Value) -> Vec<u64> {
    answer["results"].as_array().unwrap().iter().map(|result| result["index"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_the_contracts_shape_and_both_objects() {
    let provider = Provider::start().await;
    provider.always(scores(&[0.4, 0.02, 0.91], 31));
    let running = bench().provider("a", &provider).start().await;
    let answer = rerank(&running, &ask()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["object"], &body["model"]), (&json!("list"), &json!("m")));
    assert_eq!(body["results"][0], json!({"index": 2, "relevance_score": 0.91}));
    assert_eq!(order(&body), [2, 0, 1]);
    assert_eq!(body["usage"], json!({"total_tokens": 31}));
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0031");
    let joules = 31.0 * 0.0072 * 8.0 * 1.30 * 1.12 * 1.16;
    let reported = body["environment_impact"]["energy_kwh"].as_f64().unwrap();
    assert!((reported - joules / 3.6e6).abs() < 1e-12, "{reported}");
    assert_eq!(answer.header("x-penstock-flavor"), Some("balanced"));
    assert_eq!(provider.last().path, "/v1/rerank");
    assert_eq!(
        provider.last().json(),
        json!({"model": "theirs", "query": "What is a penstock?",
        "documents": ["A pipe.", "A bird.", "A gate."]})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strings_and_objects_top_n_and_documents() {
    let provider = Provider::start().await;
    provider.always(scores(&[0.4, 0.02, 0.91], 31));
    let running = bench().provider("a", &provider).start().await;
    let objects = json!([{"text": "A pipe.", "id": 7}, {"text": "A bird."}, {"text": "A \"gate\"."}]);
    let body = rerank(&running, &with(&json!({"documents": objects, "return_documents": true, "top_n": 2})))
        .await
        .json();
    assert_eq!(order(&body), [2, 0]);
    assert_eq!(body["results"][0]["document"], json!({"text": "A \"gate\"."}));
    assert_eq!(provider.last().json()["documents"], json!(["A pipe.", "A bird.", "A \"gate\"."]));
    let body = rerank(&running, &with(&json!({"return_documents": false, "top_n": 99}))).await.json();
    assert_eq!(order(&body), [2, 0, 1]);
    assert!(body["results"][0].get("document").is_none());
}

/// Returns the same scores in the format of each family of providers.
fn scores_answer(shape: &str) -> (Vec<ScriptStep>, &'static str) {
    let results =
        |name: &str| json!([{"index": 1, name: 0.02}, {"index": 2, name: 0.91}, {"index": 0, name: 0.4}]);
    let answer = match shape {
        "tei" => results("score"),
        "cohere_v1" | "cohere_v2" => json!({"id": "x", "results": results("relevance_score"),
            "meta": {"api_version": {"version": "2"}, "tokens": {"input_tokens": 31}}}),
        "infinity" => {
            json!({"object": "rerank", "data": results("relevance_score"), "usage": {"total_tokens": 31}})
        }
        _ => json!({"results": results("relevance_score"), "usage": {"total_tokens": 31}}),
    };
    let headers = vec![("content-type", "application/json".into()), ("x-compute-tokens", "31".into())];
    (vec![ScriptStep::Head(200, headers), ScriptStep::Body(answer.to_string().into_bytes())], "/v1/rerank")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_shape_gives_the_same_answer() {
    let mut answers = Vec::new();
    for shape in ["vllm", "jina", "cohere_v1", "cohere_v2", "infinity", "tei"] {
        let provider = Provider::start().await;
        let (script, path) = scores_answer(shape);
        provider.always(script);
        let offer = format!("shape = \"{shape}\"");
        let running = bench().provider_with("a", &provider, "", &offer).start().await;
        answers.push((shape, rerank(&running, &ask()).await.json()));
        assert_eq!(provider.last().path, path);
    }
    for (shape, answer) in &answers {
        assert_eq!(answer, &answers[0].1, "{shape}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logits_are_scaled_once_where_the_model_says_so() {
    let provider = Provider::start().await;
    provider.always(scores(&[0.0, -2.0, 3.0], 31));
    let sigmoid = bench().model("score = \"sigmoid\"").provider("a", &provider).start().await;
    let body = rerank(&sigmoid, &ask()).await.json();
    let score = |at: usize| body["results"][at]["relevance_score"].as_f64().unwrap();
    assert_eq!(order(&body), [2, 0, 1]);
    assert!((score(0) - 0.952_574_126_822_433).abs() < 1e-12 && score(1) == 0.5);
    // An offer's setting may differ from its model's, for example if its engine applies the sigmoid itself.
    let own = bench()
        .model("score = \"sigmoid\"")
        .provider_with("a", &provider, "", "score = \"as_is\"")
        .start()
        .await;
    assert_eq!(rerank(&own, &ask()).await.status, 503, "no score from 0 to 1, and nothing is guessed");
    provider.always(scores(&[0.5, 0.1, 0.9], 31));
    assert_eq!(rerank(&own, &ask()).await.json()["results"][0]["relevance_score"], json!(0.9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_is_scaled_by_its_own_request_when_raw_scores_are_refused_meanwhile() {
    let results = |scores: [f64; 3]| {
        let results = scores.iter().enumerate().map(|(index, score)| json!({"index": index, "score": score}));
        json_answer(200, &json!(results.collect::<Vec<_>>()))
    };
    let (provider, release) = (Provider::start().await, Arc::new(Notify::new()));
    provider
        .then([vec![ScriptStep::Wait(release.clone())], results([0.0, -2.0, 3.0])].concat())
        .then(json_answer(422, &json!({"error": "unknown field `raw_scores`", "error_type": "Validation"})))
        .always(results([0.5, 0.25, 0.75]));
    let offer = "shape = \"tei\"\nscore = \"sigmoid\"";
    let running = bench().provider_with("a", &provider, "", offer).start().await;
    let request = ask();
    let first = async { rerank(&running, &request).await.json() };
    let second = async {
        provider.until_calls(1).await;
        let refused = rerank(&running, &request).await.json();
        let learned = rerank(&running, &request).await.json();
        let sent: Vec<bool> = provider.seen().iter().map(|seen| seen.json()["raw_scores"] == true).collect();
        assert_eq!(sent, [true, true, false, false], "the refusal is remembered");
        release.notify_one();
        (refused, learned)
    };
    let (first, (refused, learned)) = tokio::join!(first, second);
    let scores = |body: &Value| [0, 1, 2].map(|at| body["results"][at]["relevance_score"].as_f64().unwrap());
    assert_eq!((scores(&refused), scores(&learned)), ([0.75, 0.5, 0.25], [0.75, 0.5, 0.25]));
    let [highest, middle, _] = scores(&first);
    assert!((highest - 0.952_574_126_822_433).abs() < 1e-12 && middle == 0.5, "{first}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_longer_than_a_provider_takes_are_split() {
    let provider = Provider::start().await;
    provider.then(scores(&[0.1, 0.9], 20)).then(scores(&[0.5], 11));
    let running = bench().provider_with("a", &provider, "", "max_inputs = 2").start().await;
    let body = rerank(&running, &ask()).await.json();
    assert_eq!((order(&body), &body["usage"]["total_tokens"]), (vec![1, 2, 0], &json!(31)));
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_move_to_the_next_provider() {
    for script in [
        status(503),
        json_answer(200, &json!({"results": []})),
        json_answer(200, &json!({"results": [{"index": 0, "relevance_score": null}]})),
        json_answer(200, &json!({"error": "overloaded"})),
    ] {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        bad.always(script);
        good.always(scores(&[0.4, 0.02, 0.91], 31));
        let running = bench()
            .provider_with("bad", &bad, "", "price = { input = 0.1 }")
            .provider_with("good", &good, "", "price = { input = 9.0 }")
            .start()
            .await;
        let answer = rerank(&running, &with(&json!({"model": "m:price"}))).await;
        assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
        assert!(bad.calls() >= 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_coheres_second_api_find_it() {
    let provider = Provider::start().await;
    provider.always(scores(&[0.4, 0.02, 0.91], 31));
    let running = bench().provider("a", &provider).start().await;
    let body = running.client.post("/v2/rerank", &with(&json!({"max_tokens_per_doc": 512}))).await.json();
    assert_eq!(order(&body), [2, 0, 1]);
    let chats = running.key(&json!({"scopes": ["inference.chat"]})).await;
    for path in [PATH, "/v2/rerank"] {
        let refused = chats.post(path, &ask()).await;
        assert_eq!(refused.status, 403);
        assert_eq!(refused.json()["error"]["details"]["required_scope"], "inference.rerank");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_input_names_its_field_and_reaches_no_provider() {
    let provider = Provider::start().await;
    let running = bench().provider("a", &provider).start().await;
    for (members, param) in [
        (json!({"query": null}), "query"),
        (json!({"query": ""}), "query"),
        (json!({"query": ["a"]}), "query"),
        (json!({"documents": null}), "documents"),
        (json!({"documents": []}), "documents"),
        (json!({"documents": "a"}), "documents"),
        (json!({"documents": ["a", ""]}), "documents[1]"),
        (json!({"documents": ["a", {"title": "b"}]}), "documents[1].text"),
        (json!({"documents": [{"text": "b"}, 7]}), "documents[1]"),
        (json!({"documents": [{"text": "b"}, {"title": "a"}]}), "documents[1].text"),
        (json!({"documents": [{"text": 1}]}), "documents[0].text"),
        (json!({"documents": [7]}), "documents[0]"),
        (json!({"top_n": 0}), "top_n"),
        (json!({"top_n": 1.5}), "top_n"),
        (json!({"return_documents": "yes"}), "return_documents"),
        (json!({"rank_fields": ["title"]}), "rank_fields[0]"),
    ] {
        let answer = rerank(&running, &with(&members)).await;
        let error = answer.json()["error"].clone();
        assert_eq!((answer.status, error["param"].as_str()), (400, Some(param)), "{members} {error}");
    }
    assert_eq!(provider.calls(), 0);
}
