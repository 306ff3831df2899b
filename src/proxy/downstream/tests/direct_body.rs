//! Tests of bodies whose rest is read directly from the connection.

use super::*;

/// Reads a body of ten bytes directly; the first `cut` bytes of `sent` arrive with the head.
async fn read_directly(request: &mut Request, sent: &[u8], cut: usize) -> Result<Vec<u8>> {
    request.client.write_all(&sent[cut..]).await.unwrap();
    let mut caller = request.caller();
    let mut body = BytesMut::with_capacity(10);
    body.extend_from_slice(&caller.begin_direct_body_read().await?.unwrap());
    while body.len() < 10 {
        assert!(caller.read_body_into(&mut body).await? > 0);
    }
    assert!(caller.is_body_done());
    Ok(body.to_vec())
}

const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n";

#[tokio::test]
async fn a_direct_body_is_the_same_at_every_split_and_ends_before_the_next_request() {
    let next = b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    let all = [&b"0123456789"[..], next].concat();
    for cut in 0..=all.len() {
        let mut request = Request::begin(HEAD, &all[..cut], 1 << 20).await;
        assert_eq!(read_directly(&mut request, &all, cut).await.unwrap(), b"0123456789", "{cut}");
        assert!(!over(request.caller().wait_for_disconnect()).await);
        let answered = request.answer(head(200).with_body_headers("text/plain", 1), &[b"x"]).await;
        assert!(answered.sound && answered.reused, "{cut}");
        assert_eq!(&answered.prefetched[..], next, "{cut}");
    }
}

#[tokio::test]
async fn a_direct_body_that_is_truncated_is_an_error_and_ends_the_connection() {
    for cut in 0..9 {
        let mut request = Request::begin(HEAD, &b"01234567"[..cut.min(8)], 1 << 20).await;
        request.client.write_all(&b"01234567"[cut.min(8)..]).await.unwrap();
        request.client.shutdown().await.unwrap();
        let mut caller = request.caller();
        let mut body = BytesMut::from(&caller.begin_direct_body_read().await.unwrap().unwrap()[..]);
        let kind = loop {
            match caller.read_body_into(&mut body).await {
                Ok(read) => assert!(read > 0),
                Err(error) => break error.kind(),
            }
        };
        assert_eq!((kind, &body[..]), (ErrorKind::BrokenPipe, &b"01234567"[..]), "{cut}");
        drop(request.session);
        assert!(!request.connection.take_returned_stream().unwrap().reusable);
    }
}

#[tokio::test]
async fn a_body_that_is_announced_by_an_interim_response_is_not_direct() {
    let mut request = Request::of("POST / HTTP/1.1", "Content-Length: 3\r\nExpect: 100-continue\r\n").await;
    let mut caller = request.caller();
    caller.write_continue_response().await;
    assert!(caller.begin_direct_body_read().await.unwrap().is_none());
}
