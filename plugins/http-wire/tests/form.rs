//! Tests of forms as clients send them, for any split, and of invalid forms.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_http_wire::form::{
    MAX_PART_HEAD_BYTES, MAX_PARTS, MultipartError, MultipartEvent, MultipartParser,
};
use proptest::prelude::*;

/// Name, file flag and content of each part.
type Parts = Vec<(String, bool, Vec<u8>)>;

fn parse_form(pieces: &[&[u8]]) -> Result<Parts, MultipartError> {
    let mut form = MultipartParser::new("XyZ");
    let mut parts: Parts = Vec::new();
    let mut whole = 0;
    for piece in pieces {
        form.push(Bytes::copy_from_slice(piece))?;
        while let Some(event) = form.next_event() {
            match event {
                MultipartEvent::Part(part) => parts.push((part.name, part.is_file, Vec::new())),
                MultipartEvent::Content(content) => {
                    assert!(!content.is_empty());
                    parts.last_mut().unwrap().2.extend_from_slice(&content);
                }
                MultipartEvent::PartEnd => whole += 1,
            }
        }
    }
    form.check_complete()?;
    assert_eq!(whole, parts.len());
    Ok(parts)
}

fn part(name: &str, file: bool, content: &[u8]) -> Vec<u8> {
    let file = if file { "; filename=\"a.mp3\"\r\nContent-Type: audio/mpeg" } else { "" };
    let mut bytes =
        format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").into_bytes();
    bytes.extend_from_slice(content);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

fn form(parts: &[(&str, bool, &[u8])]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        parts.iter().flat_map(|(name, file, content)| part(name, *file, content)).collect();
    bytes.extend_from_slice(b"--XyZ--\r\n");
    bytes
}

#[test]
fn every_cut_gives_the_same_parts() {
    let content = b"\r\n--Xy\r\n--X\r\r\n-\0\xff--XyZ\r\n\r\n";
    let bytes = form(&[("model", false, b"m"), ("file", true, content), ("prompt", false, b"")]);
    let expected: Parts = vec![
        ("model".into(), false, b"m".to_vec()),
        ("file".into(), true, content.to_vec()),
        ("prompt".into(), false, Vec::new()),
    ];
    assert_eq!(parse_form(&[&bytes]).unwrap(), expected);
    for cut in 0..=bytes.len() {
        assert_eq!(parse_form(&[&bytes[..cut], &bytes[cut..]]).unwrap(), expected, "cut at {cut}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(parse_form(&single).unwrap(), expected);
}

#[test]
fn preamble_and_epilogue_are_skipped() {
    let mut bytes = b"a preamble\r\n".to_vec();
    bytes.extend(form(&[("a", false, b"1")]));
    bytes.extend_from_slice(b"an epilogue --XyZ\r\n");
    assert_eq!(parse_form(&[&bytes]).unwrap(), vec![("a".to_owned(), false, b"1".to_vec())]);
    let padded = b"--XyZ  \t\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--XyZ--";
    assert_eq!(parse_form(&[padded]).unwrap().len(), 1);
}

#[test]
fn a_truncated_form_is_detected_at_every_byte() {
    let bytes = form(&[("model", false, b"m"), ("file", true, b"abc")]);
    for end in 0..bytes.len() - 4 {
        assert_eq!(parse_form(&[&bytes[..end]]), Err(MultipartError::Truncated), "ends at {end}");
    }
}

#[test]
fn invalid_forms_report_the_cause() {
    assert_eq!(parse_form(&[b""]), Err(MultipartError::Truncated));
    assert_eq!(parse_form(&[b"{\"model\":\"m\"}"]), Err(MultipartError::Truncated));
    assert_eq!(parse_form(&[b"--XyZa\r\n\r\n"]), Err(MultipartError::InvalidDelimiter));
    assert_eq!(parse_form(&[b"--XyZ-a"]), Err(MultipartError::InvalidDelimiter));
    assert_eq!(parse_form(&[b"--XyZ\r\n\r\nno head\r\n--XyZ--"]), Err(MultipartError::InvalidHead));
    assert_eq!(
        parse_form(&[b"--XyZ\r\nContent-Type: a/b\r\n\r\n\r\n--XyZ--"]),
        Err(MultipartError::InvalidHead)
    );
    let mut long = b"--XyZ\r\n".to_vec();
    long.extend(vec![b'a'; MAX_PART_HEAD_BYTES + 3]);
    assert_eq!(parse_form(&[&long]), Err(MultipartError::HeadTooLong));
    let many: Vec<u8> = (0..=MAX_PARTS).flat_map(|_| part("a", false, b"")).collect();
    assert_eq!(parse_form(&[&many]), Err(MultipartError::TooManyParts));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..64), 0..8)) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        parse_form(&pieces).ok();
    }

    #[test]
    fn contents_come_out_as_they_went_in(
        contents in proptest::collection::vec(proptest::collection::vec(prop_oneof![
            Just(b'\r'), Just(b'\n'), Just(b'-'), Just(b'X'), Just(b'y'), any::<u8>()
        ], 0..200), 1..5),
        size in 1usize..40,
    ) {
        let free = contents.iter().all(|content| !content.windows(7).any(|window| window == b"\r\n--XyZ"));
        prop_assume!(free);
        let parts: Vec<(&str, bool, &[u8])> = contents.iter().map(|content| ("f", true, content.as_slice())).collect();
        let bytes = form(&parts);
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        let read: Vec<Vec<u8>> = parse_form(&pieces).unwrap().into_iter().map(|(_, _, content)| content).collect();
        prop_assert_eq!(read, contents);
    }
}
