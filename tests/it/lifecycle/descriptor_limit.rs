//! Limit of file descriptors: all of them are used, and exhaustion is not counted against providers.

use crate::harness::process::{Home, catalogue, complaint, limited, penstock};
use crate::harness::script::{ScriptStep, role, sse, text};
use crate::harness::{Client, Provider, until, within};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";

fn ask() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_connections_are_held_as_the_system_allows_at_most() {
    // The limit of this process is raised, because it opens the sockets of both the clients and the provider.
    penstock::telemetry::fd_limit::raise_limit();
    let provider = Provider::start().await;
    provider.always(vec![sse(), role(), text("One "), ScriptStep::Hang]);
    let home = Home::new();
    home.write(&catalogue(&provider, ""));
    let running = home.run_with(|command| limited(command, 256, 4096)).await;
    let (client, _) = home.key();
    let mut streamed = ask();
    streamed["stream"] = json!(true);
    let mut open = Vec::new();
    for _ in 0..300 {
        open.push(client.stream_until(CHAT, &streamed, "One ").await);
    }
    assert!(running.descriptors() > 600, "each has two: {}", running.descriptors());
    running.wait_for_line("descriptor_limit_low").await;
    let log = running.output();
    assert!(log.contains("limits.connections"), "{log}");
    assert!(!log.contains("_failed"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_none_is_left_no_provider_is_blamed_and_the_log_says_why() {
    penstock::telemetry::fd_limit::raise_limit();
    let provider = Provider::start().await;
    let home = Home::new();
    let few = "[limits]\nrequest_head = \"5m\"\n";
    home.write(&format!("{few}{}", catalogue(&provider, "")));
    let running = home.run_with(|command| limited(command, 256, 256)).await;
    let (client, _) = home.key();
    let mut first = TcpStream::connect(home.http).await.unwrap();
    // Opens more connections than the gateway can accept, so that it uses all descriptors: when one is closed, it
    // accepts another one.
    let mut crowd = Vec::new();
    for _ in 0..400 {
        crowd.push(TcpStream::connect(home.http).await.unwrap());
    }
    running.wait_for_line("accept_failed").await;
    for _ in 0..8 {
        let (head, body) = within("an answer", asked(&mut first, &client)).await;
        assert!(head.starts_with("http/1.1 503") && head.contains("retry-after: "), "{head}");
        assert_eq!(body["error"]["code"], "SERVER_9002", "{body}");
    }
    running.wait_for_line("connect_failed").await;
    assert_eq!(provider.calls(), 0);
    drop(crowd);
    until("free space", || running.descriptors() < 200).await;
    let (head, body) = within("an answer", asked(&mut first, &client)).await;
    assert!(head.starts_with("http/1.1 200"), "nobody was ejected: {head} {body}");
    let log = running.output();
    assert_eq!(log.matches("Too many open files").count(), log.matches("_failed\"").count(), "{log}");
}

#[test]
fn check_says_how_many_it_may_take_and_if_there_are_too_few() {
    let home = Home::new();
    home.write("[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 1000\n");
    let check = |most| {
        let mut command = penstock(&["check", "--config", home.config().to_str().unwrap()]);
        limited(&mut command, 256, most);
        command.output().unwrap()
    };
    let few = check(256);
    let stderr = complaint(&few);
    assert!(
        few.status.success() && stderr.contains("LimitNOFILE") && stderr.contains("may have 256"),
        "{stderr}"
    );
    let stdout = String::from_utf8(few.stdout).unwrap();
    assert!(stdout.contains("descriptors: limits.connections = 16384"), "{stdout}");
}

/// Sends a request on an open connection; returns its answer.
async fn asked(socket: &mut TcpStream, client: &Client) -> (String, Value) {
    let body = ask().to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        client.key,
        body.len()
    );
    socket.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.unwrap();
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let read = socket.read(&mut piece).await.unwrap();
        assert!(read > 0, "the connection is kept: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else { continue };
        let head = head.to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        if rest.len() == length.parse::<usize>().unwrap() {
            return (head, serde_json::from_str(rest).unwrap());
        }
    }
}
