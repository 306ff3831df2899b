//! Forms: parts and contents do not depend on the cuts; boundaries are taken from any content type.

use crate::however_cut;
use bytes::Bytes;
use penstock_http_wire::form::{
    MAX_PARTS, MultipartError, MultipartEvent, MultipartParser, PartHead, parse_boundary,
};

type Parts = Vec<(PartHead, Vec<u8>, bool)>;

fn read(pieces: &[&[u8]], boundary: &str) -> (Parts, Option<MultipartError>) {
    let mut form = MultipartParser::new(boundary);
    let mut parts: Parts = Vec::new();
    for piece in pieces {
        let pushed = form.push(Bytes::copy_from_slice(piece));
        while let Some(event) = form.next_event() {
            match (event, parts.last_mut()) {
                (MultipartEvent::Part(part), _) => parts.push((part, Vec::new(), false)),
                (MultipartEvent::Content(content), Some((_, held, _))) => {
                    assert!(!content.is_empty());
                    held.extend_from_slice(&content);
                }
                (MultipartEvent::PartEnd, Some((_, _, whole))) => *whole = true,
                (MultipartEvent::Content(_) | MultipartEvent::PartEnd, None) => panic!("content of no part"),
            }
        }
        if let Err(broken) = pushed {
            // The events of the truncated last part depend on the cuts, so that part is not compared.
            parts.pop();
            return (parts, Some(broken));
        }
    }
    (parts, form.check_complete().err())
}

pub fn check(bytes: &[u8]) {
    let (parts, broken) = however_cut(bytes, |pieces| read(pieces, "XyZ"));
    assert!(parts.len() <= MAX_PARTS);
    if broken.is_none() {
        for (_, content, whole) in &parts {
            assert!(*whole);
            assert!(!content.windows(7).any(|seven| seven == b"\r\n--XyZ"), "a delimiter inside a part");
        }
    }
    let head: String = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    for kind in [head.clone(), format!("multipart/form-data; {head}")] {
        if let Some(Some(boundary)) = parse_boundary(&kind) {
            assert!((1..=70).contains(&boundary.len()));
            let form = format!(
                "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--{boundary}--"
            );
            let (parts, broken) = read(&[form.as_bytes()], &boundary);
            assert_eq!((parts.len(), broken), (1, None));
        }
    }
}
