//! Tests of the memory that is reserved for a body without `Content-Length`.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::settings::OverloadSettings;
use crate::limits::admission_control::AdmissionControl;
use pingora_core::protocols::http::ServerSession;
use tokio::io::{AsyncWriteExt, duplex};

const FIRST_CHUNK: usize = 100;
const SECOND_CHUNK: usize = 300_000;
const IDLE: Duration = Duration::from_secs(60);

/// Reads a body of two chunks under a memory limit of `most` bytes for all requests. Returns the body and the number
/// of reserved bytes.
async fn read_chunked(most: usize) -> Result<(Bytes, usize), ApiError> {
    let settings = OverloadSettings { requests: 1, bytes: most, queue: 1, wait: IDLE, counting: 1 };
    let admission = AdmissionControl::new(&settings);
    let mut permit = admission.acquire_for_batch_line(&"a".into());
    let (server_end, mut client) = duplex(1 << 20);
    let mut request = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for size in [FIRST_CHUNK, SECOND_CHUNK] {
        request.extend_from_slice(format!("{size:x}\r\n").as_bytes());
        request.extend(std::iter::repeat_n(b'x', size));
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    client.write_all(&request).await.unwrap();
    let mut session = ServerSession::new_http1(Box::new(server_end));
    assert!(session.read_request().await.unwrap());
    let mut caller = Downstream::new(&mut session, None);
    let buffers = Arc::default();
    let body = read_to_buffer(&mut caller, &buffers, None, (1 << 20, IDLE), Some(&mut permit)).await?;
    Ok((body, permit.held_bytes()))
}

#[tokio::test]
async fn the_whole_buffer_of_a_body_without_a_length_is_reserved() {
    let (body, reserved) = read_chunked(8 << 20).await.unwrap();
    assert_eq!(body.len(), FIRST_CHUNK + SECOND_CHUNK);
    let capacity = body.try_into_mut().unwrap().capacity();
    assert!(capacity > FIRST_CHUNK + SECOND_CHUNK, "the buffer has grown by more than the body");
    assert_eq!(reserved, capacity);
    let refused = read_chunked(capacity - 1).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Overloaded);
}
