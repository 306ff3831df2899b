//! Reader of an error that a server wrote in the notation of Python, such as
//! `[{'type': 'missing', 'loc': ('body', 'model'), 'msg': 'Field required'}]`.

use super::request_echo::QUOTES;
use serde_json::Value;

/// Returns the message of the first error in a text, and its location as a JSON array (null without a location).
/// `None` if the text has no message in this notation.
pub(super) fn parse_python_error(text: &str) -> Option<(String, Value)> {
    let (before, rest) = ["'message': ", "'msg': "].iter().find_map(|key| text.split_once(key))?;
    let message = parse_string(rest)?;
    let location = before.rsplit_once("'loc': ").and_then(|(_, steps)| parse_location(steps));
    Some((message, location.unwrap_or_default()))
}

/// Returns the string literal at the start of a text; `None` if there is none, or if it does not end.
fn parse_string(text: &str) -> Option<String> {
    let mut letters = text.chars();
    let quote = letters.next().filter(|letter| matches!(letter, '\'' | '"'))?;
    let mut out = String::new();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                'n' | 'r' | 't' => out.push(' '),
                escaped => out.push(escaped),
            },
            _ if letter == quote => return Some(out),
            _ => out.push(letter),
        }
    }
    None
}

/// Returns the elements of the tuple or list at the start of a text; `None` if an element is no name and no index.
fn parse_location(text: &str) -> Option<Value> {
    let inside = text.strip_prefix(['(', '['])?.split([')', ']']).next()?;
    let steps = inside.split(',').map(str::trim).filter(|step| !step.is_empty());
    let parsed = steps.map(|step| match step.strip_prefix(QUOTES) {
        Some(name) => name.strip_suffix(QUOTES).map(Value::from),
        None => step.parse::<u64>().ok().map(Value::from),
    });
    parsed.collect::<Option<Vec<Value>>>().map(Value::Array)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn message_and_location_are_read() {
        for (text, message, location) in [
            (
                "[{'type': 'missing', 'loc': ('body', 'messages', 0, 'role'), 'msg': 'Field required', 'input': {}}]",
                "Field required",
                json!(["body", "messages", 0, "role"]),
            ),
            ("{'loc': ('body',), 'msg': \"Input should be 'a'\"}", "Input should be 'a'", json!(["body"])),
            (r"{'message': 'It\'s bad\nhere', 'code': 400}", "It's bad here", Value::Null),
            ("{'loc': (f(x), 1), 'msg': 'Bad'}", "Bad", Value::Null),
        ] {
            assert_eq!(parse_python_error(text), Some((message.to_owned(), location)), "{text}");
        }
        for text in ["", "{'msg': 'open", "{'msg': 5}", r"{'msg': 'a\", "{'loc': ('a',)}"] {
            assert_eq!(parse_python_error(text), None, "{text}");
        }
    }
}
