//! Incremental check of a tool call's arguments: a complete JSON object, the start of one, or something else.
//!
//! It is used to order interleaved parallel calls (the next block may open when the previous one is complete), to
//! separate calls that an engine does not mark, and to report JSON that no client can parse as an error. Only the open
//! brackets and the current number or word are stored.

use penstock_wire::json;

/// Maximum depth of arguments; deeper ones are invalid.
const DEPTH: usize = 512;
/// Maximum bytes of a number or word; longer ones are invalid.
pub(crate) const TOKEN: usize = 512;

/// State of the arguments so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// White space only: a call without arguments.
    Empty,
    /// Start of a JSON object.
    Open,
    /// Complete JSON object.
    Whole,
    /// Text that is no object so far; [`Arguments::end`] accepts `null` and `""`.
    Odd,
    /// Text that cannot become a JSON object.
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    FirstKeyOrEnd,
    Key,
    Colon,
    FirstValueOrEnd,
    Value,
    CommaOrEnd,
    String { key: bool },
    Escape { key: bool },
    Hex { key: bool, left: u8 },
    Token,
}

/// Incremental parser of arguments.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    state: State,
    expect: Expect,
    nest: Vec<u8>,
    token: Vec<u8>,
}

impl Arguments {
    /// Creates a parser before the first fragment.
    pub(crate) fn new() -> Self {
        Self { state: State::Empty, expect: Expect::Value, nest: Vec::new(), token: Vec::new() }
    }

    /// Returns the state of the arguments so far.
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Parses an unescaped fragment.
    pub(crate) fn push(&mut self, fragment: &str) -> State {
        for byte in fragment.bytes() {
            self.state = match (self.state, byte) {
                (State::Empty | State::Whole, b' ' | b'\n' | b'\r' | b'\t') => self.state,
                (State::Empty, b'{') => {
                    self.nest.push(b'{');
                    self.expect = Expect::FirstKeyOrEnd;
                    State::Open
                }
                (State::Empty | State::Odd, _) if self.token.len() < 8 => {
                    self.token.push(byte);
                    State::Odd
                }
                (State::Open, _) => match self.step(byte) {
                    Some(()) if self.nest.is_empty() => State::Whole,
                    Some(()) => State::Open,
                    None => State::Invalid,
                },
                _ => return self.invalid(),
            };
        }
        self.state
    }

    /// Returns true if the arguments are valid at the end of an answer that was not truncated.
    pub(crate) fn end(&self) -> bool {
        match self.state {
            State::Empty | State::Whole => true,
            State::Odd => matches!(json::trim(&self.token), b"null" | b"\"\""),
            State::Open | State::Invalid => false,
        }
    }

    /// Returns true inside a number or a word.
    pub(crate) fn is_in_token(&self) -> bool {
        self.state == State::Open && self.expect == Expect::Token
    }

    /// Returns true if [`Arguments::closed`] turns this prefix into an object.
    pub(crate) fn may_close(&self) -> bool {
        self.state == State::Whole
            || self.state == State::Open
                && match self.expect {
                    Expect::String { key } => !key,
                    Expect::Token => json::value_end(&self.token, 0) == Some(self.token.len()),
                    // After a comma, and not after a key.
                    Expect::Value => self.nest.last() == Some(&b'['),
                    Expect::Key | Expect::FirstKeyOrEnd | Expect::FirstValueOrEnd | Expect::CommaOrEnd => {
                        true
                    }
                    Expect::Colon | Expect::Escape { .. } | Expect::Hex { .. } => false,
                }
    }

    /// Returns `beginning`, the text parsed so far, with its open string and brackets closed.
    pub(crate) fn closed(&self, beginning: &str) -> String {
        let mut whole = match self.expect {
            Expect::String { .. } => format!("{beginning}\""),
            _ => beginning.trim_end().trim_end_matches(',').to_owned(),
        };
        whole.extend(self.nest.iter().rev().map(|open| if *open == b'{' { '}' } else { ']' }));
        whole
    }

    fn invalid(&mut self) -> State {
        self.state = State::Invalid;
        State::Invalid
    }

