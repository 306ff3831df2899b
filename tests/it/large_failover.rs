//! Failover of requests of 5 MiB for each framing and each failure: Pingora's own retry buffer ends at 64 KiB.

use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::h2_client::H2Client;
use crate::harness::script::{Script, ScriptStep, cut, event, plain, role, silent, sse, status, stream};
use crate::harness::{Answer, Bench, Provider};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";
/// Bytes of the text.
const LONG: usize = 5 << 20;
/// Price of the second provider: the dearer one is tried second, regardless of the load.
const SECOND: &str = "price = { input = 50.0, output = 50.0 }";

#[derive(Clone, Copy, Debug)]
enum UploadFraming {
    Length,
    Chunked,
    Http2,
}

async fn ask(running: &Running, certified: &TestCertificate, framing: UploadFraming, body: &Value) -> Answer {
    let text = body.to_string();
    match framing {
        UploadFraming::Length => running.client.post(CHAT, body).await,
        UploadFraming::Chunked => {
            let mut chunks = Vec::new();
            for piece in text.as_bytes().chunks(100_000) {
                chunks.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                chunks.extend_from_slice(piece);
                chunks.extend_from_slice(b"\r\n");
            }
            chunks.extend_from_slice(b"0\r\n\r\n");
            running.client.send("POST", CHAT, &[("transfer-encoding", "chunked")], &chunks).await
        }
        UploadFraming::Http2 => {
            let socket = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
            H2Client::over(socket, &running.client.key).await.post(CHAT, body).await
        }
    }
}

/// Returns each kind of failure before an answer, and true if it needs a streamed request.
fn failures() -> Vec<(&'static str, Script, bool)> {
    let error = event(&json!({"error": {"message": "overloaded", "code": 503}}));
    vec![
        ("500", status(500), false),
        ("cut", cut(), false),
        ("silent", silent(), false),
        ("an error in its stream", vec![sse(), error, ScriptStep::Cut], true),
        ("a head, then nothing", vec![sse(), role(), ScriptStep::Cut], true),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_request_is_answered_by_the_next_provider() {
    let certified = TestCertificate::make();
    let text: String = (0..LONG).map(|index| char::from(b'a' + (index % 26) as u8)).collect();
    for (name, failure, streamed) in failures() {
        let (bad, good) = (Provider::start().await, Provider::start().await);
        bad.always(failure);
        good.always(if streamed { stream(&["Hello"]) } else { plain("Hello") });
        let running = Bench::new()
            .listen(&certified.https())
            .model("context_length = 20000000")
            .hasty("bad", &bad)
            .provider_with("good", &good, PATIENT, SECOND)
            .start()
            .await;
        let mut body = if streamed { running.ask_stream() } else { running.ask() };
        body["model"] = json!("m:price");
        body["messages"][0]["content"] = json!(text);
        for (times, framing) in
            [UploadFraming::Length, UploadFraming::Chunked, UploadFraming::Http2].into_iter().enumerate()
        {
            let answer = ask(&running, &certified, framing, &body).await;
            assert_eq!(answer.status, 200, "{name}, {framing:?}: {}", answer.text());
            assert_eq!(answer.header("x-penstock-provider"), Some("good"), "{name}, {framing:?}");
            let heard = match streamed {
                true => answer.streamed_text(),
                false => answer.json()["choices"][0]["message"]["content"].as_str().unwrap().to_owned(),
            };
            assert_eq!(heard, "Hello", "{name}, {framing:?}");
            assert_eq!(good.calls(), times + 1, "{name}, {framing:?}");
            let seen = good.last().json();
            assert!(seen["messages"][0]["content"] == json!(text), "{name}, {framing:?}: the text is whole");
        }
        assert!(bad.calls() > 0, "{name}: the first provider was asked");
    }
}
