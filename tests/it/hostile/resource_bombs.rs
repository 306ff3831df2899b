//! Bodies that are small to send and expensive to read: rejected after little work, in bounded memory.

use crate::harness::process::{Home, Process, catalogue, optimised};
use crate::harness::{Answer, Client, Provider, within};
use crate::hostile::{CHAT, ask, full, rest, statuses};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, split};
use tokio::net::TcpStream;

/// Allowed growth of the process, in KiB.
const GROWTH: u64 = 40 << 10;
/// Maximum processor time of a refusal. In unoptimised builds, and when other tests run at the same time, it is only
/// printed.
const WORK: Duration = Duration::from_millis(50);

/// Cost of a rejected body: peak memory, processor time.
struct Cost {
    idle: u64,
    spent: Duration,
}

/// Processor time that a process has used.
fn spent(process: &Process) -> Duration {
    // The kernel counts in hundredths of a second on every machine.
    Duration::from_millis(process.ticks() * 10)
}

impl Cost {
    fn begin(process: &Process) -> Self {
        Self { idle: process.memory("VmRSS"), spent: spent(process) }
    }

    fn end(self, process: &Process, what: &str) {
        let (grown, took) = (process.memory("VmHWM").saturating_sub(self.idle), spent(process) - self.spent);
        eprintln!("{what}: grown by at most {grown} KiB, {took:?} of processor time");
        assert!(grown <= GROWTH, "{what}: grown by {grown} KiB");
        if full() && optimised() {
            assert!(took <= WORK, "{what}: {took:?}");
        }
    }
}

fn refused(what: &str, answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{what}: {}", answer.text());
    assert!(answer.json()["error"]["code"].is_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bombs_are_refused_in_bounded_memory() {
    let (provider, home) = (Provider::start().await, Home::new());
    let speech = "[[models]]\nid = \"w\"\nkind = \"transcription\"\ncontext_length = 448\n";
    let offers = "\n[[providers.offers]]\nmodel = \"w\"\nprice = { minute = 0.006 }\n";
    home.write(&format!(
        "[files]\nkeep_free = \"1MiB\"\n[batches]\nline = \"1MiB\"\n{speech}{}{offers}",
        catalogue(&provider, "")
    ));
    let process = home.run().await;
    let (client, _) = home.key();
    assert_eq!(client.post(CHAT, &serde_json::from_str(&ask("Hi")).unwrap()).await.status, 200);

    // Decompression bomb: a gigabyte of zeros, compressed to a megabyte.
    let mut zipped = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..if full() { 1024 } else { 64 } {
        std::io::Write::write_all(&mut zipped, &zeros).unwrap();
    }
    let zipped = zipped.finish().unwrap();
    for encoding in ["gzip", "GZIP", "x-gzip", "deflate", "br", "zstd", "gzip, identity", "identity, gzip"] {
        let cost = Cost::begin(&process);
        let answer = client.send("POST", CHAT, &[("content-encoding", encoding)], &zipped).await;
        refused(encoding, &answer, 415);
        cost.end(&process, encoding);
    }

    let deep = |open: &str, close: &str| {
        let (open, close) = (open.repeat(100_000), close.repeat(100_000));
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],"x":{open}1{close}}}"#)
    };
    for (what, body) in [
        ("arrays 100,000 deep", deep("[", "]")),
        ("objects 100,000 deep", deep("{\"a\":", "}")),
        ("arrays that are never closed", "[".repeat(100_000)),
        ("both in turn", deep("[{\"a\":", "}]")),
    ] {
        let cost = Cost::begin(&process);
        refused(what, &client.send("POST", CHAT, &[], body.as_bytes()).await, 400);
        cost.end(&process, what);
    }

    let part = b"--b0und\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ny\r\n".repeat(100_000);
    let head = [b"--b0und\r\nX: ".to_vec(), vec![b'y'; 4 << 20]].concat();
    for path in ["/v1/files", "/v1/audio/transcriptions"] {
        for (what, body) in [("100,000 parts", &part), ("a part's head without an end", &head)] {
            let cost = Cost::begin(&process);
            let kind = ("content-type", "multipart/form-data; boundary=b0und");
            refused(what, &client.send("POST", path, &[kind], body).await, 400);
            cost.end(&process, what);
        }
    }
    let cost = Cost::begin(&process);
    a_long_line(&client, if full() { 1 << 30 } else { 64 << 20 }).await;
    let admin = home.admin();
    within("the last of it to be thrown away", async {
        while !admin.get("/metrics").await.text().contains("penstock_connections_open 0") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    cost.end(&process, "a line without an end");
    assert_eq!(provider.calls(), 1, "none of it reached a provider");
    assert_eq!(client.post(CHAT, &json!({"model": "m", "messages": []})).await.status, 400);
}

/// Uploads a file of a single line, in chunks, until the gateway stops reading; the client still receives the reason.
async fn a_long_line(client: &Client, length: usize) {
    let (mut read, mut write) = split(TcpStream::connect(client.address).await.unwrap());
    let key = &client.key;
    let head = format!(
        "POST /v1/files HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\
         Content-Type: multipart/form-data; boundary=b0und\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let begin = "--b0und\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n\
         --b0und\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{\"custom_id\":\"";
    let end = "\"}\r\n--b0und--\r\n";
    write.write_all(format!("{head}{:x}\r\n{begin}\r\n", begin.len()).as_bytes()).await.unwrap();
    let reading = tokio::spawn(async move { rest(&mut read).await });
    let piece = [b"100000\r\n".to_vec(), vec![b'x'; 1 << 20], b"\r\n".to_vec()].concat();
    for _ in 0..length >> 20 {
        if write.write_all(&piece).await.is_err() {
            break;
        }
    }
    write.write_all(format!("{:x}\r\n{end}\r\n0\r\n\r\n", end.len()).as_bytes()).await.ok();
    let heard = within("a refusal", reading).await.unwrap();
    let heard = String::from_utf8_lossy(&heard).into_owned();
    assert_eq!(statuses(heard.as_bytes()), [400], "{heard}");
    assert!(heard.contains("line 1: expected at most 1048576 bytes, got more"), "{heard}");
}
