//! Parser of an upload: a multipart form with parts in any order. Small parts are buffered, the file is passed on in
//! chunks.

use bytes::Bytes;
use penstock_core::ApiError;
use penstock_http_wire::form::upload::{self, UploadFormEvent, name_if_quotable, part_error};
use serde_json::{Map, Value};

/// Maximum length of a field value, in bytes.
const MAX_FIELD_BYTES: usize = 1 << 10;
/// Maximum length of a file name, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// Allowed lifetime of a file in seconds: one hour to thirty days.
pub const ALLOWED_LIFETIME_SECONDS: std::ops::RangeInclusive<u64> = 3_600..=2_592_000;
/// Default file name.
const DEFAULT_NAME: &str = "upload.jsonl";

/// Fields of an uploaded form, without the file contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadFields {
    /// File name: the last component of a path, without control characters.
    pub filename: String,
    /// Lifetime of the file in seconds; `None` if the client sent none.
    pub expires_after: Option<u64>,
}

/// Parser of an upload form.
#[derive(Debug)]
pub struct UploadParser {
    form: upload::UploadFormParser,
    fields: PartialFields,
}

/// Values of the form fields that were parsed so far.
#[derive(Debug, Default)]
struct PartialFields {
    filename: Option<String>,
    /// True if the field `purpose` was received; its value is `batch`.
    purpose: bool,
    /// True if the field `expires_after[anchor]` was received; its value is `created_at`.
    anchor: bool,
    seconds: Option<u64>,
    /// Names of the known fields that were received.
    seen: Vec<&'static str>,
}

impl UploadParser {
    /// Creates a parser for a form of this content type.
    ///
    /// # Errors
    /// Returns a refusal if the content type is not a multipart form or has no boundary.
    pub fn new(content_type: &str) -> Result<Self, ApiError> {
        Ok(Self {
            form: upload::UploadFormParser::new(content_type, "file", MAX_FIELD_BYTES)?,
            fields: PartialFields::default(),
        })
    }

    /// Parses the next bytes; appends the bytes of the file to `contents`.
    ///
    /// # Errors
    /// Returns a refusal that names the invalid part.
    pub fn push(&mut self, bytes: Bytes, contents: &mut Vec<Bytes>) -> Result<(), ApiError> {
        self.form.push(bytes, |piece| {
            match piece {
                UploadFormEvent::File(part) => self.fields.filename = part.filename,
                UploadFormEvent::Content(content) => contents.push(content),
                UploadFormEvent::Field(name, value) => self.fields.add_field(&name, &value)?,
            }
            Ok(())
        })
    }

    /// Ends the form and returns its fields.
    ///
    /// # Errors
    /// Returns a refusal that names a missing or truncated part.
    pub fn end(self) -> Result<UploadFields, ApiError> {
        self.form.end("a file")?;
        self.fields.into_fields()
    }
}

impl PartialFields {
    fn into_fields(self) -> Result<UploadFields, ApiError> {
        if !self.purpose {
            return Err(part_error("purpose", "expected \"batch\", but it is missing"));
        }
        let expires_after = match (self.anchor, self.seconds) {
            (true, None) => {
                return Err(part_error(SECONDS, "expected with expires_after[anchor], but it is missing"));
            }
            (false, Some(_)) => return Err(part_error(ANCHOR, "expected \"created_at\", but it is missing")),
            (_, seconds) => seconds,
        };
        Ok(UploadFields {
            filename: sanitize_name(self.filename.as_deref().unwrap_or_default()),
            expires_after,
        })
    }

    fn add_field(&mut self, name: &str, value: &[u8]) -> Result<(), ApiError> {
        let known = ["purpose", POLICY, ANCHOR, SECONDS];
        // Unknown form fields, which other services define, are ignored.
        let Some(name) = known.into_iter().find(|known| *known == name) else { return Ok(()) };
        // The policy may come as one field or as its two members, but not as both.
        let excluded: &[&str] = match name {
            POLICY => &[POLICY, ANCHOR, SECONDS],
            ANCHOR => &[POLICY, ANCHOR],
            SECONDS => &[POLICY, SECONDS],
            name => &[name],
        };
        if self.seen.iter().any(|seen| excluded.contains(seen)) {
            return Err(part_error(name, "expected it once, got it more than once"));
        }
        self.seen.push(name);
        let text = std::str::from_utf8(value).map_err(|_| part_error(name, "expected text in UTF-8"))?;
        self.parse_field(name, text.trim())
    }

