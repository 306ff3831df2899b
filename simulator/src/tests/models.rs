//! Tests that rules for a model, and suffixes of a model's name, apply to each endpoint that names a model.

use super::{FaultRule, Seen, SimulatedFault, ask, post, receive, server};
use serde_json::{Value, json};
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

/// Endpoint and a request to it, without its model. A transcription is a form, so its body is built when it is sent.
fn endpoints() -> Vec<(&'static str, Value)> {
    vec![
        ("/v1/chat/completions", ask(&json!({}))),
        ("/v1/messages", ask(&json!({}))),
        ("/v1/responses", json!({ "input": "Hello" })),
        ("/v1/messages/count_tokens", ask(&json!({}))),
        ("/v1/completions", json!({ "prompt": "Once" })),
        ("/v1/embeddings", json!({ "input": "text" })),
        ("/embed", json!({ "inputs": "text" })),
        ("/v1/rerank", json!({ "query": "q", "documents": ["d"] })),
        ("/rerank", json!({ "query": "q", "texts": ["d"] })),
        ("/tokenize", json!({ "prompt": "text" })),
        ("/v1/images/generations", json!({ "prompt": "a bridge", "size": "8x8" })),
        ("/v1/audio/speech", json!({ "input": "Hello", "voice": "v" })),
        ("/v1/audio/speech", json!({ "input": "Hello", "voice": "v", "response_format": "pcm" })),
        ("/v1/moderations", json!({ "input": "harmless" })),
        (TRANSCRIPTIONS, Value::Null),
    ]
}

/// Endpoints whose answers name the model.
const NAMES_ITS_MODEL: [&str; 5] =
    ["/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/embeddings", "/v1/moderations"];
const TRANSCRIPTIONS: &str = "/v1/audio/transcriptions";

/// Sends the request of an endpoint, for this model.
async fn call(address: SocketAddr, path: &str, body: &Value, model: &str) -> Seen {
    if path == TRANSCRIPTIONS {
        return transcribe(address, model).await;
    }
    let mut body = body.clone();
    body["model"] = json!(model);
    post(address, path, &body).await
}

/// Sends a transcription of half a second of silence.
async fn transcribe(address: SocketAddr, model: &str) -> Seen {
    let mut wav =
        b"RIFF\x64\x1f\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\x40\x1f\0\0"
            .to_vec();
    wav.resize(wav.len() + 8_000, 0);
    let mut body = format!(
        "--b\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\n{model}\r\n\
         --b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\n"
    )
    .into_bytes();
    body.extend_from_slice(&wav);
    body.extend_from_slice(b"\r\n--b--\r\n");
    let head = format!(
        "POST {TRANSCRIPTIONS} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: multipart/form-data; boundary=b\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    receive(stream).await
}

#[tokio::test]
async fn a_rule_for_a_model_matches_each_endpoint_with_and_without_a_suffix() {
    let server = server().await;
    server.control().add_rule(FaultRule::from(SimulatedFault::status(503)).model("org/bad").path("*"));
    for (path, body) in endpoints() {
        let mut statuses = Vec::new();
        for model in ["org/bad", "org/bad#tokens=3", "org/good", "bad"] {
            statuses.push(call(server.address, path, &body, model).await.status);
        }
        assert_eq!(statuses, [503, 503, 200, 200], "{path}");
    }
}

#[tokio::test]
async fn a_suffix_selects_the_faults_of_each_endpoint_and_is_no_part_of_the_name() {
    let server = server().await;
    for (path, body) in endpoints() {
        // A status is an error of the engine; the other faults change a good answer.
        let status = call(server.address, path, &body, "org/m#fault=status&status=418").await.status;
        assert_eq!(status, 418, "{path}");
        let seen = call(server.address, path, &body, "org/m#fault=content_type&value=text/x#tokens=5").await;
        assert_eq!((seen.status, seen.header("content-type")), (200, Some("text/x")), "{path}");
        let answer: Value = serde_json::from_slice(&seen.body).unwrap_or_default();
        if NAMES_ITS_MODEL.contains(&path) {
            assert_eq!(answer["model"], "org/m", "{path}: {answer}");
        }
        for unreadable in ["org/m#fault=unheard_of", "org/m#", "org/m#tokens=x"] {
            let seen = call(server.address, path, &body, unreadable).await;
            assert_eq!(seen.status, 400, "{path}: {unreadable}");
        }
        assert_eq!(call(server.address, path, &body, "org/m").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_suffix_sets_the_length_of_a_text_completion() {
    let server = server().await;
    let tokens = async |model: &str, more: Value| {
        let mut body = json!({ "model": model, "prompt": "Once" });
        for (name, value) in more.as_object().unwrap() {
            body[name] = value.clone();
        }
        let seen = post(server.address, "/v1/completions", &body).await;
        let answer = if more["stream"] == true { seen.events().pop().unwrap() } else { seen.json() };
        assert_eq!(answer["model"], "m");
        answer["usage"]["completion_tokens"].as_u64().unwrap()
    };
    let stream = json!({ "stream": true, "stream_options": { "include_usage": true } });
    assert_eq!(tokens("m", json!({})).await, 16);
    assert_eq!(tokens("m#tokens=500", json!({})).await, 500);
    assert_eq!(tokens("m#tokens=500", stream).await, 500);
    assert_eq!(tokens("m#tokens=500", json!({ "max_tokens": 7 })).await, 7);
    assert_eq!(tokens("m#tokens=3", json!({ "max_tokens": 7 })).await, 3);
    assert_eq!(tokens("m#tokens=9", json!({ "n": 2, "prompt": ["a", "b"] })).await, 36);
}

#[tokio::test]
async fn faults_of_the_body_apply_to_moderation() {
    let server = server().await;
    let ask = |model: &str| json!({ "model": model, "input": ["a", "harm"] });
    let seen = post(server.address, "/v1/moderations", &ask("m")).await.json();
    assert_eq!((&seen["model"], seen["usage"].is_object()), (&json!("m"), true));
    let seen = post(server.address, "/v1/moderations", &ask("m#fault=no_usage")).await.json();
    assert_eq!((&seen["results"][1]["flagged"], seen.get("usage")), (&json!(true), None));
    let seen = post(server.address, "/v1/moderations", &ask("m#fault=malformed")).await;
    assert!(seen.status == 200 && serde_json::from_slice::<Value>(&seen.body).is_err());
}
