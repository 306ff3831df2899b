//! Tests only: requests and answers of HTTP/1.1 over a pipe, cut at each byte, cut short, framed in every way.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::http1::{Http1, Rest};
use super::*;
use crate::request_id::RequestId;
use penstock_wire::head::{Caps, Scan};
use std::future::Future;
use std::task::Poll;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

const CAPS: Caps = Caps { bytes: 8192, target: 200, fields: 50 };

/// A request whose head, and what follows it at once, has come; the client's end of its connection.
fn begun(head: &str, behind: &[u8], width: usize) -> (Http1, DuplexStream) {
    let (near, far) = duplex(width);
    let (mut scan, bytes) = (Scan::default(), Bytes::copy_from_slice(head.as_bytes()));
    assert_eq!(scan.push(&bytes, CAPS), Ok(Some(head.len())));
    let stop = tokio::sync::watch::channel(false).1;
    (Http1::new(Box::new(near), scan.request(bytes), BytesMut::from(behind), stop), far)
}

fn asked(line: &str, fields: &str) -> (Http1, DuplexStream) {
    begun(&format!("{line}\r\nHost: a\r\n{fields}\r\n"), b"", 1 << 20)
}

/// The body that a request has, in pieces and where it is wanted.
async fn bodies(fields: &str, sent: &[u8], ahead: usize) -> [Result<Vec<u8>>; 2] {
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let mut found = Vec::new();
    for into in [false, true] {
        let (behind, later) = sent.split_at(ahead);
        let (mut http1, mut far) = begun(&head, behind, 1);
        let send = async {
            far.write_all(later).await.ok();
            drop(far);
        };
        let read = async move {
            let mut body = BytesMut::with_capacity(if into { sent.len() } else { 0 });
            while http1.read_into(&mut body).await? > 0 {}
            Ok(body.to_vec())
        };
        found.push(tokio::join!(send, read).1);
    }
    found.try_into().unwrap()
}

#[tokio::test]
async fn a_body_is_the_same_however_it_is_cut() {
    let body = b"{\"model\":\"m\",\"messages\":[]}";
    let plain = format!("Content-Length: {}\r\n", body.len());
    let chunked = b"a\r\n{\"model\":\"\r\n11\r\nm\",\"messages\":[]}\r\n0\r\n\r\n";
    for ahead in 0..=body.len() {
        for read in bodies(&plain, body, ahead).await {
            assert_eq!(read.unwrap(), body, "{ahead}");
        }
    }
    for ahead in 0..=chunked.len() {
        for read in bodies("Transfer-Encoding: chunked\r\n", chunked, ahead).await {
            assert_eq!(read.unwrap(), body, "{ahead}");
        }
    }
}

