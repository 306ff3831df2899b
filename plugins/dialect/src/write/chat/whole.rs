//! Writer of a buffered completion.

use super::parts::{self, finish_word, number, usage_object};
use crate::answer::{Answer, Candidate};
use crate::event::Text;
use crate::scan;
use crate::write::Face;
use bytes::Bytes;
use penstock_contract::{Choices, Done, Finish, Whole};

/// Returns the body of a completion, with usage if the answer has it.
#[must_use]
pub fn whole(answer: &Answer, face: &Face, choices: Choices) -> Vec<Bytes> {
    let mut out = Vec::with_capacity(512 + answer.output_bytes() * 9 / 8);
    out.push(b'{');
    parts::face(&mut out, face, "chat.completion");
    out.extend_from_slice(b",\"choices\":[");
    let first = match choices {
        Choices::All => 0,
        Choices::One(index) => index.into(),
    };
    for (index, candidate) in (first..).zip(&answer.candidates) {
        if index > first {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"index\":");
        number(index, &mut out);
        out.extend_from_slice(b",\"message\":");
        message(candidate, &mut out);
        out.extend_from_slice(b",\"logprobs\":");
        logprobs(&candidate.logprobs, &mut out);
        out.extend_from_slice(b",\"finish_reason\":\"");
        out.extend_from_slice(finish_word(candidate.finish.unwrap_or(Finish::Stop)));
        out.extend_from_slice(b"\"}");
    }
    out.push(b']');
    if let Some(usage) = &answer.usage {
        out.extend_from_slice(b",\"usage\":");
        usage_object(&mut out, usage);
    }
    out.push(b'}');
    vec![Bytes::from(out)]
}

/// Returns the completion with the metadata that the gateway needs.
#[must_use]
pub fn plain(answer: &Answer, face: &Face, choices: Choices) -> Whole {
    Whole {
        body: whole(answer, face, choices),
        done: answer.usage.map(Done::Tokens),
        measured: answer.measured,
        finish: answer.candidates.first().and_then(|first| first.finish).unwrap_or(Finish::Stop),
        output_bytes: answer.output_bytes(),
        pictures: Vec::new(),
        noticed: answer.noticed,
    }
}

/// Writes log probabilities as one object: those of a stream arrive token by token.
fn logprobs(pieces: &[Bytes], out: &mut Vec<u8>) {
    match pieces {
        [] => return out.extend_from_slice(b"null"),
        [only] => return out.extend_from_slice(only),
        _ => {}
    }
    let lists = |name: &'static str| {
        let lists = pieces.iter().filter_map(move |piece| scan::member(piece, name));
        lists.filter(|list| scan::is_array(list)).flat_map(scan::elements)
    };
    for (name, before) in [("content", "{\"content\":"), ("refusal", ",\"refusal\":")] {
        out.extend_from_slice(before.as_bytes());
        let mut bracket = b'[';
        for token in lists(name) {
            out.push(bracket);
            out.extend_from_slice(token);
            bracket = b',';
        }
        out.extend_from_slice(if bracket == b'[' { b"null" } else { b"]" });
    }
    out.push(b'}');
}

fn message(candidate: &Candidate, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"role\":\"assistant\",\"content\":");
    // Clients process the content without a check: it is null only if there are tool calls. With log probabilities the
    // text may be empty.
    if candidate.text.iter().all(Text::is_empty) && !candidate.tools.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        string(&candidate.text, out);
    }
    out.extend_from_slice(b",\"refusal\":");
    if candidate.refusal.is_empty() {
        out.extend_from_slice(b"null");
    } else {
        string(&candidate.refusal, out);
    }
    if !candidate.reasoning.is_empty() {
        out.extend_from_slice(b",\"reasoning_content\":");
        string(&candidate.reasoning, out);
    }
    if !candidate.tools.is_empty() {
        out.extend_from_slice(b",\"tool_calls\":[");
        for (at, call) in candidate.tools.iter().enumerate() {
            let comma: &[u8] = if at > 0 { b"," } else { b"" };
            out.extend_from_slice(comma);
            out.extend_from_slice(b"{\"id\":\"");
            out.extend_from_slice(call.id.escaped());
            out.extend_from_slice(b"\",\"type\":\"function\",\"function\":{\"name\":\"");
            out.extend_from_slice(call.name.escaped());
            out.extend_from_slice(b"\",\"arguments\":");
            if call.arguments.is_empty() && candidate.finish == Some(Finish::ToolCalls) {
                out.extend_from_slice(b"\"{}\"");
            } else {
                string(&call.arguments, out);
            }
            out.extend_from_slice(b"}}");
        }
        out.push(b']');
    }
    out.push(b'}');
}

fn string(pieces: &[Text], out: &mut Vec<u8>) {
    out.push(b'"');
    pieces.iter().for_each(|piece| out.extend_from_slice(piece.escaped()));
    out.push(b'"');
}
