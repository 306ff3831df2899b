//! Tests of unknown paths and of invalid requests.

use super::super::SimulatorOptions;
use super::{CHAT, MESSAGES, SimulatedServer, ask, post, receive, send, server};
use serde_json::{Value, json};

#[tokio::test]
async fn lists_its_models_counts_tokens_and_is_well() {
    let options = SimulatorOptions { models: vec!["a".into(), "b".into()], ..SimulatorOptions::default() };
    let server = SimulatedServer::start(options).await.unwrap();
    let models = receive(send(server.address, "GET", "/any/prefix/v1/models", "").await).await.json();
    assert_eq!((&models["data"][0]["id"], &models["data"][1]["id"]), (&json!("a"), &json!("b")));
    let seen =
        post(server.address, "/tokenize", &json!({ "model": "a", "prompt": "twelve bytes" })).await.json();
    assert_eq!((&seen["count"], seen["tokens"].as_array().unwrap().len()), (&json!(3), 3));
    let whole = post(server.address, "/tokenize", &ask(&json!({}))).await.json()["count"].clone();
    assert_eq!(whole, post(server.address, CHAT, &ask(&json!({}))).await.json()["usage"]["prompt_tokens"]);
    let seen = post(server.address, "/v1/messages/count_tokens", &ask(&json!({}))).await.json();
    assert_eq!(seen["input_tokens"], whole);
    assert_eq!(receive(send(server.address, "GET", "/health", "").await).await.status, 200);
    assert_eq!(receive(send(server.address, "GET", "/v1/unknown", "").await).await.status, 404);
    assert_eq!(receive(send(server.address, "GET", CHAT, "").await).await.status, 405);
}

#[tokio::test]
async fn a_request_that_is_none_is_refused_in_the_envelope_of_its_dialect() {
    let server = server().await;
    for body in ["{", "[]", r#"{"model":"m"}"#, r#"{"messages":[{}]}"#, r#"{"model":"m","messages":[]}"#] {
        let seen = receive(send(server.address, "POST", CHAT, body).await).await;
        assert_eq!((seen.status, &seen.json()["error"]["code"]), (400, &json!(400)), "{body}");
        let seen = receive(send(server.address, "POST", MESSAGES, body).await).await;
        assert_eq!((seen.status, &seen.json()["type"]), (400, &json!("error")), "{body}");
    }
    let seen = post(server.address, CHAT, &ask(&json!({ "model": "m#fault=unheard_of" }))).await;
    assert_eq!(seen.status, 400);
}

#[tokio::test]
async fn more_than_the_window_is_refused() {
    let server =
        SimulatedServer::start(SimulatorOptions { context_length: 100, ..SimulatorOptions::default() })
            .await
            .unwrap();
    let long = json!({ "max_tokens": 1, "messages": [{ "role": "user", "content": "x".repeat(500) }] });
    for (path, words) in [(CHAT, "maximum context length is 100"), (MESSAGES, "prompt is too long")] {
        let seen = post(server.address, path, &ask(&long)).await;
        let error: Value = seen.json();
        assert_eq!(seen.status, 400);
        assert!(error["error"]["message"].as_str().unwrap().contains(words));
    }
    let seen = post(server.address, CHAT, &ask(&json!({ "max_tokens": 99 }))).await;
    assert_eq!((seen.status, &seen.json()["error"]["param"]), (400, &json!("max_tokens")));
}

#[tokio::test]
async fn a_port_in_use_is_one_clear_sentence() {
    let server = server().await;
    let error =
        SimulatedServer::start(SimulatorOptions { address: server.address, ..SimulatorOptions::default() })
            .await
            .unwrap_err();
    assert!(error.contains("already in use"), "{error}");
}
