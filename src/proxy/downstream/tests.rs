//! Tests of HTTP/1.1 requests and responses over a pipe, through the guard's stream and Pingora's session: split at
//! each byte, truncated, and with every kind of framing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod direct_body;
mod first_write;

use super::*;
use crate::http::request_stream::{Http1ConnectionState, Http1RequestStream, RequestFraming, ReturnedStream};
use crate::telemetry::request_id::RequestId;
use penstock_http_wire::answer::{ChunkDecoder, ChunkStep};
use penstock_http_wire::http1_request::{HeadLimits, HeadParser};
use std::future::Future;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;

const CAPS: HeadLimits = HeadLimits { bytes: 8192, target: 200, fields: 50 };

/// Request whose head has been read, and the client's end of its connection.
struct Request {
    session: ServerSession,
    connection: Arc<Http1ConnectionState>,
    client: DuplexStream,
    stop: watch::Sender<bool>,
}

impl Request {
    /// Creates a request with this head; the bytes `behind` arrive together with it.
    async fn begin(head: &str, behind: &[u8], width: usize) -> Self {
        let (server_end, client) = duplex(width);
        let (mut scan, bytes) =
            (HeadParser::default(), BytesMut::from(&[head.as_bytes(), behind].concat()[..]));
        let size = scan.push(&bytes, CAPS).unwrap().unwrap();
        let (stop, stopping) = watch::channel(false);
        let connection = Http1ConnectionState::new(stopping);
        let framing = RequestFraming { head: size, body: scan.body_length(), allows_interim: true };
        let (stream, prefix) =
            Http1RequestStream::new(Box::new(server_end), framing, bytes, connection.clone());
        connection.set_request_received();
        let mut session = ServerSession::new_http1(Box::new(stream));
        session.set_pipelined_prefix(prefix);
        assert!(session.read_request().await.unwrap());
        Self { session, connection, client, stop }
    }

    async fn of(line: &str, fields: &str) -> Self {
        Self::begin(&format!("{line}\r\nHost: a\r\n{fields}\r\n"), b"", 1 << 20).await
    }

    fn caller(&mut self) -> Downstream<'_> {
        Downstream::new(&mut self.session, Some(RequestSource::Http1(self.connection.clone())))
    }

    /// Sends the response, and ends the session as the proxy does.
    async fn answer(mut self, head: ResponseHead, pieces: &[&[u8]]) -> TestResponse {
        let mut caller = self.caller();
        let keep = caller.may_keep_alive();
        caller.set_keep_alive(keep);
        let mut sound = caller.write_response_header(head).await.is_ok();
        for (at, piece) in pieces.iter().enumerate() {
            let piece = Bytes::copy_from_slice(piece);
            sound &= caller.write_response_body(piece, at + 1 == pieces.len()).await.is_ok();
        }
        let reused = match sound {
            true => self.session.finish().await.ok().flatten().is_some(),
            false => {
                drop(self.session);
                false
            }
        };
        let returned = self.connection.take_returned_stream().unwrap();
        let (reused, prefetched) = (reused && returned.reusable, returned.prefetched.to_vec());
        drop(returned);
        let mut text = Vec::new();
        self.client.read_to_end(&mut text).await.unwrap();
        let end = text.windows(4).position(|four| four == b"\r\n\r\n").map_or(text.len(), |at| at + 4);
        let body = text.split_off(end);
        // Field names are case-insensitive.
        let head = String::from_utf8(text).unwrap().to_ascii_lowercase();
        TestResponse { head, body, sound, reused, prefetched }
    }
}

/// Response as the client received it, and the state of its connection.
struct TestResponse {
    head: String,
    body: Vec<u8>,
    sound: bool,
    reused: bool,
    prefetched: Vec<u8>,
}

fn head(status: u16) -> ResponseHead {
    ResponseHead::new(status, &RequestId::random())
}

