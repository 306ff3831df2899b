//! Writing of a call to a provider over HTTP/1.1 or HTTP/2: head, body and uploaded file.

use crate::storage::spool::SpooledData;
use crate::telemetry::TraceContext;
use bytes::{Buf, Bytes};
use http::header;
use penstock_core::UpstreamRequest;
use pingora_core::protocols::Stream;
use pingora_core::protocols::http::client::HttpSession;
use pingora_http::RequestHeader;
use tokio::io::AsyncWriteExt;

/// Maximum bytes of a body that are copied into the buffer of the head. For so few bytes, a copy costs less than a
/// vectored write.
const INLINE_BODY: usize = 16 * 1024;
/// Slice size in which a long body is written, so that the write timeout applies to few bytes at a time.
pub(super) const BODY_SLICE_BYTES: usize = 64 * 1024;

/// Error of a request that was not sent completely.
pub enum SendError {
    /// The head was not sent, so there will be no answer.
    NotSent,
    /// Write that failed after the head, or on an HTTP/1.1 connection; the provider may have answered.
    Stopped,
    /// The spooled upload could not be read, which the provider did not cause.
    UploadUnreadable(std::io::Error),
}

impl From<std::io::Error> for SendError {
    fn from(_: std::io::Error) -> Self {
        Self::Stopped
    }
}

impl From<Box<pingora_error::Error>> for SendError {
    fn from(_: Box<pingora_error::Error>) -> Self {
        Self::Stopped
    }
}

/// Returns a complete head in HTTP/1.1 format.
pub(super) fn encode_head(head: &RequestHeader) -> Vec<u8> {
    let mut wire = encode_unterminated_head(head);
    wire.extend_from_slice(b"\r\n");
    wire
}

/// Returns a head in HTTP/1.1 format, from the request line to the last header, without the final blank line.
pub(super) fn encode_unterminated_head(head: &RequestHeader) -> Vec<u8> {
    let mut wire = Vec::with_capacity(512);
    for part in [head.method.as_str().as_bytes(), b" ", head.raw_path(), b" HTTP/1.1\r\n"] {
        wire.extend_from_slice(part);
    }
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            wire.extend_from_slice(part);
        }
    }
    wire
}

/// Body of a call, divided at the uploaded file.
struct CallBody<'c> {
    before: &'c [Bytes],
    upload: Option<&'c SpooledData>,
    after: &'c [Bytes],
}

impl<'c> CallBody<'c> {
    fn new(call: &'c UpstreamRequest, upload: Option<&'c SpooledData>) -> Self {
        let upload = upload.zip(call.upload_index);
        // The file may follow the last chunk.
        let index = upload.map_or(call.body.len(), |(_, index)| index.min(call.body.len()));
        let (before, after) = call.body.split_at(index);
        Self { before, upload: upload.map(|(upload, _)| upload), after }
    }

    /// Returns the length in bytes.
    fn len(&self) -> u64 {
        let pieces: usize = self.before.iter().chain(self.after).map(Bytes::len).sum();
        pieces as u64 + self.upload.map_or(0, SpooledData::len)
    }
}

/// Writes the bytes `joined` and the chunks of a body. Small chunks are copied into the buffer of the bytes before
/// them; a long chunk is sent in one vectored write, together with the small chunks before and after it.
async fn write_pieces<'c>(
    stream: &mut Stream,
    mut joined: Vec<u8>,
    pieces: impl Iterator<Item = &'c Bytes>,
) -> std::io::Result<()> {
    let max_joined = joined.len() + INLINE_BODY;
    let mut long: &[u8] = &[];
    let mut after = Vec::new();
    for piece in pieces {
        let (buffer, most) =
            if long.is_empty() { (&mut joined, max_joined) } else { (&mut after, INLINE_BODY) };
        if buffer.len() + piece.len() <= most {
            buffer.extend_from_slice(piece);
            continue;
        }
        if !long.is_empty() {
            stream.write_all_buf(&mut Buf::chain(&*joined, long).chain(&*after)).await?;
            joined.clear();
            after.clear();
        }
        long = piece;
    }
    if long.is_empty() {
        return stream.write_all(&joined).await;
    }
    stream.write_all_buf(&mut Buf::chain(&*joined, long).chain(&*after)).await
}

