//! Failover of requests with bodies of any size: the next provider gets the same body.

use crate::harness::script::{cut, status};
use crate::harness::{Bench, Provider};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_mebibytes_fail_over_byte_for_byte() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    bad.then(cut()).then(cut()).then(cut()).then(cut()).then(cut());
    bad.always(status(503));
    let running = Bench::new().provider("bad", &bad).provider("good", &good).start().await;
    let text: String = (0..5 << 20).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    let mut ask = running.ask();
    ask["messages"][0]["content"] = json!(text);
    ask["model"] = json!("m:price");
    // Sends several requests, so that at least one of them first goes to the failing provider.
    for _ in 0..4 {
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert_eq!(answer.status, 200);
    }
    let sent = good.last();
    assert_eq!(sent.json()["messages"][0]["content"].as_str().map(str::len), Some(text.len()));
    assert!(sent.json()["messages"][0]["content"] == json!(text));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunked_body_and_one_that_expects_to_be_invited_arrive_whole() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let body = running.ask().to_string();
    let mut chunked = String::new();
    for piece in body.as_bytes().chunks(7) {
        chunked.push_str(&format!("{:x}\r\n{}\r\n", piece.len(), String::from_utf8_lossy(piece)));
    }
    chunked.push_str("0\r\n\r\n");
    let headers = [("transfer-encoding", "chunked")];
    let answer = running.client.send("POST", "/v1/chat/completions", &headers, chunked.as_bytes()).await;
    assert_eq!(answer.status, 200);
    let headers = [("expect", "100-continue")];
    let answer = running.client.send("POST", "/v1/chat/completions", &headers, body.as_bytes()).await;
    assert_eq!(answer.status, 200);
    assert_eq!(provider.calls(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_answer_arrives_whole() {
    let provider = Provider::start().await;
    let text = "wörter ".repeat(300_000);
    provider.always(crate::harness::script::plain(&text));
    let running = Bench::new().provider("a", &provider).start().await;
    let answer = running.chat().await;
    assert!(answer.whole);
    assert!(answer.json()["choices"][0]["message"]["content"] == json!(text));
    assert!(answer.json()["billing_cost"].is_object());
}