/// Reads a request body of which the first `prefetched` bytes arrive with the head, and the rest byte by byte.
async fn body(fields: &str, sent: &[u8], prefetched: usize) -> Result<Vec<u8>> {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let (behind, later) = sent.split_at(prefetched);
    let Request { mut session, connection: _connection, mut client, stop: _stop } =
        Request::begin(&head, behind, 1).await;
    let send = async {
        client.write_all(later).await.ok();
        client.shutdown().await.ok();
    };
    let read = async {
        let mut caller = Downstream::new(&mut session, None);
        let mut body = BytesMut::new();
        while caller.read_body_into(&mut body).await? > 0 {}
        Ok(body.to_vec())
    };
    tokio::select! {
        biased;
        read = read => read,
        () = async { send.await; std::future::pending::<()>().await } => unreachable!(),
    }
}

#[tokio::test]
async fn a_body_is_the_same_at_every_split() {
    let plain = b"{\"model\":\"m\",\"messages\":[]}";
    let length = format!("Content-Length: {}\r\n", plain.len());
    let chunked = b"a\r\n{\"model\":\"\r\n11\r\nm\",\"messages\":[]}\r\n0\r\n\r\n";
    for prefetched in 0..=plain.len() {
        assert_eq!(body(&length, plain, prefetched).await.unwrap(), plain, "{prefetched}");
    }
    for prefetched in 0..=chunked.len() {
        assert_eq!(
            body("Transfer-Encoding: chunked\r\n", chunked, prefetched).await.unwrap(),
            plain,
            "{prefetched}"
        );
    }
}

#[tokio::test]
async fn a_body_in_chunks_of_a_byte_is_read() {
    let sent = [&b"1\r\nx\r\n".repeat(20_000)[..], b"0\r\n\r\n"].concat();
    for prefetched in [0, 1, 100_000] {
        let read = body("Transfer-Encoding: chunked\r\n", &sent, prefetched).await.unwrap();
        assert_eq!(read, b"x".repeat(20_000));
    }
}

#[tokio::test]
async fn long_trailers_are_refused() {
    let sent = [&b"1\r\nx\r\n0\r\n"[..], &b"X: y\r\n".repeat(20_000), b"\r\n"].concat();
    for prefetched in [0, 9, sent.len()] {
        let kind = body("Transfer-Encoding: chunked\r\n", &sent, prefetched).await.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::InvalidData);
    }
}

#[tokio::test]
async fn a_truncated_body_is_not_forwarded() {
    for prefetched in 0..5 {
        assert!(body("Content-Length: 6\r\n", b"hello", prefetched).await.is_err());
    }
    for (sent, sound) in [
        (&b"5\r\nhello\r\n"[..], true),
        (b"5\r\nhello\r\n0\r\n", true),
        (b"5\r\nhello!\r\n0\r\n\r\n", false),
        (b"x\r\n", false),
    ] {
        for prefetched in 0..=sent.len() {
            let kind = body("Transfer-Encoding: chunked\r\n", sent, prefetched).await.unwrap_err().kind();
            assert_eq!(kind != ErrorKind::InvalidData, sound, "{} {prefetched}", sent.escape_ascii());
        }
    }
}

#[tokio::test]
async fn a_response_with_a_length_is_its_head_and_its_bytes() {
    let long = vec![b'x'; 100_000];
    for pieces in [&[&b"{}"[..]][..], &[b"{", b"", b"}"], &[&long[..]], &[b"1", &long, b"2"]] {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let of = head(200).with_body_headers("application/json", length as u64);
        let answered = Request::of("POST / HTTP/1.1", "").await.answer(of, pieces).await;
        let text = answered.head;
        assert!(answered.sound && answered.reused);
        assert_eq!(answered.body, pieces.concat());
        assert!(text.starts_with("http/1.1 200 ok\r\n") && text.contains("x-request-id: req_"), "{text}");
        assert!(text.contains("content-type: application/json\r\n"), "{text}");
        assert!(text.contains(&format!("content-length: {length}\r\n")), "{text}");
        assert!(text.contains("date: ") && text.contains("connection: keep-alive\r\n"), "{text}");
    }
}

