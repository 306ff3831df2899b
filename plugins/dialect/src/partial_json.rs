//! Incremental check that tells if a tool call's arguments are a complete JSON object, the start of one, or other text.
//!
//! The check is used to order parallel calls that arrive interleaved (the next block may open when the previous call is
//! complete), to separate calls that an engine does not separate, and to detect arguments that no client can parse.
//! Only the open brackets and the current number or word are stored.

use penstock_json_scan::json;

/// Maximum nesting depth of arguments; deeper ones are invalid.
const MAX_DEPTH: usize = 512;
/// Maximum bytes of a number or word; longer ones are invalid.
pub(crate) const MAX_SCALAR_BYTES: usize = 512;

/// State of a tool call's arguments after the fragments so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonState {
    /// White space only: a call without arguments.
    Empty,
    /// Start of a JSON object whose end has not arrived.
    Incomplete,
    /// Complete JSON object.
    Complete,
    /// Short text that does not begin an object, such as `null` or `""`.
    NonObject,
    /// Text that cannot become a JSON object.
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedToken {
    FirstKeyOrEnd,
    Key,
    Colon,
    FirstValueOrEnd,
    Value,
    CommaOrEnd,
    String { key: bool },
    Escape { key: bool },
    Hex { key: bool, left: u8 },
    Scalar,
}

/// Incremental parser of arguments.
#[derive(Clone, Debug)]
pub(crate) struct PartialJson {
    state: JsonState,
    expected_token: ExpectedToken,
    open_brackets: Vec<u8>,
    scalar: Vec<u8>,
}

impl PartialJson {
    /// Creates a parser before the first fragment.
    pub(crate) fn new() -> Self {
        Self {
            state: JsonState::Empty,
            expected_token: ExpectedToken::Value,
            open_brackets: Vec::new(),
            scalar: Vec::new(),
        }
    }

    /// Returns the state of the arguments so far.
    pub(crate) fn state(&self) -> JsonState {
        self.state
    }

    /// Parses the next fragment of the arguments, unescaped, and returns the new state.
    pub(crate) fn push(&mut self, fragment: &str) -> JsonState {
        for byte in fragment.bytes() {
            self.state = match (self.state, byte) {
                (JsonState::Empty | JsonState::Complete, b' ' | b'\n' | b'\r' | b'\t') => self.state,
                (JsonState::Empty, b'{') => {
                    self.open_brackets.push(b'{');
                    self.expected_token = ExpectedToken::FirstKeyOrEnd;
                    JsonState::Incomplete
                }
                (JsonState::Empty | JsonState::NonObject, _) if self.scalar.len() < 8 => {
                    self.scalar.push(byte);
                    JsonState::NonObject
                }
                (JsonState::Incomplete, _) => match self.accept_byte(byte) {
                    Some(()) if self.open_brackets.is_empty() => JsonState::Complete,
                    Some(()) => JsonState::Incomplete,
                    None => JsonState::Invalid,
                },
                _ => return self.set_invalid(),
            };
        }
        self.state
    }

    /// Returns true if the arguments of a call may end here: they are an object, empty, `null` or `""`.
    pub(crate) fn is_valid_end(&self) -> bool {
        match self.state {
            JsonState::Empty | JsonState::Complete => true,
            JsonState::NonObject => matches!(json::trim(&self.scalar), b"null" | b"\"\""),
            JsonState::Incomplete | JsonState::Invalid => false,
        }
    }

    /// Returns true if the text so far ends inside a number or a word such as `true`.
    pub(crate) fn is_in_scalar(&self) -> bool {
        self.state == JsonState::Incomplete && self.expected_token == ExpectedToken::Scalar
    }

    /// Returns true if [`PartialJson::with_closed_brackets`] turns the text so far into an object.
    pub(crate) fn can_close_brackets(&self) -> bool {
        self.state == JsonState::Complete
            || self.state == JsonState::Incomplete
                && match self.expected_token {
                    ExpectedToken::String { key } => !key,
                    ExpectedToken::Scalar => json::value_end(&self.scalar, 0) == Some(self.scalar.len()),
                    // A value may be missing after a comma in an array, but not after a key.
                    ExpectedToken::Value => self.open_brackets.last() == Some(&b'['),
                    ExpectedToken::Key
                    | ExpectedToken::FirstKeyOrEnd
                    | ExpectedToken::FirstValueOrEnd
                    | ExpectedToken::CommaOrEnd => true,
                    ExpectedToken::Colon | ExpectedToken::Escape { .. } | ExpectedToken::Hex { .. } => false,
                }
    }

    /// Returns `beginning`, which must be the text parsed so far, with its open string and brackets closed.
    pub(crate) fn with_closed_brackets(&self, beginning: &str) -> String {
        let mut whole = match self.expected_token {
            ExpectedToken::String { .. } => format!("{beginning}\""),
            _ => beginning.trim_end().trim_end_matches(',').to_owned(),
        };
        whole.extend(self.open_brackets.iter().rev().map(|open| if *open == b'{' { '}' } else { ']' }));
        whole
    }

    fn set_invalid(&mut self) -> JsonState {
        self.state = JsonState::Invalid;
        JsonState::Invalid
    }