/// Sends a call over HTTP/1.1: the head with the content length, and the chunks of the body.
pub(super) async fn send_http1(
    stream: &mut Stream,
    head: &[u8],
    call: &UpstreamRequest,
    upload: Option<&SpooledData>,
    trace: Option<&TraceContext>,
) -> Result<(), SendError> {
    let body = CallBody::new(call, upload);
    let length = body.len();
    let kind = call.content_type.as_bytes();
    let inline = usize::try_from(length).unwrap_or(INLINE_BODY).min(INLINE_BODY);
    let mut joined = Vec::with_capacity(head.len() + kind.len() + 60 + inline);
    joined.extend_from_slice(head);
    for (name, value) in trace.iter().flat_map(|trace| trace.headers()) {
        for part in [name, ": ", value, "\r\n"] {
            joined.extend_from_slice(part.as_bytes());
        }
    }
    joined.extend_from_slice(b"content-type: ");
    joined.extend_from_slice(kind);
    joined.extend_from_slice(b"\r\ncontent-length: ");
    joined.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    joined.extend_from_slice(b"\r\n\r\n");
    write_pieces(stream, joined, body.before.iter()).await?;
    if let Some(upload) = body.upload {
        let mut at = 0;
        loop {
            let piece = upload.read(at).await.map_err(SendError::UploadUnreadable)?;
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            stream.write_all(&piece).await?;
        }
        for piece in body.after {
            stream.write_all(piece).await?;
        }
    }
    Ok(stream.flush().await?)
}

/// Writes a head to a session. If that fails on HTTP/2, the stream does not exist, and a read from it would panic. On
/// an HTTP/1.1 connection, the provider may have sent an error response.
async fn send_head(session: &mut HttpSession, head: RequestHeader) -> Result<(), SendError> {
    let is_stream = session.as_http2().is_some();
    let begun = session.write_request_header(Box::new(head)).await;
    begun.map_err(|error| if is_stream { SendError::NotSent } else { error.into() })
}

/// Sends a request, with its body and uploaded file, over a session with a provider.
pub(super) async fn send_http2(
    session: &mut HttpSession,
    mut head: RequestHeader,
    call: &UpstreamRequest,
    upload: Option<&SpooledData>,
    trace: Option<&TraceContext>,
) -> Result<(), SendError> {
    let body = CallBody::new(call, upload);
    let mut left = body.len();
    head.insert_header(header::CONTENT_TYPE, &*call.content_type).map_err(|_| SendError::NotSent)?;
    head.insert_header(header::CONTENT_LENGTH, left).map_err(|_| SendError::NotSent)?;
    for (name, value) in trace.iter().flat_map(|trace| trace.headers()) {
        head.insert_header(name, value).map_err(|_| SendError::NotSent)?;
    }
    send_head(session, head).await?;
    write_session_pieces(session, body.before, &mut left).await?;
    if let Some(upload) = body.upload {
        let mut at = 0;
        while at < upload.len() {
            let slice = upload.read(at).await.map_err(SendError::UploadUnreadable)?;
            at += slice.len() as u64;
            left -= slice.len() as u64;
            session.write_request_body(slice, left == 0).await?;
        }
    }
    write_session_pieces(session, body.after, &mut left).await?;
    Ok(session.finish_request_body().await?)
}