#[tokio::test]
async fn a_response_of_another_length_than_announced_ends_the_connection() {
    for pieces in [&[&b"a"[..]][..], &[b"a", b""]] {
        let of = head(200).with_body_headers("text/plain", 2);
        let answered = Request::of("GET / HTTP/1.1", "").await.answer(of, pieces).await;
        assert!(!answered.reused, "{pieces:?}");
        assert!(answered.body.len() <= 2);
    }
}

#[tokio::test]
async fn a_stream_is_in_chunks_or_ends_with_its_connection() {
    let long = vec![b'y'; 40_000];
    let pieces: [&[u8]; 4] = [b"data: 1\n\n", &long, b"", b"data: [DONE]\n\n"];
    let answered = Request::of("POST / HTTP/1.1", "")
        .await
        .answer(head(200).with_event_stream_headers(true), &pieces)
        .await;
    let text = answered.head;
    assert!(answered.sound && answered.reused);
    assert!(text.contains("transfer-encoding: chunked\r\n") && !text.contains("content-length"), "{text}");
    let (mut chunks, mut buffer, mut plain) =
        (ChunkDecoder::default(), BytesMut::from(&answered.body[..]), Vec::new());
    loop {
        match chunks.decode_next(&mut buffer).unwrap() {
            ChunkStep::Data(data) => plain.extend_from_slice(&data),
            ChunkStep::End => break,
            ChunkStep::Incomplete => panic!("it has no end"),
        }
    }
    assert!(buffer.is_empty());
    assert_eq!(plain, pieces.concat());

    let old = Request::of("POST / HTTP/1.0", "Connection: keep-alive\r\n").await;
    let answered = old.answer(head(200).with_event_stream_headers(false), &pieces).await;
    assert!(answered.sound && !answered.reused);
    let text = answered.head;
    assert!(!text.contains("chunked") && text.contains("connection: close\r\n"), "{text}");
    assert_eq!(answered.body, pieces.concat());
}

#[tokio::test]
async fn a_head_without_a_body_has_none() {
    let of = head(200).with_body_headers("text/plain", 5);
    let answered = Request::of("HEAD / HTTP/1.1", "").await.answer(of, &[b""]).await;
    assert!(answered.sound && answered.reused && answered.body.is_empty());
    assert!(answered.head.contains("content-length: 5\r\n"));
    let none = head(204).with_body_headers("x/y", 0);
    let answered = Request::of("OPTIONS / HTTP/1.1", "").await.answer(none, &[b""]).await;
    assert!(answered.reused && answered.body.is_empty() && !answered.head.contains("content-length"));
}

#[tokio::test]
async fn bytes_after_a_request_are_not_read_as_its_body() {
    let whole = || head(200).with_body_headers("text/plain", 1);
    let next = b"GET / HTTP/1.1\r\n";
    let plain = "POST / HTTP/1.1\r\nHost: a\r\n\r\n";
    let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (head, behind, reused, prefetched) in [
        (plain, &b""[..], true, &b""[..]),
        (plain, next, true, next),
        // An unread body that has arrived is discarded.
        (long, b"ab", true, b""),
        (long, b"abGET / HTTP/1.1\r\n", true, next),
        (long, b"a", false, b""),
        (chunked, b"0\r\n\r\nGET / HTTP/1.1\r\n", false, next),
    ] {
        let answered = Request::begin(head, behind, 1 << 20).await.answer(whole(), &[b"x"]).await;
        assert!(answered.sound);
        assert_eq!(answered.reused, reused, "{head}{}", behind.escape_ascii());
        assert_eq!(answered.prefetched, prefetched, "{head}{}", behind.escape_ascii());
        let connection = if reused { "connection: keep-alive" } else { "connection: close" };
        assert!(answered.head.contains(connection), "{}", answered.head);
    }
}

