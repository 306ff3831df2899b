//! Tests of the delivery of the first content of a stream to a client that stops reading.

use super::*;

/// Sends the head and the first content of a stream to a client that reads nothing and leaves, over a connection that
/// holds `width` bytes. Returns the bytes that the client received, and if any content counts as delivered.
async fn send_to_leaving_client(width: usize) -> (Vec<u8>, FirstWriteOutcome) {
    let mut request = Request::begin("GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"", width).await;
    let (_, other_end) = duplex(1);
    let mut client = std::mem::replace(&mut request.client, other_end);
    let mut caller = request.caller();
    caller.write_response_header(head(200).with_event_stream_headers(true)).await.unwrap();
    let mut write = pin!(caller.write_first_content(Bytes::from_static(b"content")));
    let early = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await;
    let mut received = [0; 4096];
    let count = client.read(&mut received).await.unwrap();
    drop(client);
    let outcome = match early {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => write.await,
    };
    (received[..count].to_vec(), outcome)
}

#[tokio::test]
async fn bytes_of_the_head_are_no_delivered_content() {
    let (all, outcome) = send_to_leaving_client(1 << 20).await;
    assert_eq!(outcome, FirstWriteOutcome::Complete);
    let head = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    for width in 1..all.len() {
        // A task that never waits uses up its budget of cooperative scheduling, and its writes would then wait.
        tokio::task::yield_now().await;
        let (received, outcome) = send_to_leaving_client(width).await;
        assert_eq!(received.len(), width);
        let expected =
            if width > head { FirstWriteOutcome::Interrupted } else { FirstWriteOutcome::Undelivered };
        assert_eq!(outcome, expected, "{width} of {head} bytes of the head");
    }
}
