//! Tests of the exchange over a pipe: answers split at each byte, truncated answers, cancelled and resumed reads.
#![allow(clippy::unwrap_used)]
use super::*;
use tokio::io::{DuplexStream, duplex};

/// Returns an exchange and the provider's end of its connection.
fn pair() -> (Http1Exchange, DuplexStream) {
    let (gateway_end, provider_end) = duplex(1 << 20);
    (Http1Exchange::new(Box::new(gateway_end)), provider_end)
}

/// Reads an answer that a provider sends in these chunks before it closes the connection. Returns status and body,
/// and true if the connection is reusable.
async fn receive(pieces: &[&[u8]]) -> (Result<(u16, Vec<u8>), TransportError>, bool) {
    let (gateway_end, mut provider_end) = duplex(1);
    let mut http1 = Http1Exchange::new(Box::new(gateway_end));
    let sending = async {
        for piece in pieces {
            if provider_end.write_all(piece).await.is_err() {
                break;
            }
        }
        drop(provider_end);
    };
    let (_, read) = tokio::join!(sending, async {
        let read = read(&mut http1).await;
        (read, http1.into_reusable_stream().is_some())
    });
    read
}

async fn read(http1: &mut Http1Exchange) -> Result<(u16, Vec<u8>), TransportError> {
    let status = http1.read_head().await?;
    let mut body = Vec::new();
    while let Some(piece) = http1.read_body().await? {
        body.extend_from_slice(&piece);
    }
    Ok((status, body))
}

#[tokio::test]
async fn an_answer_is_the_same_for_every_split() {
    let expected: Vec<u8> = (0..70_000_u32).map(|byte| b'a' + (byte % 26) as u8).collect();
    let text = String::from_utf8(expected.clone()).unwrap();
    let cases = [
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n{text}"), true),
        (format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11170\r\n{text}\r\n0\r\n\r\n"), true),
        (format!("HTTP/1.1 200 OK\r\n\r\n{text}"), false),
    ];
    for (sent, reusable) in cases {
        // First the answer is split at each byte, by a pipe with a capacity of one byte; then it is sent in one
        // write.
        assert_eq!(receive(&[sent.as_bytes()]).await, (Ok((200, expected.clone())), reusable));
        let (mut http1, mut provider_end) = pair();
        provider_end.write_all(sent.as_bytes()).await.unwrap();
        drop(provider_end);
        assert_eq!(read(&mut http1).await.unwrap(), (200, expected.clone()));
    }
}

#[tokio::test]
async fn a_truncated_answer_is_an_error() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    let counted = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    for sent in [chunked, counted] {
        assert!(receive(&[sent.as_bytes()]).await.0.is_ok());
        for end in 0..sent.len() {
            let cut = sent.as_bytes().get(..end).unwrap();
            assert_eq!(receive(&[cut]).await, (Err(TransportError::Gone), false), "{end} of {sent}");
        }
    }
}

#[tokio::test]
async fn only_a_connection_without_extra_bytes_is_reused() {
    let cases = [
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", true),
        ("HTTP/1.1 204 None\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", false),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", false),
    ];
    for (sent, reusable) in cases {
        let (mut http1, mut provider_end) = pair();
        provider_end.write_all(sent.as_bytes()).await.unwrap();
        read(&mut http1).await.unwrap();
        assert_eq!(http1.into_reusable_stream().is_some(), reusable, "{sent}");
    }
    let (http1, _far) = pair();
    assert!(http1.into_reusable_stream().is_none(), "nothing was answered");
}

#[tokio::test]
async fn informational_heads_precede_the_answer() {
    let sent = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\nX: y\r\n\r\nz";
    let (mut http1, mut provider_end) = pair();
    provider_end.write_all(sent.as_bytes()).await.unwrap();
    assert_eq!(http1.read_head().await, Ok(100));
    assert_eq!(http1.read_head().await, Ok(103));
    assert_eq!(read(&mut http1).await.unwrap(), (200, b"z".to_vec()));
    assert_eq!((http1.status(), http1.header("x"), http1.header("link")), (Some(200), Some(&b"y"[..]), None));
}

#[tokio::test(start_paused = true)]
async fn reads_are_cancel_safe() {
    let (mut http1, mut provider_end) = pair();
    provider_end.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Enc").await.unwrap();
    timeout(Duration::from_secs(1), http1.read_head()).await.unwrap_err();
    provider_end.write_all(b"oding: chunked\r\n\r\n5\r\nhel").await.unwrap();
    assert_eq!(http1.read_head().await, Ok(200));
    assert_eq!(http1.read_body().await.unwrap().unwrap(), "hel");
    timeout(Duration::from_secs(1), http1.read_body()).await.unwrap_err();
    provider_end.write_all(b"lo\r\n0\r\n\r\n").await.unwrap();
    assert_eq!(http1.read_body().await.unwrap().unwrap(), "lo");
    assert_eq!(http1.read_body().await, Ok(None));
    assert!(http1.is_complete() && http1.into_reusable_stream().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_silent_provider_is_waited_for_up_to_its_timeout() {
    let (mut http1, _far) = pair();
    http1.set_read_timeout(Duration::from_secs(7));
    let began = tokio::time::Instant::now();
    assert_eq!(http1.read_head().await, Err(TransportError::Gone));
    assert_eq!(began.elapsed(), Duration::from_secs(7));
}

#[tokio::test]
async fn a_stream_has_a_small_buffer_and_a_long_body_large_chunks() {
    let (mut http1, mut provider_end) = pair();
    provider_end.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
    http1.read_head().await.unwrap();
    for _ in 0..10_000 {
        provider_end.write_all(b"10\r\ndata: 0123456789\r\n").await.unwrap();
        assert_eq!(http1.read_body().await.unwrap().unwrap().len(), 16);
    }
    assert!(http1.buffer.capacity() <= EVENT_READ, "{}", http1.buffer.capacity());
    let (mut http1, mut provider_end) = pair();
    provider_end.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n").await.unwrap();
    provider_end.write_all(&[b'x'; 600_000]).await.unwrap();
    http1.read_head().await.unwrap();
    let (mut pieces, mut bytes) = (0, 0);
    while let Some(piece) = http1.read_body().await.unwrap() {
        (pieces, bytes) = (pieces + 1, bytes + piece.len());
    }
    assert_eq!(bytes, 600_000);
    assert!(pieces <= 11, "{pieces}");
}
