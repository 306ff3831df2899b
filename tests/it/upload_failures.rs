//! Failed uploads: the client of a rejected 20 MB upload gets its error in any case, an endless upload is ended, and
//! a disk error does not count as a failure of a provider.

use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::client::Duplex;
use crate::harness::script::{ScriptStep, status};
use crate::harness::{Answer, Bench, Client, Provider, within};
use crate::sounds;
use crate::transcriptions::{PATH, TYPE, form, hears, nothing_is_left};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;

const CHAT: &str = "/v1/chat/completions";
const LARGE: usize = 20 << 20;

fn head(path: &str, key: &str, framing: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{framing}\r\n\r\n"
    )
}

/// Writes a request in pieces, as client libraries do; at the first failed write, it stops writing and reads the
/// response.
async fn like_a_library(mut socket: impl Duplex, head: &str, body: &[u8]) -> String {
    let write = async {
        socket.write_all(head.as_bytes()).await?;
        for piece in body.chunks(64 << 10) {
            socket.write_all(piece).await?;
        }
        socket.flush().await
    };
    within("the body to be written", write).await.ok();
    let mut bytes = Vec::new();
    within("the answer", socket.read_to_end(&mut bytes)).await.expect("the connection was reset");
    String::from_utf8(bytes).unwrap()
}

fn assert_error(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, answer.whole), (status, true), "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], code);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_20_mb_upload_still_gets_its_error() {
    let (certified, provider) = (TestCertificate::make(), Provider::start().await);
    let bench = Bench::new().settings("[limits]\njson_body = \"1MiB\"").listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let body = vec![b' '; LARGE];
    let stranger = Client { key: "sk-svc-nobody".to_owned(), ..running.client.clone() };
    assert_error(&running.client.post(CHAT, &json!("x".repeat(LARGE))).await, 413, "RESOURCE_5004");
    assert_error(&stranger.send("POST", CHAT, &[], &body).await, 401, "AUTH_1001");
    assert_error(&running.client.send("POST", "/v1/nothing", &[], &body).await, 404, "RESOURCE_5001");
    let zipped = [("content-encoding", "gzip")];
    assert_error(&running.client.send("POST", CHAT, &zipped, &body).await, 415, "RESOURCE_5005");
    let length = format!("content-length: {LARGE}");
    let chunk = [format!("{LARGE:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    for (key, status) in [(stranger.key.as_str(), "401"), (running.client.key.as_str(), "413")] {
        for (framing, body) in [(length.as_str(), &body), ("transfer-encoding: chunked", &chunk)] {
            let head = head(CHAT, key, framing);
            let plain = TcpStream::connect(running.client.address).await.unwrap();
            let secure =
                connect(running.gateway.https_address.unwrap(), &certified.root, &["http/1.1"]).await;
            for answer in
                [like_a_library(plain, &head, body).await, like_a_library(secure, &head, body).await]
            {
                assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{framing}: {answer}");
                assert!(answer.trim_end().ends_with('}'), "{answer}");
            }
        }
    }
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_upload_is_cut_off() {
    let provider = Provider::start().await;
    let running = Bench::new().provider("a", &provider).start().await;
    let mut socket = TcpStream::connect(running.client.address).await.unwrap();
    socket.write_all(head(CHAT, "sk-svc-nobody", "transfer-encoding: chunked").as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    let written = within("the end", async {
        let mut written = 0_usize;
        while socket.write_all(&chunk).await.is_ok() {
            written += chunk.len();
            assert!(written < 1 << 30, "it reads without end");
        }
        written
    })
    .await;
    assert!(written > LARGE, "{written}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_cannot_be_read_back_is_no_providers_failure() {
    let (bad, good) = (Provider::start().await, Provider::start().await);
    let running = hears(&[("bad", &bad, "price = { minute = 0.001 }"), ("good", &good, "")]).start().await;
    let wav = sounds::wav(60_000);
    let go = Arc::new(Notify::new());
    bad.then([vec![ScriptStep::Wait(go.clone())], status(503)].concat());
    let body = form(&[("model", false, b"w:price"), ("file", true, &wav)]);
    let mut open = running.client.open("POST", PATH, &[TYPE], &body).await;
    within("the first call", bad.until_calls(1)).await;
    // Truncates the spooled upload on the disk between the attempts at two providers.
    let folder = running.storage().join("spool");
    let lost = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|target| target.starts_with(&folder)));
    let mut files = 0;
    for fd in lost {
        std::fs::File::options().write(true).open(fd.path()).unwrap().set_len(0).unwrap();
        files += 1;
    }
    assert_eq!(files, 1);
    go.notify_one();
    let answer = within("the answer", open.finish()).await;
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_eq!(good.calls(), 0);
    let status = running.admin().get("/admin/providers").await.json();
    let of =
        |id: &str| status["data"].as_array().unwrap().iter().find(|one| one["id"] == id).unwrap().clone();
    assert_eq!(of("good")["last_error"], Value::Null, "{status}");
    assert_eq!(of("good")["offers"][0]["failing"].as_f64(), Some(0.0), "{status}");
    nothing_is_left(&running).await;
}
