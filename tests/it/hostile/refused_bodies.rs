//! Refusals of requests over HTTP/2 whose bodies are still being sent: the client receives the refusal, and its stream is
//! not reset while it sends the rest.

use super::CHAT;
use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::{Bench, Provider, until, within};
use bytes::Bytes;
use h2::{Reason, SendStream};
use std::future::poll_fn;

const BODY: usize = 8 << 20;

/// Sends this many bytes as the windows allow, the last ones with the end of the stream if `ends`. Returns false if the
/// stream was reset.
async fn send_bytes(upward: &mut SendStream<Bytes>, mut left: usize, ends: bool) -> bool {
    while left > 0 {
        upward.reserve_capacity(left.min(64 << 10));
        let Some(Ok(count)) = within("capacity", poll_fn(|cx| upward.poll_capacity(cx))).await else {
            return false;
        };
        let count = count.min(left);
        left -= count;
        if upward.send_data(Bytes::from(vec![b' '; count]), ends && left == 0).is_err() {
            return false;
        }
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http2_a_refusal_is_heard_by_a_client_that_sends_all_of_its_body() {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    let bench = Bench::new().settings("[limits]\njson_body = \"1MiB\"").listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let key = &*running.client.key;
    let secure = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
    let (mut send, connection) = h2::client::handshake(secure).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    for (method, path, key, status, ends) in [
        ("POST", CHAT, "psk_wrong", 401, true),
        ("POST", CHAT, key, 413, true),
        ("POST", "/v1/nothing", key, 404, true),
        ("GET", "/v1/models", key, 200, true),
        ("POST", CHAT, "psk_wrong", 401, false),
    ] {
        let request = http::Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {key}"))
            .header("content-length", BODY)
            .body(())
            .unwrap();
        send = send.ready().await.unwrap();
        let (answer, mut upward) = send.send_request(request, false).unwrap();
        assert!(send_bytes(&mut upward, 100, false).await);
        let answer = within("the head", answer).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        let mut body = answer.into_body();
        let mut read = 0;
        while let Some(piece) = within("the refusal", body.data()).await {
            read += piece.unwrap().len();
        }
        assert!(read > 0, "{path}");
        // The request holds no permit while the rest of its body arrives.
        until("the exchange to end", || running.gateway.app.in_flight_exchanges() == 0).await;
        if ends {
            assert!(send_bytes(&mut upward, BODY - 100, true).await, "{status}: the stream was reset");
        } else {
            // A client that sends nothing more is not waited for.
            let reset = within("a reset", poll_fn(|cx| upward.poll_reset(cx))).await.unwrap();
            assert_eq!(reset, Reason::NO_ERROR);
        }
    }
    assert_eq!(provider.calls(), 0);
    driver.abort();
}