#[tokio::test]
async fn a_body_that_is_cut_short_is_none() {
    for ahead in 0..5 {
        for read in bodies("Content-Length: 6\r\n", b"hello", ahead).await {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }
    for (sent, kind) in [
        (&b"5\r\nhello\r\n"[..], ErrorKind::UnexpectedEof),
        (b"5\r\nhello\r\n0\r\n", ErrorKind::UnexpectedEof),
        (b"5\r\nhello!\r\n0\r\n\r\n", ErrorKind::InvalidData),
        (b"x\r\n", ErrorKind::InvalidData),
    ] {
        for read in bodies("Transfer-Encoding: chunked\r\n", sent, 0).await {
            assert_eq!(read.unwrap_err().kind(), kind);
        }
    }
}

fn head(status: u16) -> Head {
    Head::new(status, &RequestId::random())
}

/// What a client hears of an answer, and what is left of the connection.
async fn heard(
    (mut http1, mut far): (Http1, DuplexStream),
    head: Head,
    pieces: &[&[u8]],
) -> (String, Vec<u8>, bool, Rest) {
    http1.keep(true);
    http1.write_head(head);
    let mut sound = true;
    for (at, piece) in pieces.iter().enumerate() {
        sound &= http1.write_body(piece, at + 1 == pieces.len()).await.is_ok();
    }
    let rest = http1.rest();
    let mut all = Vec::new();
    let kept = match rest {
        Rest::Idle(stream, buffer) => {
            drop(stream);
            Rest::Idle(Box::new(duplex(1).0), buffer)
        }
        Rest::Ended(stream) => {
            drop(stream);
            Rest::Ended(Box::new(duplex(1).0))
        }
        Rest::Unread(stream) => {
            drop(stream);
            Rest::Unread(Box::new(duplex(1).0))
        }
        Rest::Cut => Rest::Cut,
    };
    far.read_to_end(&mut all).await.unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
    let body = all.split_off(end);
    (String::from_utf8(all).unwrap(), body, sound, kept)
}

#[tokio::test]
async fn an_answer_of_a_length_is_its_head_and_its_bytes() {
    let long = vec![b'x'; 100_000];
    for pieces in [&[&b"{}"[..]][..], &[b"{", b"", b"}"], &[&long[..]], &[b"1", &long, b"2"]] {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let of = head(200).of_length("application/json", length as u64);
        let (text, body, sound, rest) = heard(asked("POST / HTTP/1.1", ""), of, pieces).await;
        assert!(sound && matches!(rest, Rest::Idle(..)));
        assert_eq!(body, pieces.concat());
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nx-request-id: req_"), "{text}");
        assert!(
            text.contains(&format!("\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"))
        );
        assert!(
            text.contains("\r\ndate: ") && text.ends_with(" GMT\r\nconnection: keep-alive\r\n\r\n"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_is_not_as_long_as_it_says_ends_the_connection() {
    for pieces in [&[&b"abc"[..]][..], &[b"a"], &[b"a", b""], &[b"a", b"b", b"c"]] {
        let of = head(200).of_length("text/plain", 2);
        let (_, body, sound, rest) = heard(asked("GET / HTTP/1.1", ""), of, pieces).await;
        assert!(!sound && matches!(rest, Rest::Cut), "{pieces:?}");
        assert!(body.len() <= 2);
    }
}

#[tokio::test]
async fn a_stream_is_in_chunks_or_ends_with_its_connection() {
    let long = vec![b'y'; 40_000];
    let pieces: [&[u8]; 4] = [b"data: 1\n\n", &long, b"", b"data: [DONE]\n\n"];
    let (text, body, sound, rest) =
        heard(asked("POST / HTTP/1.1", ""), head(200).of_events(true), &pieces).await;
    assert!(sound && matches!(rest, Rest::Idle(..)));
    assert!(
        text.contains("\r\ntransfer-encoding: chunked\r\n") && !text.contains("content-length"),
        "{text}"
    );
    let (mut chunks, mut buffer, mut plain) =
        (penstock_wire::answer::Chunks::default(), BytesMut::from(&body[..]), Vec::new());
    loop {
        match chunks.take(&mut buffer).unwrap() {
            penstock_wire::answer::Step::Data(data) => plain.extend_from_slice(&data),
            penstock_wire::answer::Step::End => break,
            penstock_wire::answer::Step::More => panic!("it has no end"),
        }
    }
    assert!(buffer.is_empty());
    assert_eq!(plain, pieces.concat());

    let old = asked("POST / HTTP/1.0", "Connection: keep-alive\r\n");
    let (text, body, sound, rest) = heard(old, head(200).of_events(false), &pieces).await;
    assert!(sound && matches!(rest, Rest::Ended(_)));
    assert!(!text.contains("chunked") && text.ends_with("connection: close\r\n\r\n"), "{text}");
    assert_eq!(body, pieces.concat());
}

#[tokio::test]
async fn a_head_without_a_body_has_none() {
    let of = head(200).of_length("text/plain", 5);
    let (text, body, sound, rest) = heard(asked("HEAD / HTTP/1.1", ""), of, &[b""]).await;
    assert!(sound && matches!(rest, Rest::Idle(..)) && body.is_empty());
    assert!(text.contains("content-length: 5\r\n"));
    let (text, body, _, _) =
        heard(asked("OPTIONS / HTTP/1.1", ""), head(204).of_length("x/y", 0), &[b""]).await;
    assert!(body.is_empty() && !text.contains("content-length"), "{text}");
}

#[tokio::test]
async fn nothing_is_read_behind_a_request() {
    let whole = || head(200).of_length("text/plain", 1);
    // What is said is what is done.
    let rest_of = |begun: (Http1, DuplexStream)| async move {
        let (text, _, sound, rest) = heard(begun, whole(), &[b"x"]).await;
        assert!(sound);
        assert_eq!(text.contains("connection: keep-alive"), matches!(rest, Rest::Idle(..)), "{text}");
        rest
    };
    let rest = |head: &'static str, behind: &'static [u8]| rest_of(begun(head, behind, 1 << 20));
    let plain = "POST / HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(matches!(rest(plain, b"").await, Rest::Idle(..)));
    assert!(matches!(rest(plain, b"GET / HTTP/1.1\r\n").await, Rest::Unread(_)));
    let long = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n";
    assert!(
        matches!(rest(long, b"ab").await, Rest::Idle(..)),
        "a body that is there and unwanted is passed over"
    );
    assert!(matches!(rest(long, b"a").await, Rest::Unread(_)), "it was not read");
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (mut http1, far) = begun(chunked, b"0\r\n\r\n", 1 << 20);
    assert_eq!(http1.read_body().await.unwrap(), None);
    assert!(matches!(rest_of((http1, far)).await, Rest::Ended(_)));
    let (mut http1, far) = begun(long, b"abc", 1 << 20);
    assert_eq!(http1.read_body().await.unwrap().unwrap(), &b"ab"[..]);
    assert!(matches!(rest_of((http1, far)).await, Rest::Unread(_)));
}

#[tokio::test]
async fn a_house_that_stops_says_so_with_each_answer() {
    let (near, far) = duplex(1 << 20);
    let (mut scan, bytes) = (Scan::default(), Bytes::from_static(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    scan.push(&bytes, CAPS).unwrap();
    let (tell, stop) = tokio::sync::watch::channel(false);
    let http1 = Http1::new(Box::new(near), scan.request(bytes), BytesMut::new(), stop);
    tell.send(true).unwrap();
    let (text, _, _, rest) = heard((http1, far), head(200).of_length("text/plain", 1), &[b"x"]).await;
    assert!(text.contains("connection: close") && matches!(rest, Rest::Ended(_)), "{text}");
}

#[tokio::test]
async fn the_old_version_hears_of_nothing_before_its_answer() {
    for (version, heard) in [("1.1", "HTTP/1.1 100 Continue\r\n\r\n"), ("1.0", "")] {
        let (mut http1, mut far) = asked(&format!("POST / HTTP/{version}"), "Expect: 100-continue\r\n");
        http1.write_continue().await.unwrap();
        drop(http1);
        let mut all = String::new();
        far.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, heard);
    }
}

/// Whether it ends without any more from outside.
async fn over(work: impl Future<Output = ()>) -> bool {
    let mut work = std::pin::pin!(work);
    // What a pipe has is there at once, but a task may read it in several steps.
    for _ in 0..100 {
        if std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

#[tokio::test]
async fn who_sends_ahead_is_not_gone_and_who_closes_is() {
    let (mut http1, mut far) = asked("POST / HTTP/1.1", "");
    assert!(!over(http1.gone()).await);
    far.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    assert!(!over(http1.gone()).await);
    drop(far);
    assert!(over(http1.gone()).await);

    let (mut http1, mut far) = asked("POST / HTTP/1.1", "");
    far.write_all(&[b'x'; 600_000]).await.unwrap();
    assert!(!over(http1.gone()).await);
    assert!(http1.buffered() <= 33 << 10, "the beginning alone is kept: {}", http1.buffered());
    let more = async { far.write_all(&[b'y'; 500_000]).await.unwrap() };
    assert!(over(more).await, "the pipe of 1 MiB has room again");
    assert!(!over(http1.gone()).await);
    drop(far);
    assert!(over(http1.gone()).await, "its end is noticed behind all of it");
}

#[tokio::test]
async fn a_body_that_is_still_to_be_read_is_not_thrown_away() {
    let (mut http1, mut far) = asked("POST / HTTP/1.1", "Content-Length: 600000\r\n");
    far.write_all(&[b'x'; 600_000]).await.unwrap();
    assert!(!over(http1.gone()).await);
    let mut read = 0;
    while let Some(piece) = http1.read_body().await.unwrap() {
        read += piece.len();
    }
    assert_eq!(read, 600_000);
}

#[tokio::test]
async fn a_stream_holds_room_for_its_events_not_for_its_head() {
    let (mut http1, mut far) = asked("POST / HTTP/1.1", "");
    http1.write_head(head(200).with("x-long", "y".repeat(1500)).of_events(true));
    let (event, mut read) = ([b'z'; 200], vec![0; 4096]);
    for number in 0..100 {
        http1.write_body(&event, false).await.unwrap();
        assert!(far.read(&mut read).await.unwrap() > event.len());
        assert!(number == 0 || http1.held() < 4 * event.len() + 100, "{}", http1.held());
    }
}

#[tokio::test]
async fn the_library_is_given_the_same_head() {
    let head = head(429).with("retry-after", "7").with("x-bad", "a\r\nx-evil: b").number("x-n", 12);
    let parsed = head.parsed().unwrap();
    assert_eq!(parsed.status.as_u16(), 429);
    assert_eq!(parsed.headers.get("retry-after").unwrap(), "7");
    assert_eq!(parsed.headers.get("x-n").unwrap(), "12");
    assert!(parsed.headers.get("x-bad").is_none() && parsed.headers.get("x-evil").is_none());
    let wire = String::from_utf8(head.into_wire().to_vec()).unwrap();
    assert!(wire.starts_with("HTTP/1.1 429 Too Many Requests\r\n") && !wire.contains("evil"), "{wire}");
}
