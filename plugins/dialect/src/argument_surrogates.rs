//! Replacement of lone surrogates in the arguments of tool calls.
//!
//! A model may write the escape of half a surrogate pair into its arguments, which are JSON text. Some client libraries
//! fail on such arguments, and a request whose history contains them is refused.

use crate::event::EscapedText;
use penstock_json_scan::json::{self, SurrogateHalf};

/// Filter for the arguments of one tool call. It replaces each escape of a lone surrogate by that of U+FFFD; all other
/// text is unchanged, however the arguments are divided into fragments.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArgumentSurrogates {
    format: ArgumentsFormat,
    /// Escapes at the end of the last fragment that may be a surrogate, or part of a pair: at most 11 bytes.
    held: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ArgumentsFormat {
    /// Format before the first character that is not white space.
    #[default]
    Unknown,
    /// JSON object.
    Object,
    /// Text that is no object. Its backslashes do not begin escapes, so it is unchanged.
    Other,
}

impl ArgumentSurrogates {
    /// Returns the next fragment with its lone surrogates replaced. An escape that is incomplete at the end of the
    /// fragment is held back until the next one. Complete JSON has no such escape, so nothing is lost at the end.
    pub(crate) fn repair_fragment(&mut self, fragment: EscapedText) -> EscapedText {
        if !self.may_change(fragment.escaped()) {
            return fragment;
        }
        let text = fragment.decoded();
        if self.format == ArgumentsFormat::Unknown {
            self.format = match text.trim_start().chars().next() {
                None => ArgumentsFormat::Unknown,
                Some('{') => ArgumentsFormat::Object,
                Some(_) => ArgumentsFormat::Other,
            };
            if self.format != ArgumentsFormat::Object {
                return fragment;
            }
        }
        let was_held = !self.held.is_empty();
        let text = std::mem::take(&mut self.held) + &text;
        let (repaired, complete) = replace_lone_surrogates(&text);
        let (complete, held) = text.split_at_checked(complete).unwrap_or((&text, ""));
        held.clone_into(&mut self.held);
        match repaired {
            Some(repaired) => EscapedText::new(&repaired),
            None if was_held || !held.is_empty() => EscapedText::new(complete),
            None => fragment,
        }
    }

    /// Returns true if [`Self::repair_fragment`] may change or hold back a part of this fragment, which is the body of
    /// a JSON string.
    pub(crate) fn may_change(&self, escaped: &[u8]) -> bool {
        match self.format {
            ArgumentsFormat::Unknown => true,
            ArgumentsFormat::Object => {
                !self.held.is_empty()
                    || escaped.ends_with(b"\\")
                    || memchr::memmem::find(escaped, b"\\u").is_some()
            }
            ArgumentsFormat::Other => false,
        }
    }
}

/// Replaces the escape of each lone surrogate in `text` by that of U+FFFD. Returns the new text, `None` if there is no
/// lone surrogate, and the length of the part of `text` before an escape that is incomplete at the end.
fn replace_lone_surrogates(text: &str) -> (Option<String>, usize) {
    let bytes = text.as_bytes();
    let (mut repaired, mut copied, mut at) = (String::new(), 0, 0);
    let end = loop {
        let found = bytes.get(at..).and_then(|rest| memchr::memchr(b'\\', rest));
        let Some(start) = found.map(|found| at + found) else { break bytes.len() };
        let is_lone = match match_escape(bytes, start) {
            EscapeMatch::Incomplete => break start,
            EscapeMatch::Complete(length, SurrogateHalf::None) => {
                at = start + length;
                false
            }
            EscapeMatch::Complete(length, SurrogateHalf::Low) => {
                at = start + length;
                true
            }
            EscapeMatch::Complete(length, SurrogateHalf::High) => {
                at = start + length;
                match match_escape(bytes, at) {
                    EscapeMatch::Incomplete => break start,
                    EscapeMatch::Complete(length, SurrogateHalf::Low) => {
                        at += length;
                        false
                    }
                    EscapeMatch::Complete(..) => true,
                }
            }
        };
        if is_lone {
            repaired.push_str(text.get(copied..start).unwrap_or_default());
            repaired.push_str("\\ufffd");
            copied = at;
        }
    };
    if copied == 0 {
        return (None, end);
    }
    repaired.push_str(text.get(copied..end).unwrap_or_default());
    (Some(repaired), end)
}