#[tokio::test]
async fn bytes_of_the_next_request_are_retained_at_every_split() {
    let (body, next) = (b"0123456789", b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n");
    let all = [&body[..], next].concat();
    for cut in 0..=all.len() {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";
        let mut request = Request::begin(head, &all[..cut], 1 << 20).await;
        request.client.write_all(&all[cut..]).await.unwrap();
        let mut read = BytesMut::new();
        let mut caller = request.caller();
        while caller.read_body_into(&mut read).await.unwrap() > 0 {}
        assert!(!over(caller.wait_for_disconnect()).await);
        assert_eq!(&read[..], body, "{cut}");
        drop(request.session);
        let returned = request.connection.take_returned_stream().unwrap();
        assert!(returned.reusable);
        assert_eq!(&returned.prefetched[..], next, "{cut}");
    }
}

#[tokio::test]
async fn bytes_after_a_chunked_body_are_retained_at_every_split() {
    let next = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    let body = b"5;a=b\r\n01234\r\n05 \r\n56789\r\n0\r\nX-Sum: 1\r\nY: 2\r\n\r\n";
    let all = [&body[..], next].concat();
    for first in 0..=all.len() {
        for second in [first, first.midpoint(all.len()), all.len()] {
            let text = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            let mut request = Request::begin(text, &all[..first], 1 << 20).await;
            let mut read = BytesMut::new();
            request.client.write_all(&all[first..second]).await.unwrap();
            let source = Some(RequestSource::Http1(request.connection.clone()));
            let mut caller = Downstream::new(&mut request.session, source);
            {
                let mut reading =
                    pin!(async { while caller.read_body_into(&mut read).await.unwrap() > 0 {} });
                // All bytes that have arrived are read before the rest is sent.
                if over(reading.as_mut()).await {
                    request.client.write_all(&all[second..]).await.unwrap();
                } else {
                    request.client.write_all(&all[second..]).await.unwrap();
                    reading.await;
                }
            }
            assert!(caller.is_body_done() && !over(caller.wait_for_disconnect()).await);
            assert_eq!(&read[..], b"0123456789", "{first} {second}");
            let answered = request.answer(head(200).with_body_headers("text/plain", 1), &[b"x"]).await;
            assert!(answered.head.contains("connection: keep-alive"), "{}", answered.head);
            assert!(answered.reused, "{first} {second}");
            assert_eq!(&answered.prefetched[..], next, "{first} {second}");
        }
    }
}

#[tokio::test]
async fn a_connection_whose_pipelined_bytes_were_discarded_announces_its_close() {
    let mut request = Request::of("POST / HTTP/1.1", "").await;
    request.client.write_all(&[b'a'; 64 << 10]).await.unwrap();
    assert!(!over(request.caller().wait_for_disconnect()).await);
    let answered = request.answer(head(200).with_body_headers("text/plain", 1), &[b"x"]).await;
    assert!(answered.head.contains("connection: close") && !answered.reused, "{}", answered.head);
}

#[tokio::test]
async fn a_stopping_process_announces_the_close_in_each_response() {
    let request = Request::of("GET / HTTP/1.1", "").await;
    request.stop.send(true).unwrap();
    let answered = request.answer(head(200).with_body_headers("text/plain", 1), &[b"x"]).await;
    assert!(answered.head.contains("connection: close") && !answered.reused, "{}", answered.head);
}

#[tokio::test]
async fn http_1_0_has_no_interim_response() {
    for (version, expected) in [("1.1", "HTTP/1.1 100 Continue\r\n\r\n"), ("1.0", "")] {
        let mut request = Request::of(&format!("POST / HTTP/{version}"), "Expect: 100-continue\r\n").await;
        request.caller().write_continue_response().await;
        drop(request.session);
        drop(request.connection.take_returned_stream());
        let mut all = String::new();
        request.client.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, expected);
    }
}

