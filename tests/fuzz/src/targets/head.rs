//! Heads of requests: the result does not depend on the cuts, a strict parser agrees, and the length of each body is
//! unambiguous.

use crate::however_cut;
use bytes::Bytes;
use penstock_http_wire::http1_request::{
    HeadError, HeadLimits, HeadParser, Http1RequestHead, request_target_for_log,
};

/// Limits so small that inputs reach them.
const CAPS: HeadLimits = HeadLimits { bytes: 1_024, target: 128, fields: 12 };

/// Returns the length of the complete head; the pieces arrive one after the other.
fn read(pieces: &[&[u8]]) -> Result<Option<usize>, HeadError> {
    let (mut scan, mut held) = (HeadParser::default(), Vec::new());
    for piece in pieces {
        held.extend_from_slice(piece);
        if let Some(size) = scan.push(&held, CAPS)? {
            return Ok(Some(size));
        }
    }
    Ok(None)
}

/// Parses a complete head as a request.
fn request(head: &[u8]) -> Http1RequestHead {
    let mut scan = HeadParser::default();
    assert_eq!(scan.push(head, CAPS), Ok(Some(head.len())), "what follows a head changes nothing of it");
    scan.into_request_head(Bytes::copy_from_slice(head))
}

pub fn check(bytes: &[u8]) {
    let _ = request_target_for_log(bytes);
    let Ok(Some(size)) = however_cut(bytes, read) else { return };
    let head = &bytes[..size];
    assert!(size <= CAPS.bytes);
    let ours = request(head);
    let mut header_storage = [httparse::EMPTY_HEADER; CAPS.fields];
    let mut theirs = httparse::Request::new(&mut header_storage);
    assert_eq!(theirs.parse(head), Ok(httparse::Status::Complete(size)), "a strict parser reads it too");
    let method = theirs.method.expect("a method");
    let named = theirs.path.expect("a target");
    assert_eq!((ours.method(), ours.size()), (method.as_bytes(), size));
    assert_eq!(ours.is_http10(), theirs.version == Some(0));
    assert_eq!(request_target_for_log(head), named);
    assert!(named.len() <= CAPS.target);
    aims(&ours, method, named);

    let fields: Vec<(&str, &[u8])> = theirs.headers.iter().map(|field| (field.name, field.value)).collect();
    let of = |name: &str| -> Vec<&[u8]> {
        let own = fields.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        own.map(|(_, value)| *value).collect()
    };
    for (name, _) in &fields {
        assert_eq!(ours.field(name), of(name).first().copied(), "{name}");
    }
    // The head states how the body ends: by a length or by chunks, never by both.
    let (lengths, codings, hosts) = (of("content-length"), of("transfer-encoding"), of("host"));
    assert!(lengths.len() + codings.len() <= 1, "a body that ends in two ways");
    match (lengths.first(), codings.first()) {
        (_, Some(coding)) => {
            assert!(coding.eq_ignore_ascii_case(b"chunked") && !ours.is_http10());
            assert_eq!(ours.body_length(), None);
        }
        (Some(length), None) => {
            let length = std::str::from_utf8(length).expect("digits");
            assert!(length.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(ours.body_length(), length.parse().ok());
        }
        (None, None) => assert_eq!(ours.body_length(), Some(0)),
    }
    assert!(hosts.len() == 1 || (hosts.is_empty() && ours.is_http10()));
    let connection = of("connection").join(&b","[..]);
    let wants = |option: &[u8]| {
        connection.split(|byte| *byte == b',').any(|one| one.trim_ascii().eq_ignore_ascii_case(option))
    };
    assert_eq!(ours.closes_connection(), wants(b"close") || (ours.is_http10() && !wants(b"keep-alive")));
}

/// Asserts that path, query and host together equal the request target.
fn aims(ours: &Http1RequestHead, method: &str, named: &str) {
    let path = ours.path();
    let target = ours.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    // A target with a host may have no path, which means `/`.
    let alike = |rest: &str| rest == target || Some(rest) == target.strip_prefix('/');
    if named.starts_with('/') || named == "*" || method == "CONNECT" {
        assert!(alike(named), "{named} was read as {target}");
        return;
    }
    let host = ours.authority().expect("it names its host");
    let rest = named.split_once("://").and_then(|(_, rest)| rest.strip_prefix(host));
    assert!(rest.is_some_and(alike), "{named} was read as {host} and {target}");
    assert!(ours.field("host").is_none_or(|field| field == host.as_bytes()), "it asks two hosts");
}