    fn step(&mut self, byte: u8) -> Option<()> {
        match self.expect {
            Expect::String { key } => match byte {
                b'"' => self.expect = if key { Expect::Colon } else { Expect::CommaOrEnd },
                b'\\' => self.expect = Expect::Escape { key },
                0..=0x1f => return None,
                _ => {}
            },
            Expect::Escape { key } => match byte {
                b'u' => self.expect = Expect::Hex { key, left: 4 },
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {
                    self.expect = Expect::String { key }
                }
                _ => return None,
            },
            Expect::Hex { key, left } => {
                if !byte.is_ascii_hexdigit() {
                    return None;
                }
                self.expect =
                    if left == 1 { Expect::String { key } } else { Expect::Hex { key, left: left - 1 } };
            }
            Expect::Token => match byte {
                b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' => {
                    let whole = json::value_end(&self.token, 0) == Some(self.token.len());
                    self.token.clear();
                    self.expect = Expect::CommaOrEnd;
                    return if whole { self.step(byte) } else { None };
                }
                _ if self.token.len() < TOKEN => self.token.push(byte),
                _ => return None,
            },
            _ if matches!(byte, b' ' | b'\n' | b'\r' | b'\t') => {}
            Expect::FirstKeyOrEnd if byte == b'}' => return self.close(b'{'),
            Expect::FirstKeyOrEnd | Expect::Key => match byte {
                b'"' => self.expect = Expect::String { key: true },
                _ => return None,
            },
            Expect::Colon => match byte {
                b':' => self.expect = Expect::Value,
                _ => return None,
            },
            Expect::FirstValueOrEnd if byte == b']' => return self.close(b'['),
            Expect::FirstValueOrEnd | Expect::Value => return self.value(byte),
            Expect::CommaOrEnd => match (byte, self.nest.last()) {
                (b',', Some(b'{')) => self.expect = Expect::Key,
                (b',', Some(b'[')) => self.expect = Expect::Value,
                (b'}', _) => return self.close(b'{'),
                (b']', _) => return self.close(b'['),
                _ => return None,
            },
        }
        Some(())
    }

    fn value(&mut self, byte: u8) -> Option<()> {
        self.expect = match byte {
            b'"' => Expect::String { key: false },
            b'{' | b'[' if self.nest.len() >= DEPTH => return None,
            b'{' => Expect::FirstKeyOrEnd,
            b'[' => Expect::FirstValueOrEnd,
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => Expect::Token,
            _ => return None,
        };
        match byte {
            b'{' | b'[' => self.nest.push(byte),
            b'"' => {}
            _ => self.token.push(byte),
        }
        Some(())
    }

    fn close(&mut self, opened: u8) -> Option<()> {
        self.expect = Expect::CommaOrEnd;
        (self.nest.pop() == Some(opened)).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn state_of(text: &str) -> State {
        Arguments::new().push(text)
    }

    #[test]
    fn whole_begun_and_invalid_objects_are_told_apart() {
        for whole in ["{}", " { } ", r#"{"a":[1,-2.5e3,true,null,{"b":"\"}\u00e4"}]}"#] {
            assert_eq!(state_of(whole), State::Whole, "{whole}");
        }
        for begun in ["{", r#"{"a"#, r#"{"a":"#, r#"{"a":1"#, r#"{"a":[1,"#, r#"{"a":"x\"#] {
            assert_eq!(state_of(begun), State::Open, "{begun}");
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
            assert_eq!(state_of(invalid), State::Invalid, "{invalid}");
        }
        assert_eq!(state_of("  "), State::Empty);
    }

    #[test]
    fn null_and_an_empty_string_count_as_no_arguments() {
        for (text, fine) in
            [("null", true), ("\"\"", true), ("", true), ("nul", false), ("[]", false), ("{", false)]
        {
            let mut arguments = Arguments::new();
            arguments.push(text);
            assert_eq!(arguments.end(), fine, "{text}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_a_parser_on_any_text_however_cut(text in r#"\{[ {}\[\],:"\\a1.eutrnl-]{0,14}"#, cut in 0usize..14) {
            let parsed = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let mut arguments = Arguments::new();
            let cut = (0..=cut.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let (first, second) = text.split_at(cut);
            arguments.push(first);
            arguments.push(second);
            // The parser also rejects lone surrogates and numbers out of range; this check need not.
            prop_assert!(!parsed || arguments.state() == State::Whole);
            prop_assert!(parsed || arguments.state() != State::Whole || text.contains('e') || text.contains("\\u"));
        }

        #[test]
        fn every_prefix_of_an_object_is_a_beginning(words in proptest::collection::vec("\\PC{0,6}", 0..5)) {
            let map: serde_json::Map<_, _> = words.iter().map(|word| (word.clone(), serde_json::json!([word, 1.5, {"k": null}]))).collect();
            let text = serde_json::Value::Object(map).to_string();
            let mut arguments = Arguments::new();
            for letter in text.chars() {
                prop_assert!(matches!(arguments.state(), State::Empty | State::Open));
                arguments.push(letter.encode_utf8(&mut [0; 4]));
            }
            prop_assert_eq!(arguments.state(), State::Whole);
        }
    }
}