    fn accept_byte(&mut self, byte: u8) -> Option<()> {
        match self.expected_token {
            ExpectedToken::String { key } => match byte {
                b'"' => {
                    self.expected_token = if key { ExpectedToken::Colon } else { ExpectedToken::CommaOrEnd }
                }
                b'\\' => self.expected_token = ExpectedToken::Escape { key },
                0..=0x1f => return None,
                _ => {}
            },
            ExpectedToken::Escape { key } => match byte {
                b'u' => self.expected_token = ExpectedToken::Hex { key, left: 4 },
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                    self.expected_token = ExpectedToken::String { key }
                }
                _ => return None,
            },
            ExpectedToken::Hex { key, left } => {
                if !byte.is_ascii_hexdigit() {
                    return None;
                }
                self.expected_token = if left == 1 {
                    ExpectedToken::String { key }
                } else {
                    ExpectedToken::Hex { key, left: left - 1 }
                };
            }
            ExpectedToken::Scalar => match byte {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => {
                    let whole = json::value_end(&self.scalar, 0) == Some(self.scalar.len());
                    self.scalar.clear();
                    self.expected_token = ExpectedToken::CommaOrEnd;
                    return if whole { self.accept_byte(byte) } else { None };
                }
                _ if self.scalar.len() < MAX_SCALAR_BYTES => self.scalar.push(byte),
                _ => return None,
            },
            _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => {}
            ExpectedToken::FirstKeyOrEnd if byte == b'}' => return self.close_bracket(b'{'),
            ExpectedToken::FirstKeyOrEnd | ExpectedToken::Key => match byte {
                b'"' => self.expected_token = ExpectedToken::String { key: true },
                _ => return None,
            },
            ExpectedToken::Colon => match byte {
                b':' => self.expected_token = ExpectedToken::Value,
                _ => return None,
            },
            ExpectedToken::FirstValueOrEnd if byte == b']' => return self.close_bracket(b'['),
            ExpectedToken::FirstValueOrEnd | ExpectedToken::Value => return self.begin_value(byte),
            ExpectedToken::CommaOrEnd => match (byte, self.open_brackets.last()) {
                (b',', Some(b'{')) => self.expected_token = ExpectedToken::Key,
                (b',', Some(b'[')) => self.expected_token = ExpectedToken::Value,
                (b'}', _) => return self.close_bracket(b'{'),
                (b']', _) => return self.close_bracket(b'['),
                _ => return None,
            },
        }
        Some(())
    }

    fn begin_value(&mut self, byte: u8) -> Option<()> {
        self.expected_token = match byte {
            b'"' => ExpectedToken::String { key: false },
            b'{' | b'[' if self.open_brackets.len() >= MAX_DEPTH => return None,
            b'{' => ExpectedToken::FirstKeyOrEnd,
            b'[' => ExpectedToken::FirstValueOrEnd,
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => ExpectedToken::Scalar,
            _ => return None,
        };
        match byte {
            b'{' | b'[' => self.open_brackets.push(byte),
            b'"' => {}
            _ => self.scalar.push(byte),
        }
        Some(())
    }

    fn close_bracket(&mut self, opened: u8) -> Option<()> {
        self.expected_token = ExpectedToken::CommaOrEnd;
        (self.open_brackets.pop() == Some(opened)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state_of(text: &str) -> JsonState {
        PartialJson::new().push(text)
    }

    #[test]
    fn complete_incomplete_and_invalid_objects_are_distinguished() {
        for whole in ["{}", " { } ", r#"{"a":[1,-2.5e3,true,null,{"b":"\"}\u00e4"}]}"#] {
            assert_eq!(state_of(whole), JsonState::Complete, "{whole}");
        }
        for begun in ["{", r#"{"a"#, r#"{"a":"#, r#"{"a":1"#, r#"{"a":[1,"#, r#"{"a":"x\"#] {
            assert_eq!(state_of(begun), JsonState::Incomplete, "{begun}");
        }
        for invalid in [
            "{}{}",
            r#"{"a":1,}"#,
            "{a:1}",
            r#"{"a":01}"#,
            "{]",
            r#"{"a":tru}"#,
            r#"{"a" 1}"#,
            "[1,2,3,4,5,6]",
        ] {
            assert_eq!(state_of(invalid), JsonState::Invalid, "{invalid}");
        }
        assert_eq!(state_of("  "), JsonState::Empty);
    }

    #[test]
    fn null_and_an_empty_string_count_as_no_arguments() {
        for (text, fine) in
            [("null", true), ("\"\"", true), ("", true), ("nul", false), ("[]", false), ("{", false)]
        {
            let mut arguments = PartialJson::new();
            arguments.push(text);
            assert_eq!(arguments.is_valid_end(), fine, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_parser_on_any_text_however_cut(text in r#"\{[ {}\[\],:"\\a1.eutrnl-]{0,14}"#, cut in 0usize..14) {
            let parsed = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let mut arguments = PartialJson::new();
            let cut = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let (first, second) = text.split_at(cut);
            arguments.push(first);
            arguments.push(second);
            // The JSON parser also rejects lone surrogates and numbers out of range, which the incremental check may
            // accept.
            prop_assert!(!parsed || arguments.state() == JsonState::Complete);
            prop_assert!(parsed || arguments.state() != JsonState::Complete || text.contains('e') || text.contains("\\u"));
        }

        #[test]
        fn every_prefix_of_an_object_is_a_beginning(words in proptest::collection::vec("\\PC{0,6}", 0..5)) {
            let map: serde_json::Map<_, _> = words.iter().map(|word| (word.clone(), serde_json::json!([word, 1.5, {"k": null}]))).collect();
            let text = serde_json::Value::Object(map).to_string();
            let mut arguments = PartialJson::new();
            for letter in text.chars() {
                prop_assert!(matches!(arguments.state(), JsonState::Empty | JsonState::Incomplete));
                arguments.push(letter.encode_utf8(&mut [0; 4]));
            }
            prop_assert_eq!(arguments.state(), JsonState::Complete);
        }
    }
}