    fn parse_field(&mut self, name: &'static str, text: &str) -> Result<(), ApiError> {
        match name {
            ANCHOR if text == "created_at" => self.anchor = true,
            ANCHOR => return Err(part_error(name, "expected \"created_at\"")),
            SECONDS => {
                let seconds = text.parse().ok().filter(|seconds| ALLOWED_LIFETIME_SECONDS.contains(seconds));
                self.seconds = Some(seconds.ok_or_else(|| part_error(name, seconds_error("")))?);
            }
            POLICY if matches!(text, "" | "null") => {}
            POLICY => self.parse_policy(text)?,
            _ if text == "batch" => self.purpose = true,
            _ => {
                let got = name_if_quotable(text).map(|text| format!(", got \"{text}\"")).unwrap_or_default();
                return Err(part_error(name, format!("expected \"batch\"{got}")));
            }
        }
        Ok(())
    }

    /// Reads the policy as a JSON object; the names of its members are those of the two single fields.
    fn parse_policy(&mut self, text: &str) -> Result<(), ApiError> {
        let policy: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| part_error(POLICY, "expected a JSON object"))?;
        if policy.get("anchor").and_then(Value::as_str) != Some("created_at") {
            return Err(part_error(POLICY, "expected the anchor \"created_at\""));
        }
        let seconds = policy.get("seconds").and_then(Value::as_u64);
        let seconds = seconds.filter(|seconds| ALLOWED_LIFETIME_SECONDS.contains(seconds));
        self.seconds = Some(seconds.ok_or_else(|| part_error(POLICY, seconds_error(" as seconds")))?);
        self.anchor = true;
        Ok(())
    }
}

/// Returns the text of the error for an invalid lifetime; `place` follows the expected value.
fn seconds_error(place: &str) -> String {
    let (least, most) = (ALLOWED_LIFETIME_SECONDS.start(), ALLOWED_LIFETIME_SECONDS.end());
    format!("expected a whole number from {least} to {most}{place}")
}

const POLICY: &str = "expires_after";
const ANCHOR: &str = "expires_after[anchor]";
const SECONDS: &str = "expires_after[seconds]";