/// Writes chunks of a body to a session. `left` is the number of bytes up to the end of the body.
async fn write_session_pieces(
    session: &mut HttpSession,
    pieces: &[Bytes],
    left: &mut u64,
) -> Result<(), SendError> {
    for piece in pieces {
        let mut piece = piece.clone();
        while !piece.is_empty() {
            let slice = piece.split_to(piece.len().min(BODY_SLICE_BYTES));
            *left -= slice.len() as u64;
            session.write_request_body(slice, *left == 0).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::storage::spool::SpoolFactory;
    use pingora_core::connectors::http::v2::{H2HandshakeSettings, handshake};
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn chunks_of_all_sizes_are_sent_in_order() {
        let (small, long) = (1000, INLINE_BODY + 1);
        for sizes in [
            &[][..],
            &[small],
            &[long],
            &[small, long, small],
            &[long, long],
            &[small, small, long, small, small, long, small],
            &[INLINE_BODY, 1, INLINE_BODY, 1],
            &[long, INLINE_BODY, 1, small],
        ] {
            let piece = |(at, size): (usize, &usize)| Bytes::from(vec![b'a' + at as u8; *size]);
            let pieces: Vec<Bytes> = sizes.iter().enumerate().map(piece).collect();
            let (gateway_end, mut provider_end) = tokio::io::duplex(7_000);
            let mut stream: Stream = Box::new(gateway_end);
            let sent = async {
                write_pieces(&mut stream, b"head".to_vec(), pieces.iter()).await.unwrap();
                drop(stream);
            };
            let mut received = Vec::new();
            let (read, ()) = tokio::join!(provider_end.read_to_end(&mut received), sent);
            read.unwrap();
            assert!(received == [b"head", &*pieces.concat()].concat(), "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn a_stream_lost_before_its_head_is_distinguished() {
        let (gateway_end, provider_end) = tokio::io::duplex(64 * 1024);
        let provider = tokio::spawn(h2::server::handshake(provider_end));
        let mut settings = H2HandshakeSettings::new();
        settings.max_streams = 1;
        let connection = handshake(Box::new(gateway_end), settings).await.unwrap();
        let mut taken = HttpSession::H2(connection.spawn_stream().await.unwrap().unwrap());
        drop(provider.await.unwrap().unwrap());
        while !connection.is_closed() {
            tokio::task::yield_now().await;
        }
        let mut head = RequestHeader::build("POST", b"/v1/chat/completions", None).unwrap();
        head.insert_header(header::HOST, "provider").unwrap();
        let sent = send_http2(
            &mut taken,
            head,
            &UpstreamRequest::from_json(vec![Bytes::from_static(b"{}")]),
            None,
            None,
        )
        .await;
        assert!(matches!(sent, Err(SendError::NotSent)));
    }

    const CHUNKS: [&str; 2] = ["ab", "cd"];

    /// Returns a call with an upload before the chunk of this index, and the bytes that have to be sent.
    fn call_with_upload(index: Option<usize>, has_upload: bool) -> (UpstreamRequest, Vec<u8>) {
        let body = CHUNKS.map(|chunk| Bytes::from_static(chunk.as_bytes())).to_vec();
        let mut parts = CHUNKS.to_vec();
        if let Some(index) = index.filter(|_| has_upload) {
            parts.insert(index.min(CHUNKS.len()), "upload");
        }
        let call = UpstreamRequest { content_type: "a/b".into(), body, upload_index: index };
        (call, parts.concat().into_bytes())
    }

    async fn sent_over_http1(call: &UpstreamRequest, upload: Option<&SpooledData>) -> Vec<u8> {
        let (gateway_end, mut provider_end) = tokio::io::duplex(1_000);
        let mut stream: Stream = Box::new(gateway_end);
        assert!(send_http1(&mut stream, b"POST / HTTP/1.1\r\n", call, upload, None).await.is_ok());
        drop(stream);
        let mut received = Vec::new();
        provider_end.read_to_end(&mut received).await.unwrap();
        let end = received.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let body = received.split_off(end);
        let head = String::from_utf8(received).unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        body
    }

    async fn sent_over_http2(call: &UpstreamRequest, upload: Option<&SpooledData>) -> Vec<u8> {
        let (gateway_end, provider_end) = tokio::io::duplex(64 * 1024);
        let provider = tokio::spawn(async move {
            let mut connection = h2::server::handshake(provider_end).await.unwrap();
            let (request, _respond) = connection.accept().await.unwrap().unwrap();
            let mut body = request.into_body();
            let mut received = Vec::new();
            loop {
                tokio::select! {
                    _ = connection.accept() => {}
                    data = body.data() => match data {
                        // Returns an error if the body is shorter or longer than its announced length.
                        Some(data) => received.extend_from_slice(&data.unwrap()),
                        None => return received,
                    },
                }
            }
        });
        let mut settings = H2HandshakeSettings::new();
        settings.max_streams = 1;
        let connection = handshake(Box::new(gateway_end), settings).await.unwrap();
        let mut session = HttpSession::H2(connection.spawn_stream().await.unwrap().unwrap());
        let mut head = RequestHeader::build("POST", b"/", None).unwrap();
        head.insert_header(header::HOST, "provider").unwrap();
        assert!(send_http2(&mut session, head, call, upload, None).await.is_ok());
        provider.await.unwrap()
    }

    #[tokio::test]
    async fn an_upload_is_sent_at_each_index_over_both_versions_of_http() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = SpoolFactory::new(folder.path().to_owned(), 10, 1_000).new_spool();
        spool.push(b"upload").await.unwrap();
        let spooled = spool.finish().await.unwrap();
        for index in [None, Some(0), Some(1), Some(CHUNKS.len()), Some(usize::MAX)] {
            for upload in [Some(&spooled), None] {
                let (call, expected) = call_with_upload(index, upload.is_some());
                assert_eq!(sent_over_http1(&call, upload).await, expected, "{index:?}");
                assert_eq!(sent_over_http2(&call, upload).await, expected, "{index:?}");
            }
        }
    }
}
