//! Answers over HTTP/1.1, head and body: the result does not depend on the cuts, and few bytes are buffered.

use crate::{however_cut, pieces};
use bytes::{Buf, BytesMut};
use penstock_http_wire::answer::{
    BodyFraming, ChunkDecoder, ChunkStep, Http1ResponseHead, MalformedMessage, header_value,
};

/// Maximum number of bytes of a chunked body that are buffered while the end of a line is missing.
const LINE: usize = 4 * 1024 + b"\r".len();

/// Answer read from the bytes.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    /// Heads of informational responses, and the last head.
    heads: Vec<Http1ResponseHead>,
    head: Vec<u8>,
    body: Vec<u8>,
    /// Number of received bytes that follow the body; `None` before its end.
    over: Option<usize>,
}

fn read(parts: &[&[u8]]) -> Result<Answer, MalformedMessage> {
    let (mut buffer, mut answer, mut chunks) = (BytesMut::new(), Answer::default(), ChunkDecoder::default());
    for part in parts {
        buffer.extend_from_slice(part);
        while answer.heads.last().is_none_or(|head| head.status < 200) {
            let Some(head) = Http1ResponseHead::parse(&buffer)? else { break };
            assert!(head.size <= buffer.len() && (100..=999).contains(&head.status));
            answer.head = buffer.split_to(head.size).to_vec();
            answer.heads.push(head);
        }
        match answer.heads.last().filter(|head| head.status >= 200).map(|head| head.framing) {
            Some(BodyFraming::Chunked) if answer.over.is_none() => loop {
                match chunks.decode_next(&mut buffer)? {
                    ChunkStep::Data(data) => {
                        assert!(!data.is_empty());
                        answer.body.extend_from_slice(&data);
                    }
                    ChunkStep::Incomplete => {
                        assert!(buffer.len() <= LINE, "{} bytes are held", buffer.len());
                        break;
                    }
                    ChunkStep::End => {
                        answer.over = Some(0);
                        break;
                    }
                }
            },
            Some(BodyFraming::Length(length)) => {
                let left = usize::try_from(length).unwrap_or(usize::MAX).saturating_sub(answer.body.len());
                let here = left.min(buffer.len());
                answer.body.extend_from_slice(&buffer[..here]);
                buffer.advance(here);
                answer.over = (left == here).then_some(0);
            }
            Some(BodyFraming::UntilClose) => answer.body.extend_from_slice(&buffer.split()),
            Some(BodyFraming::Chunked) | None => {}
        }
    }
    answer.over = answer.over.map(|_| buffer.len());
    Ok(answer)
}

pub fn check(bytes: &[u8]) {
    let whole = however_cut(bytes, read);
    // Chunks without a head are tested too, because most generated inputs have no valid head.
    let _ = however_cut(bytes, unchunked);
    let Ok(answer) = whole else { return };
    let Some(head) = answer.heads.last() else { return };
    assert!(answer.head.len() == head.size && answer.body.len() <= bytes.len() - head.size);
    let has_field = |name: &str| header_value(&answer.head, name).is_some();
    match head.framing {
        BodyFraming::Chunked => {
            assert!(has_field("transfer-encoding"));
            assert!(!has_field("content-length") || head.is_last, "two ends, and the connection goes on");
        }
        BodyFraming::Length(_) => {
            assert!(has_field("content-length") || matches!(head.status, 100..=199 | 204 | 304))
        }
        BodyFraming::UntilClose => assert!(head.is_last && !has_field("content-length")),
    }
    again(&answer.body);
}

/// Decodes chunks without a head; returns the body, and true if it has ended.
fn unchunked(parts: &[&[u8]]) -> Result<(Vec<u8>, bool), MalformedMessage> {
    let (mut chunks, mut buffer, mut body) = (ChunkDecoder::default(), BytesMut::new(), Vec::new());
    for part in parts {
        buffer.extend_from_slice(part);
        loop {
            match chunks.decode_next(&mut buffer)? {
                ChunkStep::Data(data) => body.extend_from_slice(&data),
                ChunkStep::Incomplete => break,
                ChunkStep::End => return Ok((body, true)),
            }
        }
        assert!(buffer.len() <= LINE, "{} bytes are held", buffer.len());
    }
    Ok((body, false))
}

/// Asserts that a body that is encoded in chunks is decoded to the same body.
fn again(body: &[u8]) {
    let mut coded = Vec::new();
    for piece in pieces(body) {
        coded.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        coded.extend_from_slice(piece);
        coded.extend_from_slice(b"\r\n");
    }
    coded.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(unchunked(&pieces(&coded)), Ok((body.to_vec(), true)));
}