/// Returns the last component of a Unix or Windows path without control characters, at most [`MAX_NAME_BYTES`] bytes
/// long; a default name if nothing is left.
fn sanitize_name(name: &str) -> String {
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut plain: String = last.chars().filter(|letter| !letter.is_control()).collect();
    while plain.len() > MAX_NAME_BYTES {
        plain.pop();
    }
    let plain = plain.trim();
    if plain.is_empty() || plain.chars().all(|letter| letter == '.') {
        DEFAULT_NAME.to_owned()
    } else {
        plain.to_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use proptest::prelude::*;

    fn part(name: &str, value: &str) -> String {
        format!("--B7\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    }

    fn file(filename: &str, contents: &str) -> String {
        format!(
            "--B7\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{filename}\"\r\n\
             Content-Type: application/octet-stream\r\n\r\n{contents}\r\n"
        )
    }

    fn read(parts: &[String], cuts: &[usize]) -> Result<(UploadFields, Vec<u8>), ApiError> {
        let body = parts.concat() + "--B7--\r\n";
        let mut upload = UploadParser::new("multipart/form-data; boundary=B7").unwrap();
        let mut contents = Vec::new();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
        ends.extend([0, body.len()]);
        ends.sort_unstable();
        for pair in ends.windows(2) {
            upload.push(Bytes::copy_from_slice(&body.as_bytes()[pair[0]..pair[1]]), &mut contents)?;
        }
        Ok((upload.end()?, contents.concat()))
    }

    fn error_message(parts: &[String]) -> String {
        read(parts, &[]).unwrap_err().message.into_owned()
    }

    #[test]
    fn parts_come_in_any_order() {
        let (purpose, contents) = (part("purpose", "batch"), "{}\r\n{}\n");
        let (anchor, seconds) = (part(ANCHOR, "created_at"), part(SECONDS, "3600"));
        let file = file("a.jsonl", contents);
        let uploaded = UploadFields { filename: "a.jsonl".to_owned(), expires_after: Some(3_600) };
        for parts in [
            [purpose.clone(), file.clone(), anchor.clone(), seconds.clone()],
            [file.clone(), seconds.clone(), purpose.clone(), anchor.clone()],
            [anchor, seconds, file, purpose],
        ] {
            assert_eq!(read(&parts, &[]).unwrap(), (uploaded.clone(), contents.as_bytes().to_vec()));
        }
    }

    #[test]
    fn the_policy_may_be_one_json_object() {
        let parts = |policies: &[String]| {
            let form = [part("purpose", "batch"), file("a", "x")];
            [&policies[..1], &form[..], &policies[1..]].concat()
        };
        let policy = part(POLICY, r#"{"anchor": "created_at", "seconds": 3600}"#);
        assert_eq!(read(&parts(std::slice::from_ref(&policy)), &[]).unwrap().0.expires_after, Some(3_600));
        for absent in ["", "null"] {
            assert_eq!(read(&parts(&[part(POLICY, absent)]), &[]).unwrap().0.expires_after, None, "{absent}");
        }
        for (value, sentence) in [
            ("3600", "expected a JSON object."),
            ("{", "expected a JSON object."),
            ("{}", "expected the anchor \"created_at\"."),
            (r#"{"anchor":"now","seconds":3600}"#, "expected the anchor \"created_at\"."),
            (r#"{"anchor":"created_at"}"#, "expected a whole number from 3600 to 2592000 as seconds."),
            (
                r#"{"anchor":"created_at","seconds":3599}"#,
                "expected a whole number from 3600 to 2592000 as seconds.",
            ),
            (
                r#"{"anchor":"created_at","seconds":"3600"}"#,
                "expected a whole number from 3600 to 2592000 as seconds.",
            ),
            (
                r#"{"anchor":"created_at","seconds":2592001}"#,
                "expected a whole number from 3600 to 2592000 as seconds.",
            ),
        ] {
            assert_eq!(error_message(&parts(&[part(POLICY, value)])), format!("{POLICY}: {sentence}"));
        }
        for other in [part(ANCHOR, "created_at"), part(SECONDS, "3600"), policy.clone()] {
            for twice in [[policy.clone(), other.clone()], [other.clone(), policy.clone()]] {
                assert!(error_message(&parts(&twice)).ends_with("expected it once, got it more than once."));
            }
        }
    }

    #[test]
    fn names_are_made_plain() {
        let long = "\u{e9}".repeat(200);
        for (given, plain) in [
            ("C:\\Users\\me\\a b.jsonl", "a b.jsonl"),
            ("../../etc/passwd", "passwd"),
            ("a\u{7f}\u{1}b", "ab"),
            ("", DEFAULT_NAME),
            ("x/..", DEFAULT_NAME),
            (&long, &"\u{e9}".repeat(127)),
        ] {
            assert_eq!(sanitize_name(given), plain, "{given:?}");
        }
    }

    #[test]
    fn an_invalid_part_is_named() {
        let (purpose, file) = (part("purpose", "batch"), file("a", "x"));
        let seconds = part(SECONDS, "3600");
        let cases: [(Vec<String>, &str); 10] = [
            (vec![purpose.clone()], "file: expected a file, but it is missing."),
            (vec![file.clone()], "purpose: expected \"batch\", but it is missing."),
            (vec![part("purpose", "fine-tune")], "purpose: expected \"batch\", got \"fine-tune\"."),
            (vec![part("purpose", "a b\u{e9}")], "purpose: expected \"batch\"."),
            (vec![purpose.clone(), purpose.clone()], "purpose: expected it once, got it more than once."),
            (vec![file.clone(), file.clone()], "file: expected one file, got more than one."),
            (
                vec![purpose.clone(), file.clone(), seconds.clone()],
                "expires_after[anchor]: expected \"created_at\", but it is missing.",
            ),
            (
                vec![purpose.clone(), file.clone(), part(ANCHOR, "created_at")],
                "expires_after[seconds]: expected with expires_after[anchor], but it is missing.",
            ),
            (
                vec![part(SECONDS, "60")],
                "expires_after[seconds]: expected a whole number from 3600 to 2592000.",
            ),
            (vec![part("purpose", &"x".repeat(2_000))], "purpose: expected at most 1024 bytes."),
        ];
        for (parts, sentence) in cases {
            assert_eq!(error_message(&parts), sentence);
        }
        let other = file.replace("name=\"file\"", "name=\"jsonl\"");
        assert_eq!(
            error_message(&[other]),
            "file: expected the file in a part of this name, got a file in \"jsonl\"."
        );
        assert!(
            UploadParser::new("application/json").is_err()
                && UploadParser::new("multipart/form-data").is_err()
        );
    }

    proptest! {
        #[test]
        fn every_cut_gives_the_same(contents in "[\\r\\n\\-b a]{0,60}", cuts in prop::collection::vec(any::<usize>(), 0..8)) {
            let parts = [part("purpose", "batch"), file("a", &contents)];
            prop_assert_eq!(read(&parts, &cuts).unwrap().1, contents.as_bytes().to_vec());
        }
    }
}