/// Returns true if the future completes without further input.
async fn over(work: impl Future<Output = ()>) -> bool {
    let mut work = std::pin::pin!(work);
    // The bytes of a pipe are available at once, but a task may need several polls to read them.
    for _ in 0..200 {
        if std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn pipelined_bytes_are_no_disconnect_and_a_close_is_one() {
    let mut request = Request::of("POST / HTTP/1.1", "").await;
    assert!(!over(request.caller().wait_for_disconnect()).await);
    request.client.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert!(!over(request.caller().wait_for_disconnect()).await);
    request.client.shutdown().await.unwrap();
    assert!(over(request.caller().wait_for_disconnect()).await);

    let mut request = Request::of("POST / HTTP/1.1", "").await;
    request.client.write_all(&[b'x'; 600_000]).await.unwrap();
    assert!(!over(request.caller().wait_for_disconnect()).await);
    let more = async { request.client.write_all(&[b'y'; 500_000]).await.unwrap() };
    assert!(over(more).await, "the pipe of 1 MiB has room again");
    let mut caller = Downstream::new(&mut request.session, None);
    assert!(!over(caller.wait_for_disconnect()).await);
    request.client.shutdown().await.unwrap();
    assert!(over(caller.wait_for_disconnect()).await, "its end is noticed behind all of it");
    drop(request.session);
    let ReturnedStream { prefetched, reusable, .. } = request.connection.take_returned_stream().unwrap();
    assert!(!reusable && prefetched.len() <= 33 << 10, "the beginning alone is kept: {}", prefetched.len());
}

#[tokio::test]
async fn an_unread_body_is_not_discarded() {
    let mut request = Request::of("POST / HTTP/1.1", "Content-Length: 600000\r\n").await;
    request.client.write_all(&[b'x'; 600_000]).await.unwrap();
    let mut caller = request.caller();
    assert!(!over(caller.wait_for_disconnect()).await);
    let mut read = 0;
    while let Some(piece) = caller.read_request_body().await.unwrap() {
        read += piece.len();
    }
    assert_eq!(read, 600_000);
}

#[tokio::test]
async fn a_stored_head_is_sent_with_the_body_or_when_flushed() {
    let mut request = Request::of("POST / HTTP/1.1", "").await;
    let mut caller = request.caller();
    caller.write_response_header(head(200).with_event_stream_headers(true)).await.unwrap();
    assert!(caller.has_response_head());
    caller.flush().await.unwrap();
    let mut bytes = [0; 4096];
    let read = request.client.read(&mut bytes).await.unwrap();
    assert!(bytes[..read].ends_with(b"\r\n\r\n"));

    let mut request = Request::of("POST / HTTP/1.1", "").await;
    let mut caller = request.caller();
    caller.write_response_header(head(200).with_event_stream_headers(true)).await.unwrap();
    caller.write_response_body(Bytes::from_static(b"data: 1\n\n"), false).await.unwrap();
    let read = request.client.read(&mut bytes).await.unwrap();
    assert!(bytes[..read].ends_with(b"data: 1\n\n\r\n"), "one write has both");
}

#[tokio::test]
async fn a_header_value_that_would_end_the_head_is_left_out() {
    let head = head(429)
        .with_field("retry-after", "7")
        .with_field("x-bad", "a\r\nx-evil: b")
        .with_numeric_field("x-n", 12);
    let head = head.into_response();
    assert_eq!(head.status.as_u16(), 429);
    assert_eq!(head.headers.get("retry-after").unwrap(), "7");
    assert_eq!(head.headers.get("x-n").unwrap(), "12");
    assert!(head.headers.get("x-bad").is_none() && head.headers.get("x-evil").is_none());
}
