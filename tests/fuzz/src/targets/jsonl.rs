//! JSONL files of requests: the result of the validation does not depend on the cuts; each line alone gives the same
//! result as in its file.

use super::batch::URLS;
use crate::{however_cut, parse};
use penstock_batch::jsonl::{FileValidator, parse_line, strip_line_ending};
use std::collections::HashSet;

pub fn check(bytes: &[u8]) {
    let found = however_cut(bytes, |pieces| {
        let mut lines = FileValidator::new(URLS, 1 << 20);
        pieces.iter().for_each(|piece| lines.push(piece));
        lines.end()
    });
    let Ok(checked) = found else { return };
    let mut names = HashSet::new();
    for (index, text) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let text = strip_line_ending(text, index == 0);
        if text.trim_ascii().is_empty() {
            continue;
        }
        let input = parse_line(text, URLS).expect("a line of a sound file is sound");
        assert_eq!(input.url, checked.url);
        let body = parse(input.body).expect("a body is JSON");
        assert!(body.is_object() && body["stream"] != true);
        let whole = parse(text).expect("a line is JSON");
        assert_eq!(whole["custom_id"].as_str(), Some(&*input.custom_id));
        assert!(names.insert(input.custom_id.into_owned()), "a name twice");
    }
    assert_eq!(checked.lines as usize, names.len());
}
