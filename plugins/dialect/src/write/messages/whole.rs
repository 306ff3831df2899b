//! Writer of a buffered message.

use super::block::signature;
use super::manner::{self, Manner};
use crate::answer::{Answer, Candidate, ToolCall};
use crate::arguments::{Arguments, State, TOKEN};
use crate::event::Text;
use crate::messages_chat::ids::{FNV_START, fnv1a_more};
use bytes::Bytes;
use penstock_contract::{Ask, Done, Fault, FaultKind, Finish, Target, Thinking, Whole};
use penstock_wire::json;

/// Member for arguments that are no JSON object, as the vendor of the dialect advises.
const INVALID: &str = "INVALID_JSON";

/// Decodes a provider's buffered answer and writes it in the messages dialect.
///
/// # Errors
/// Returns the error of an answer that cannot be decoded. Tool arguments that are no JSON object are model output: they
/// are passed on as text, in an object with [`INVALID`] as its only member.
pub(crate) fn whole(ask: &Ask, target: &Target<'_>, body: Bytes) -> Result<Whole, Fault> {
    let answer = Answer::read(ask, target, body)?;
    let manner = Manner::of(ask, target);
    let candidate = answer.candidates.first().ok_or(Fault::new(FaultKind::Malformed))?;
    let finish = candidate.finish.unwrap_or(Finish::Stop);
    let mut out = Vec::with_capacity(512 + answer.output_bytes());
    out.push(b'{');
    manner.face(&mut out);
    out.extend_from_slice(br#","content":["#);
    content(&manner, candidate, finish, &mut out);
    out.extend_from_slice(b"],");
    manner::stop_members(finish, candidate.stop_sequence.as_ref(), !candidate.tools.is_empty(), &mut out);
    out.extend_from_slice(br#","usage":"#);
    manner::usage(&answer.usage.unwrap_or_default(), &mut out);
    out.push(b'}');
    let output_bytes = answer.output_bytes();
    Ok(Whole {
        body: vec![Bytes::from(out)],
        done: answer.usage.map(Done::Tokens),
        measured: answer.measured,
        finish,
        output_bytes,
        pictures: Vec::new(),
        noticed: answer.noticed,
    })
}

fn content(manner: &Manner, candidate: &Candidate, finish: Finish, out: &mut Vec<u8>) {
    let start = out.len();
    if manner.thinking != Thinking::Off && candidate.reasoning.iter().any(|text| !text.is_empty()) {
        let hash = candidate.reasoning.iter().fold(FNV_START, |hash, text| fnv1a_more(hash, text.escaped()));
        out.extend_from_slice(br#"{"type":"thinking","thinking":""#);
        if manner.thinking == Thinking::Shown {
            candidate.reasoning.iter().for_each(|text| out.extend_from_slice(text.escaped()));
        }
        out.extend_from_slice(br#"","signature":""#);
        out.extend_from_slice(signature(candidate.signature.as_ref(), hash).escaped());
        out.extend_from_slice(br#""},"#);
    }
    let said: Vec<&Text> =
        candidate.text.iter().chain(&candidate.refusal).filter(|text| !text.is_empty()).collect();
    // Quickstarts read `content[0].text`: an answer without blocks has an empty one.
    if !said.is_empty() || (out.len() == start && candidate.tools.is_empty()) {
        out.extend_from_slice(br#"{"type":"text","text":""#);
        said.iter().for_each(|text| out.extend_from_slice(text.escaped()));
        out.extend_from_slice(br#""},"#);
    }
    for call in &candidate.tools {
        tool_use(manner, call, finish, out);
        out.push(b',');
    }
    out.pop();
}

fn tool_use(manner: &Manner, call: &ToolCall, finish: Finish, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"type":"tool_use","id":""#);
    out.extend_from_slice(call.id.escaped());
    out.extend_from_slice(br#"","name":"#);
    json::write_str(out, manner.names.restore(&call.name.decoded()));
    out.extend_from_slice(br#","input":"#);
    let arguments: String = call.arguments.iter().map(Text::decoded).collect();
    let cut = matches!(finish, Finish::Length | Finish::Window | Finish::ContentFilter);
    match object(&arguments, cut) {
        Some(input) => out.extend_from_slice(input.as_bytes()),
        None => {
            out.push(b'{');
            json::write_str(out, INVALID);
            out.push(b':');
            json::write_str(out, &arguments);
            out.push(b'}');
        }
    }
    out.push(b'}');
}

/// Returns the arguments as a JSON object: unchanged if they are one, `{}` if empty, without a code fence or trailing
/// commas, and for a truncated answer the part that arrived.
fn object(arguments: &str, cut: bool) -> Option<String> {
    let mut watch = Arguments::new();
    match watch.push(arguments) {
        State::Whole => return Some(arguments.trim().to_owned()),
        State::Empty | State::Odd if watch.end() => return Some("{}".to_owned()),
        _ => {}
    }
    let bare = unfenced(arguments);
    let mended = without_trailing_commas(bare);
    if Arguments::new().push(&mended) == State::Whole {
        return Some(mended);
    }
    cut.then(|| partial(bare))
}

fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let Some(inside) = text.strip_prefix("```").and_then(|text| text.strip_suffix("```")) else {
        return text;
    };
    inside.strip_prefix("json").unwrap_or(inside).trim()
}

/// Removes commas before a closing bracket, outside strings.
fn without_trailing_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut inside, mut escaped) = (false, false);
    for letter in text.chars() {
        if !inside && matches!(letter, '}' | ']') {
            let kept = out.trim_end();
            if kept.ends_with(',') {
                out.truncate(kept.len() - 1);
            }
        }
        match letter {
            _ if escaped => escaped = false,
            '\\' if inside => escaped = true,
            '"' => inside = !inside,
            _ => {}
        }
        out.push(letter);
    }
    out
}

/// Returns the longest prefix of truncated JSON that can be closed into an object. It may be as long as an answer, so
/// it is read three times and not once for each possible position.
fn partial(text: &str) -> String {
    let sound = sound(text);
    let (mut watch, mut end) = (Arguments::new(), 0);
    for (at, letter) in sound.char_indices() {
        watch.push(letter.encode_utf8(&mut [0; 4]));
        // The token is parsed again at each digit, so this is checked only where no comma can follow it.
        let before = !watch.is_in_token() || sound.len() - at <= TOKEN;
        if before && watch.may_close() {
            end = at + letter.len_utf8();
        }
    }
    let Some(beginning) = sound.get(..end).filter(|beginning| !beginning.is_empty()) else {
        return "{}".to_owned();
    };
    let mut watch = Arguments::new();
    watch.push(beginning);
    watch.closed(beginning)
}

/// Returns the prefix before the first letter that makes it invalid.
fn sound(text: &str) -> &str {
    let mut watch = Arguments::new();
    let mut letters = text.char_indices();
    let wrong = letters.find(|(_, letter)| watch.push(letter.encode_utf8(&mut [0; 4])) == State::Invalid);
    wrong.map_or(text, |(at, _)| text.get(..at).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_become_an_object_where_they_are_one() {
        let whole = |text| object(text, false);
        assert_eq!(whole("").as_deref(), Some("{}"));
        assert_eq!(whole("null").as_deref(), Some("{}"));
        assert_eq!(whole(r#" {"b":1,"a":2} "#).as_deref(), Some(r#"{"b":1,"a":2}"#));
        assert_eq!(whole(r#"{"a":[1,2,],}"#).as_deref(), Some(r#"{"a":[1,2]}"#));
        assert_eq!(whole("```json\n{\"a\":\"x,}\"}\n```").as_deref(), Some(r#"{"a":"x,}"}"#));
        assert_eq!(whole(r#"{"a":"#), None);
        assert_eq!(whole("call me"), None);
    }

    #[test]
    fn cut_arguments_keep_what_is_there() {
        let cut = |text| object(text, true).unwrap_or_default();
        assert_eq!(cut(r#"{"path":"a.txt","text":"Hel"#), r#"{"path":"a.txt","text":"Hel"}"#);
        assert_eq!(cut(r#"{"path":"a.txt","te"#), r#"{"path":"a.txt"}"#);
        assert_eq!(cut(r#"{"list":[1,2,"#), r#"{"list":[1,2]}"#);
        assert_eq!(cut(r#"{"a":"x\"#), r#"{"a":"x"}"#);
        assert_eq!(cut("{"), "{}");
        assert_eq!(cut(""), "{}");
    }

    /// Returns the same result by trying every position.
    fn tried(text: &str) -> String {
        let mut best = "{}".to_owned();
        let (mut nest, mut inside, mut escaped) = (Vec::new(), false, false);
        for (at, letter) in text.char_indices() {
            match letter {
                _ if escaped => escaped = false,
                '\\' if inside => escaped = true,
                '"' => inside = !inside,
                '{' if !inside => nest.push('}'),
                '[' if !inside => nest.push(']'),
                '}' | ']' if !inside => {
                    nest.pop();
                }
                _ => {}
            }
            let start = text.get(..at + letter.len_utf8()).unwrap_or_default();
            let mut closed = match inside {
                true => format!("{start}\""),
                false => start.trim_end().trim_end_matches(',').to_owned(),
            };
            closed.extend(nest.iter().rev());
            if !escaped && Arguments::new().push(&closed) == State::Whole {
                best = closed;
            }
        }
        best
    }

    /// Removes white space between tokens.
    fn compact(json: &str) -> Vec<u8> {
        let mut out = Vec::new();
        crate::pieces::compact_into(json.as_bytes(), &mut out);
        out
    }

    #[test]
    fn cut_arguments_are_closed_where_trying_every_place_would_close_them() {
        const LETTERS: [char; 13] = ['{', '}', '[', ']', ',', ':', '"', '\\', 'u', ' ', '1', '.', '\u{a0}'];
        let mut tails = vec![String::new()];
        for length in 0..4 {
            let longest = tails.iter().filter(|tail| tail.chars().count() == length);
            let longer = longest.flat_map(|tail| LETTERS.map(|letter| format!("{tail}{letter}")));
            tails.extend(longer.collect::<Vec<_>>());
        }
        for start in ["", r#"{"a":"#, r#"{"a":[1,"#, r#"{"a":[{"b":"x"#, r#"{"a":null"#, r#"{"a":{"b":0}"#] {
            for tail in &tails {
                let text = format!("{start}{tail}");
                assert_eq!(compact(&partial(&text)), compact(&tried(&text)), "{text}");
            }
        }
    }

    #[test]
    fn long_cut_arguments_are_closed_at_once() {
        let numbers = |number: &str| {
            format!("{{\"a\":[{number}{}", format!(",{number}").repeat((1 << 20) / number.len()))
        };
        for number in ["1", &"2".repeat(TOKEN)] {
            let text = numbers(number);
            assert!(object(&text, true) == Some(format!("{text}]}}")));
            assert!(object(&format!("{text},-"), true) == Some(format!("{text}]}}")));
            assert!(object(&format!("{text},]:{text}"), true) == Some(format!("{text}]}}")));
        }
        let (open, close) = ("[".repeat(511), "]".repeat(511));
        let text = format!("{{\"a\":1,\"b\":{open}");
        assert_eq!(object(&(text.clone() + &"[".repeat(1 << 20)), true), Some(text + &close + "}"));
    }
}