enum EscapeMatch {
    /// Start of an escape that may become a surrogate, or no character at all.
    Incomplete,
    /// Escape with its length in bytes. Other text counts as an escape that is no surrogate.
    Complete(usize, SurrogateHalf),
}

/// Matches the escape at `offset`.
fn match_escape(bytes: &[u8], offset: usize) -> EscapeMatch {
    let other = EscapeMatch::Complete(2, SurrogateHalf::None);
    match (bytes.get(offset), bytes.get(offset + 1)) {
        (None, _) | (Some(b'\\'), None) => EscapeMatch::Incomplete,
        (Some(b'\\'), Some(b'u')) => {
            let digits = bytes.get(offset + 2..).unwrap_or_default();
            let digits = digits.get(..4).unwrap_or(digits);
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                other
            } else if digits.len() == 4 {
                let escape = bytes.get(offset..offset + 6).unwrap_or_default();
                EscapeMatch::Complete(6, json::surrogate_half(escape))
            } else if matches!(digits.first(), None | Some(b'd' | b'D')) {
                EscapeMatch::Incomplete
            } else {
                other
            }
        }
        _ => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the repaired arguments; asserts that each division into fragments gives the same result.
    fn repair(arguments: &str) -> String {
        let run = |fragments: &[&str]| {
            let mut filter = ArgumentSurrogates::default();
            let repaired = fragments.iter().map(|text| filter.repair_fragment(EscapedText::new(text)));
            repaired.map(|text| text.decoded().into_owned()).collect::<String>()
        };
        let whole = run(&[arguments]);
        let letters: Vec<String> = arguments.chars().map(String::from).collect();
        assert_eq!(run(&letters.iter().map(String::as_str).collect::<Vec<_>>()), whole, "{arguments}");
        let cuts: Vec<usize> = arguments.char_indices().map(|(at, _)| at).collect();
        for first in &cuts {
            let (start, rest) = arguments.split_at(*first);
            for second in cuts.iter().filter(|second| *second >= first) {
                let (middle, end) = rest.split_at(second - first);
                assert_eq!(run(&[start, middle, end]), whole, "{start}|{middle}|{end}");
            }
        }
        whole
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        assert_eq!(repair(r#"{"a":"\ud83d"}"#), r#"{"a":"\ufffd"}"#);
        assert_eq!(repair(r#" {"\uDE00":"x\ud83dy"}"#), r#" {"\ufffd":"x\ufffdy"}"#);
        assert_eq!(repair(r#"{"a":"\ud83d\ud83d\ude00\ude00"}"#), r#"{"a":"\ufffd\ud83d\ude00\ufffd"}"#);
        assert_eq!(repair(r#"{"a":"\ud83d\n\ud83d\u0041"}"#), r#"{"a":"\ufffd\n\ufffd\u0041"}"#);
    }

    #[test]
    fn all_other_arguments_are_unchanged() {
        for arguments in [
            r#"{"a":"\ud83d\ude00 \uD83D\uDE00"}"#,
            r#"{"a":"\\ud83d \\\\ud83d \\\n\"\u00e9\/é😀"}"#,
            r#"{"a":"\ud8zz\u"}"#,
            r#"{"a":1}"#,
            r#"*** Begin Patch \ud83d"#,
            r#""\ud83d""#,
            " \n ",
            "",
        ] {
            assert_eq!(repair(arguments), arguments);
        }
    }

    #[test]
    fn an_escape_cut_at_the_end_of_the_answer_is_dropped() {
        for cut in [r"\", r"\u", r"\ud8", r"\ud83d", r"\ud83d\", r"\ud83d\ude0"] {
            assert_eq!(repair(&format!(r#"{{"a":"x{cut}"#)), r#"{"a":"x"#);
        }
        assert_eq!(repair(r#"{"a":"\u00"#), r#"{"a":"\u00"#);
    }

    #[test]
    fn a_fragment_without_surrogates_shares_its_memory() {
        let mut filter = ArgumentSurrogates::default();
        for text in [r#"{"a":"\ud83d\ude00"#, r#"b\"c\\","#, r#""d":1}"#] {
            let fragment = EscapedText::new(text);
            assert_eq!(
                filter.repair_fragment(fragment.clone()).escaped().as_ptr(),
                fragment.escaped().as_ptr()
            );
        }
    }
}
