//! Input of a custom tool, extracted from the arguments of a function call while they arrive.
//!
//! The provider writes `{"input":"…"}`. The body of that string can be written into an event unchanged, except for
//! escapes that are cut or invalid. If the model ignored the schema, so that the arguments are not such an object, all
//! of them are the input.

use penstock_json_scan::json;

/// Maximum bytes of the start of the arguments, up to the opening quote of the input. If the start is longer, the whole
/// arguments are the input.
const MAX_START_BYTES: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InputState {
    /// State before the opening quote of the input.
    Start,
    /// State inside the string that contains the input.
    Inside,
    /// State after the end of the string: the remaining bytes have no content.
    After,
    /// State inside arguments that are not an object with a string as its first member: all of them are the input.
    Raw,
}

/// Incremental reader that extracts a custom tool's input from function arguments.
#[derive(Debug)]
pub(super) struct CustomInputReader {
    state: InputState,
    /// Text that cannot be interpreted yet: the start of the arguments, or an incomplete escape.
    pending: String,
}

impl CustomInputReader {
    pub(super) const fn new() -> Self {
        Self { state: InputState::Start, pending: String::new() }
    }

    /// Reads unescaped arguments and appends the input as the body of a JSON string.
    pub(super) fn push(&mut self, arguments: &str, out: &mut Vec<u8>) {
        match self.state {
            InputState::Start => {
                self.pending.push_str(arguments);
                match opening_quote(&self.pending) {
                    StartMatch::Partial if self.pending.len() <= MAX_START_BYTES => {}
                    StartMatch::Found(at) => {
                        self.state = InputState::Inside;
                        let text = self.pending.split_off(at);
                        self.pending.clear();
                        self.push_inside(&text, out);
                    }
                    StartMatch::Empty => {
                        self.state = InputState::After;
                        self.pending.clear();
                    }
                    StartMatch::Partial | StartMatch::Other => {
                        self.state = InputState::Raw;
                        json::write_escaped(out, &std::mem::take(&mut self.pending));
                    }
                }
            }
            InputState::Inside => {
                let text = std::mem::take(&mut self.pending) + arguments;
                self.push_inside(&text, out);
            }
            InputState::After => {}
            InputState::Raw => json::write_escaped(out, arguments),
        }
    }

    /// Ends the arguments. Appends the pending start of the arguments as input, unless it is empty or only `{`. An
    /// incomplete escape is dropped.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let pending = std::mem::take(&mut self.pending);
        if self.state == InputState::Start && !matches!(pending.trim(), "" | "{") {
            json::write_escaped(out, &pending);
        }
        self.state = InputState::After;
    }

    /// Returns true if no further input can follow.
    pub(super) fn is_complete(&self) -> bool {
        self.state == InputState::After
    }

    /// Returns the number of bytes of text that cannot be interpreted yet.
    pub(super) const fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Appends the contents of the JSON string up to its closing quote, or up to an escape that is incomplete at the
    /// end of `text`.
    fn push_inside(&mut self, text: &str, out: &mut Vec<u8>) {
        let mut rest = text;
        while let Some(special) = rest.find(|letter: char| matches!(letter, '"' | '\\') || letter < ' ') {
            let (plain, after) = rest.split_at(special);
            out.extend_from_slice(plain.as_bytes());
            match after.as_bytes().first() {
                Some(b'"') => {
                    self.state = InputState::After;
                    return;
                }
                Some(b'\\') => match escape_length(after) {
                    Some(length) => {
                        let (escape, more) = after.split_at(length);
                        write_escape(escape, out);
                        rest = more;
                    }
                    None => {
                        self.pending.push_str(after);
                        return;
                    }
                },
                _ => {
                    // A control character that the model did not escape is escaped.
                    let (control, more) = after.split_at(1);
                    json::write_escaped(out, control);
                    rest = more;
                }
            }
        }
        out.extend_from_slice(rest.as_bytes());
    }
}

enum StartMatch {
    /// Position after the opening quote of the input.
    Found(usize),
    /// Text that may become a match when more of it arrives.
    Partial,
    /// Object without members.
    Empty,
    /// Text that cannot become a match.
    Other,
}

/// Finds the opening quote of the string value of the first member: `{ "name" : "`. The name is not compared, because
/// the schema has only one member.
fn opening_quote(text: &str) -> StartMatch {
    let bytes = text.as_bytes();
    let skip = |at: usize, expected: u8| {
        let at = json::skip_space(bytes, at);
        match bytes.get(at) {
            None => Err(StartMatch::Partial),
            Some(found) if *found == expected => Ok(at + 1),
            Some(b'}') if expected == b'"' && !text.contains(':') => Err(StartMatch::Empty),
            Some(_) => Err(StartMatch::Other),
        }
    };
    let find = || {
        let name = skip(skip(0, b'{')?, b'"')? - 1;
        let after_name = json::string_end(bytes, name).ok_or(StartMatch::Partial)?;
        skip(skip(after_name, b':')?, b'"')
    };
    find().map_or_else(|other| other, StartMatch::Found)
}

