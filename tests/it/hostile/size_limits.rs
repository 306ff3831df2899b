//! Heads and bodies just below, at and just above their limits: each rejection has its own code, in the dialect of its
//! path, at little cost.

use crate::harness::process::{Home, catalogue};
use crate::harness::{Answer, Bench, Client, Provider};
use crate::hostile::{CHAT, ask, full, rest, say, statuses};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

const LIMITS: &str = "[limits]\nhead = \"2KiB\"\nhead_fields = 20\ntarget = \"256B\"\njson_body = \"1KiB\"\njson_depth = 16\nkeep_alive = \"300ms\"";

/// Complete valid request with an additional header line `extra`.
fn request(client: &Client, target: &str, extra: &str, body: &str) -> Vec<u8> {
    let (key, length) = (&client.key, body.len());
    format!(
        "POST {target} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n{extra}Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The first answer's status and JSON.
fn answer(bytes: &[u8]) -> (u16, Value) {
    let text = String::from_utf8_lossy(bytes);
    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
    (statuses(bytes)[0], serde_json::from_str(body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_is_served_at_its_limits_and_refused_beyond() {
    let provider = Provider::start().await;
    let running = Bench::new().settings(LIMITS).provider("a", &provider).start().await;
    let client = &running.client;
    let body = ask("Hi");
    let heads = |size: usize| {
        let bare = request(client, CHAT, "x: \r\n", &body).len() - body.len();
        request(client, CHAT, &format!("x: {}\r\n", "y".repeat(size - bare)), &body)
    };
    let fields = |count: usize| request(client, CHAT, &"x: y\r\n".repeat(count - 3), &body);
    let targets = |length: usize| {
        let target = format!("{CHAT}?{}", "q".repeat(length - CHAT.len() - 1));
        request(client, &target, "", &body)
    };
    type BodyBuilder<'a> = &'a dyn Fn(usize) -> Vec<u8>;
    let table: [(BodyBuilder<'_>, usize, u16, &str); 3] = [
        (&heads, 2048, 431, "RESOURCE_5009"),
        (&fields, 20, 431, "RESOURCE_5009"),
        (&targets, 256, 414, "RESOURCE_5008"),
    ];
    for (make, limit, status, code) in table {
        for size in [limit - 1, limit] {
            let heard = say(client.address, &make(size)).await;
            assert_eq!(statuses(&heard), [200], "{code} at {size}: {}", String::from_utf8_lossy(&heard));
        }
        let (heard, refusal) = answer(&say(client.address, &make(limit + 1)).await);
        assert_eq!((heard, refusal["error"]["code"].as_str()), (status, Some(code)), "{refusal}");
        assert_eq!(refusal["error"]["details"]["limit"], limit);
    }
    assert_eq!(provider.calls(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_is_served_at_its_limits_and_refused_beyond() {
    let provider = Provider::start().await;
    let running = Bench::new().settings(LIMITS).provider("a", &provider).start().await;
    let client = &running.client;
    let status_and_code = |answer: &Answer| (answer.status, answer.json()["error"]["code"].clone());
    for (size, status) in [(1023, 200), (1024, 200), (1025, 413)] {
        let body = ask(&"x".repeat(size - ask("").len()));
        let whole = client.send("POST", CHAT, &[], body.as_bytes()).await;
        let chunk = format!("{size:x}\r\n{body}\r\n0\r\n\r\n");
        let chunked = client.send("POST", CHAT, &[("transfer-encoding", "chunked")], chunk.as_bytes()).await;
        for answer in [whole, chunked] {
            assert_eq!(answer.status, status, "{size}: {}", answer.text());
            if status == 413 {
                assert_eq!(status_and_code(&answer), (413, json!("RESOURCE_5004")));
            }
        }
    }
    // The depth includes the object and the array around the nesting.
    let nested = |depth: usize| {
        let inner = depth - 1;
        format!(
            r#"{{"model":"m","messages":[{{"role":"user","content":"Hi"}}],"x":{}{}}}"#,
            "[".repeat(inner),
            "]".repeat(inner)
        )
    };
    let statuses: Vec<u16> = {
        let mut found = Vec::new();
        for depth in [15, 16, 17] {
            found.push(client.send("POST", CHAT, &[], nested(depth).as_bytes()).await.status);
        }
        found
    };
    assert_eq!(statuses, [200, 200, 400]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_head_hears_why_in_the_dialect_of_its_path() {
    let provider = Provider::start().await;
    let running = Bench::new().settings(LIMITS).provider("a", &provider).start().await;
    let bad = "Content-Length: 1\r\nContent-Length: 2\r\n\r\n";
    for (path, messages) in [(CHAT, false), ("/v1/messages?beta=true", true), ("/", false)] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\n{bad}");
        let heard = say(running.client.address, head.as_bytes()).await;
        let text = String::from_utf8_lossy(&heard).into_owned();
        let (status, refusal) = answer(&heard);
        assert_eq!(status, 400, "{text}");
        let lower = text.to_ascii_lowercase();
        assert!(
            lower.contains("\r\nconnection: close\r\n") && lower.contains("\r\nx-request-id: req_"),
            "{text}"
        );
        assert_eq!(refusal["type"] == "error", messages, "{refusal}");
        assert_eq!(refusal["error"]["type"], "invalid_request_error");
        assert!(
            refusal["error"]["message"].as_str().unwrap().contains("more than one Content-Length"),
            "{refusal}"
        );
    }
    let metrics = running.admin().get("/metrics").await.text();
    assert!(
        metrics.contains(
            r#"penstock_requests_total{endpoint="unknown",model="none",outcome="refused",status="400",work="request"} 3"#
        ),
        "they are counted"
    );
}

/// Tests that endless heads end at their limit, and that refused requests leave no memory in use.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_requests_cost_next_to_no_memory() {
    let provider = Provider::start().await;
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let process = home.run().await;
    let (client, _) = home.key();
    assert_eq!(client.post(CHAT, &serde_json::from_str(&ask("Hi")).unwrap()).await.status, 200);
    let idle = process.memory("VmRSS");
    let at_once = if full() { 1000 } else { 200 };
    let mut open = Vec::new();
    for number in 0..at_once {
        let mut socket = TcpStream::connect(client.address).await.unwrap();
        let endless = match number % 3 {
            0 => [b"GET / HTTP/1.1\r\nHost: a\r\nx: ".to_vec(), vec![b'y'; 48 << 10]].concat(),
            1 => [b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(), b"x: y\r\n".repeat(200)].concat(),
            _ => [b"GET /".to_vec(), vec![b'q'; 48 << 10]].concat(),
        };
        socket.write_all(&endless).await.ok();
        open.push((socket, [431, 431, 414][number % 3]));
    }
    for (socket, status) in &mut open {
        assert_eq!(statuses(&rest(socket).await), [*status]);
    }
    let grown = process.memory("VmHWM").saturating_sub(idle);
    eprintln!("{at_once} endless heads at once: {idle} KiB idle, grown by at most {grown} KiB");
    assert!(grown / at_once as u64 <= 256, "{grown} KiB for {at_once}");
    drop(provider);
}
