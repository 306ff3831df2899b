//! Requests with lists that mix two forms of elements, such as texts and token ids.

use crate::harness::Provider;
use crate::harness::script::{scores, vectors};
use crate::{embeddings, rerank};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_and_token_ids_may_stand_in_one_list() {
    let mixed = || json!(["Hi", [9906, 1917], "there"]);
    let provider = Provider::start().await;
    provider.always(vectors(&[&[1.0], &[2.0], &[3.0]], 5));
    let running = embeddings::bench().provider("a", &provider).start().await;
    let body = embeddings::embed(&running, mixed()).await.json();
    assert_eq!(body["data"].as_array().unwrap().len(), 3);
    assert_eq!(provider.last().json()["input"], json!(["Hi", "Hello world", "there"]));
    // A provider that accepts token ids gets them unchanged, but never in one request together with texts.
    let native = Provider::start().await;
    for number in [1.0, 2.0, 3.0] {
        native.then(vectors(&[&[number]], 2));
    }
    let running = embeddings::bench().model("token_ids = \"native\"").provider("a", &native).start().await;
    let body = embeddings::embed(&running, mixed()).await.json();
    let first: Vec<_> =
        body["data"].as_array().unwrap().iter().map(|item| item["embedding"][0].as_f64()).collect();
    assert_eq!((first, &body["usage"]["prompt_tokens"]), (vec![Some(1.0), Some(2.0), Some(3.0)], &json!(6)));
    let sent: Vec<_> = native.seen().iter().map(|seen| seen.json()["input"].clone()).collect();
    assert_eq!(sent, [json!(["Hi"]), json!([[9906, 1917]]), json!(["there"])]);
    let refusing = embeddings::bench().model("token_ids = \"refuse\"").provider("a", &native).start().await;
    assert_eq!(embeddings::embed(&refusing, mixed()).await.json()["error"]["param"], "input");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strings_and_objects_may_stand_in_one_list() {
    let provider = Provider::start().await;
    provider.always(scores(&[0.4, 0.02, 0.91], 31));
    let running = rerank::bench().provider("a", &provider).start().await;
    let documents = json!(["x", {"text": "y", "id": 7}, "z"]);
    let body =
        rerank::rerank(&running, &rerank::with(&json!({"documents": documents, "return_documents": true})))
            .await
            .json();
    assert_eq!(rerank::order(&body), [2, 0, 1]);
    let texts: Vec<_> =
        body["results"].as_array().unwrap().iter().map(|one| &one["document"]["text"]).collect();
    assert_eq!(texts, ["z", "x", "y"]);
    assert_eq!(provider.last().json()["documents"], json!(["x", "y", "z"]));
}
