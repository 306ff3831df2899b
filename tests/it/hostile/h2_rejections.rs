//! Requests that the HTTP/2 library rejects by itself: no exchange begins, and each is logged.

use super::CHAT;
use super::raw_h2::{END_HEADERS, END_STREAM, HEADERS, Raw, field, frame};
use crate::harness::Provider;
use crate::harness::certificates::TestCertificate;
use crate::harness::process::{Home, catalogue};
use crate::harness::until;
use serde_json::Value;
use std::collections::BTreeSet;

/// Lines of the access log with this status.
fn lines(log: &str, status: u64) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["status"] == status).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_rejected_request_has_a_line_with_an_id_of_its_own() {
    let provider = Provider::start().await;
    let (mut home, certified) = (Home::new(), TestCertificate::make());
    let address = home.secure(&certified);
    home.write(&catalogue(&provider, ""));
    let running = home.run().await;
    let [method, scheme, path, authority] =
        [(":method", "POST"), (":scheme", "https"), (":path", CHAT), (":authority", "localhost")]
            .map(|(name, value)| field(name, value));
    let malformed = [
        [&method[..], &scheme, &path].concat(),
        [&method[..], &scheme, &path, &authority, &field("host", "other")].concat(),
        [&method[..], &scheme, &path, &authority, &field("host", "user@localhost")].concat(),
    ];
    let mut raw = Raw::begun(address, &certified.root).await;
    for (number, block) in malformed.iter().enumerate() {
        let stream = 2 * u32::try_from(number).unwrap() + 1;
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, block)).await;
        let answered = loop {
            let heard = raw.hear().await.expect("the connection goes on");
            if heard.stream == stream {
                break heard;
            }
        };
        assert_eq!(answered.kind, HEADERS, "it is answered: {answered:?}");
    }
    until("a line for each", || lines(&running.output(), 400).len() == malformed.len()).await;
    let lines = lines(&running.output(), 400);
    let ids: BTreeSet<&str> = lines.iter().map(|line| line["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), malformed.len(), "{lines:?}");
    for line in &lines {
        assert!(line["id"].as_str().unwrap().starts_with("req_"), "{line}");
        assert_eq!(line["code"], "INFERENCE_3201", "{line}");
    }
    assert_eq!(provider.calls(), 0);
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_the_library_resets_are_counted() {
    let provider = Provider::start().await;
    let (mut home, certified) = (Home::new(), TestCertificate::make());
    let address = home.secure(&certified);
    home.write(&catalogue(&provider, ""));
    let running = home.run().await;
    let [method, scheme, path, authority] =
        [(":method", "POST"), (":scheme", "https"), (":path", CHAT), (":authority", "localhost")]
            .map(|(name, value)| field(name, value));
    let head = [&method[..], &scheme, &path, &authority].concat();
    let malformed = [
        [&scheme[..], &path, &authority].concat(),
        [&method[..], &scheme, &authority].concat(),
        [&head[..], &field("connection", "close")].concat(),
        [&head[..], &field("content-length", "5")].concat(),
        [&head[..], &field("content-length", "5"), &field("content-length", "6")].concat(),
    ];
    let mut raw = Raw::begun(address, &certified.root).await;
    for (number, block) in malformed.iter().enumerate() {
        let stream = 2 * u32::try_from(number).unwrap() + 1;
        raw.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, block)).await;
        let answered = loop {
            let heard = raw.hear().await.expect("the connection goes on");
            if heard.stream == stream {
                break heard;
            }
        };
        assert_eq!(answered.kind, 3, "{number} is reset: {answered:?}");
    }
    let reset = |log: &str| -> u64 {
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .filter(|line| line["event"] == "h2_streams_reset")
            .filter_map(|line| line["count"].as_u64())
            .sum()
    };
    until("a count of each", || reset(&running.output()) == malformed.len() as u64).await;
    assert_eq!(provider.calls(), 0);
    running.kill().await;
}