/// Returns the length of the escape at the start of `text`, with the second half of a surrogate pair; `None` if it is
/// cut.
fn escape_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    if *bytes.get(1)? != b'u' {
        return Some(1 + text.get(1..)?.chars().next()?.len_utf8());
    }
    // Returns the code unit of a `\u` escape: `None` if the escape is incomplete, `Some(None)` if it has no four
    // hexadecimal digits.
    let unit = |at: usize| -> Option<Option<u16>> {
        let digits = bytes.get(at + 2..)?;
        let digits = digits.get(..4).unwrap_or(digits);
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Some(None);
        }
        let unit = std::str::from_utf8(digits).ok().and_then(|digits| u16::from_str_radix(digits, 16).ok());
        (digits.len() == 4).then_some(unit)
    };
    match unit(0)? {
        Some(0xD800..=0xDBFF) => match (bytes.get(6), bytes.get(7)) {
            (None, _) | (Some(b'\\'), None) => None,
            (Some(b'\\'), Some(b'u')) => {
                unit(6).map(|low| if matches!(low, Some(0xDC00..=0xDFFF)) { 12 } else { 6 })
            }
            _ => Some(6),
        },
        Some(_) => Some(6),
        None => Some(2),
    }
}

/// Writes an escape unchanged if it is valid, U+FFFD for a lone surrogate, and otherwise the character after the
/// backslash.
fn write_escape(escape: &str, out: &mut Vec<u8>) {
    match json::unescape(escape.as_bytes()) {
        Some(_) if json::classify_string(escape.as_bytes()) != json::StringClass::Invalid => {
            out.extend_from_slice(escape.as_bytes());
        }
        _ if escape.len() == 6 => out.extend_from_slice("\u{FFFD}".as_bytes()),
        _ => json::write_escaped(out, escape.get(1..).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the input of complete arguments, and asserts that each split gives the same result.
    fn input_of(arguments: &str) -> String {
        let read = |pieces: &[&str]| {
            let (mut input, mut out) = (CustomInputReader::new(), Vec::new());
            for piece in pieces {
                input.push(piece, &mut out);
            }
            input.finish(&mut out);
            String::from_utf8(out).unwrap_or_default()
        };
        let whole = read(&[arguments]);
        for at in (1..arguments.len()).filter(|at| arguments.is_char_boundary(*at)) {
            let (first, second) = arguments.split_at(at);
            assert_eq!(read(&[first, second]), whole, "split at {at} of {arguments}");
        }
        let letters: Vec<String> = arguments.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(read(&letters), whole, "letter by letter: {arguments}");
        assert_ne!(json::classify_string(whole.as_bytes()), json::StringClass::Invalid, "{whole}");
        whole
    }

    #[test]
    fn the_string_of_the_only_member_is_the_input() {
        assert_eq!(input_of(r#"{"input":"a\nb \"c\" \\ \u00e9 é"}"#), r#"a\nb \"c\" \\ \u00e9 é"#);
        assert_eq!(input_of(" { \"input\" :\n \"x\" } "), "x");
        assert_eq!(input_of(r#"{"patch":"x"}"#), "x");
        assert_eq!(input_of(r#"{"input":""}"#), "");
        assert_eq!(input_of(r#"{"in\"put":"x"}"#), "x");
        assert_eq!(input_of(r#"{"input":"\ud83d\ude00"}"#), r"\ud83d\ude00");
    }

    #[test]
    fn truncated_arguments_give_the_input_so_far() {
        assert_eq!(input_of(r#"{"input":"abc"#), "abc");
        assert_eq!(input_of(r#"{"input":"abc\"#), "abc");
        assert_eq!(input_of(r#"{"input":"abc\u00"#), "abc");
        assert_eq!(input_of(""), "");
        assert_eq!(input_of("{}"), "");
    }

    #[test]
    fn invalid_escapes_become_valid() {
        assert_eq!(input_of(r#"{"input":"\d+ \ud83d \udc00 \uzz00"}"#), "d+ \u{FFFD} \u{FFFD} uzz00");
        assert_eq!(input_of("{\"input\":\"a\nb\u{1}\"}"), r"a\nb\u0001");
    }

    #[test]
    fn arguments_of_another_form_are_the_input() {
        assert_eq!(input_of("*** Begin \"Patch\"\n"), r#"*** Begin \"Patch\"\n"#);
        assert_eq!(input_of(r#"{"input":5}"#), r#"{\"input\":5}"#);
        assert_eq!(input_of("[1]"), "[1]");
        let long = format!("{{\"{}", "x".repeat(2 * MAX_START_BYTES));
        assert_eq!(input_of(&long), long.replace('"', "\\\""));
    }
}
