//! Repair of members in a native answer on which client libraries fail; all other bytes
//! of the provider stay unchanged.

use super::hidden::is_thought;
use crate::answer::{AnswerChoice, DecodedAnswer};
use crate::body_builder::{shared_slice, write_escaped_json};
use crate::decode::messages::{EventMembers, parse_stop_reason};
use crate::event::EscapedText;
use crate::json_cursor;
use crate::messages_chat::ids::{FNV_START, fnv1a_more};
use crate::response_constraints::ToolCallIds;
use crate::write::messages;
use bytes::Bytes;
use penstock_core::{AttemptTarget, FinishReason, ThinkingDisplay, TokenUsage, UsageSource};
use penstock_http_wire::json;
use std::borrow::Cow;
use std::ops::Range;

/// Stop reasons that clients know.
const REASONS: [&str; 7] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
];

/// Edits of a JSON document, which are applied together at the end.
pub(super) struct Mends<'a> {
    document: &'a Bytes,
    edits: Vec<(Range<usize>, Cow<'static, [u8]>)>,
}

impl<'a> Mends<'a> {
    pub(super) const fn of(document: &'a Bytes) -> Self {
        Self { document, edits: Vec::new() }
    }

    /// Returns the offset of `part` in the document.
    fn start(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.document.as_ptr() as usize)
    }

    pub(super) fn replace(&mut self, part: &[u8], with: impl Into<Cow<'static, [u8]>>) {
        let start = self.start(part);
        self.edits.push((start..start + part.len(), with.into()));
    }

    /// Sets member `name` of `object`, which has other members; `said` is the present value of the member.
    pub(super) fn say(&mut self, object: &[u8], name: &str, said: Option<&[u8]>, value: Vec<u8>) {
        if let Some(said) = said {
            return self.replace(said, value);
        }
        let end = self.start(object) + object.len().saturating_sub(1);
        let member = [br#",""#, name.as_bytes(), br#"":"#, &value].concat();
        self.edits.push((end..end, member.into()));
    }

    /// Removes items of a list, each with the comma after it, or with the one before it at the end of the list.
    fn leave_out(&mut self, items: impl Iterator<Item = (Range<usize>, bool)>) {
        let (mut kept, mut run, mut end) = (None, None, 0);
        for (item, gone) in items {
            if gone {
                run.get_or_insert(item.start);
                end = item.end;
            } else {
                self.edits.extend(run.take().map(|start| (start..item.start, Cow::default())));
                kept = Some(item.end);
            }
        }
        if let Some(start) = run {
            self.edits.push((kept.unwrap_or(start)..end, Cow::default()));
        }
    }

    /// Removes members of `object`.
    fn leave_out_members(&mut self, object: &[u8], gone: impl Fn(&[u8], &[u8]) -> bool) {
        let at = self.start(object);
        self.leave_out(json::members(object).map(|member| {
            let key = object.get(member.key.clone()).and_then(json_cursor::string_body).unwrap_or_default();
            let gone = gone(key, object.get(member.value.clone()).unwrap_or_default());
            (at + member.key.start..at + member.value.end, gone)
        }));
    }

    /// Removes elements of `array`.
    fn leave_out_elements(&mut self, array: &[u8], gone: impl Fn(&[u8]) -> bool) {
        let at = self.start(array);
        self.leave_out(json::elements(array).map(|element| {
            let gone = gone(array.get(element.clone()).unwrap_or_default());
            (at + element.start..at + element.end, gone)
        }));
    }

    /// Returns the edited document in slices.
    pub(super) fn done(mut self) -> Vec<Bytes> {
        self.edits.sort_by_key(|(range, _)| range.start);
        let mut slices = Vec::with_capacity(1 + 2 * self.edits.len());
        let mut at = 0;
        for (range, with) in self.edits {
            if range.start < at || range.end > self.document.len() {
                continue;
            }
            slices.extend([self.document.slice(at..range.start), Bytes::from(with.into_owned())]);
            at = range.end;
        }
        slices.push(self.document.slice(at..));
        slices.retain(|slice| !slice.is_empty());
        slices
    }
}

fn quoted(text: &str) -> Vec<u8> {
    [b"\"", EscapedText::new(text).escaped(), b"\""].concat()
}

/// Repairs a buffered message and removes thinking that was not requested; `None` if the message has no `model`.
pub(super) fn message(
    body: &Bytes,
    answer: &DecodedAnswer,
    target: &AttemptTarget<'_>,
    thinking: ThinkingDisplay,
) -> Option<Vec<Bytes>> {
    let mut mends = Mends::of(body);
    let (mut content, mut usage, mut reason, mut stop, mut named) = (None, None, None, None, false);
    for (key, value) in json_cursor::members(body) {
        match &*key {
            "model" => {
                named = true;
                mends.replace(value, quoted(target.answer_model));
            }
            "content" => content = Some(value),
            "usage" => usage = Some(value),
            "stop_reason" => reason = Some(value),
            "stop_sequence" => stop = Some(value),
            _ => {}
        }
    }
    blocks(&mut mends, content.unwrap_or_default(), thinking, target.id);
    if let Some(candidate) = answer.choices.first()
        && let Some(name) = other_end(reason, candidate)
    {
        mends.say(body, "stop_reason", reason, quoted(name));
        if name != "stop_sequence" {
            mends.say(body, "stop_sequence", stop, b"null".to_vec());
        }
    }
    count(&mut mends, body, usage, &answer.usage.unwrap_or_default());
    named.then(|| mends.done())
}

/// Repairs the blocks of a buffered message; writes an empty text block if none would remain.
fn blocks(mends: &mut Mends<'_>, content: &[u8], thinking: ThinkingDisplay, seed: &str) {
    let hidden = |part: &[u8]| thinking == ThinkingDisplay::Off && is_thought(part);
    if json_cursor::elements(content).all(hidden) {
        return mends.replace(content, &br#"[{"type":"text","text":""}]"#[..]);
    }
    mends.leave_out_elements(content, hidden);
    let mut ids = ToolCallIds::default();
    for part in json_cursor::elements(content).filter(|part| !hidden(part)) {
        block(mends, part, |thought| {
            messages::signature_or_default(None, fnv1a_more(FNV_START, thought)).decoded().into_owned()
        });
        if thinking == ThinkingDisplay::Omitted {
            omit(mends, part);
        }
        own_id(mends, part, &mut ids, seed);
    }
}

/// Replaces the id of a tool call if another call has the same id.
fn own_id(mends: &mut Mends<'_>, block: &[u8], ids: &mut ToolCallIds, seed: &str) {
    if !is_type(block, "tool_use") {
        return;
    }
    let said = json_cursor::member_value(block, "id").unwrap_or_default();
    let Some(id) =
        json_cursor::string_body(said).and_then(|id| EscapedText::from_json(Bytes::copy_from_slice(id)))
    else {
        return;
    };
    let own = ids.unique_id(id.clone(), seed, 0);
    if own != id {
        mends.replace(said, quoted(&own.decoded()));
    }
}

/// Removes the text of a thinking block and retains its signature.
fn omit(mends: &mut Mends<'_>, block: &[u8]) {
    if is_thought(block) {
        for (_, words) in json_cursor::members(block).filter(|(key, _)| key == "thinking") {
            mends.replace(words, &br#""""#[..]);
        }
    }
}

/// Repairs the `message` of a `message_start` event.
pub(super) fn opening(data: &Bytes, message: &[u8], model: &str, known: &TokenUsage) -> Option<Vec<u8>> {
    let message = shared_slice(data, message)?;
    let mut mends = Mends::of(&message);
    let (mut usage, mut named) = (None, false);
    for (key, value) in json_cursor::members(&message) {
        match &*key {
            "model" => {
                named = true;
                mends.replace(value, quoted(model));
            }
            "usage" => usage = Some(value),
            _ => {}
        }
    }
    count(&mut mends, &message, usage, known);
    named.then(|| mends.done().concat())
}

/// Replaces the usage if one of the two numbers that every client reads is missing, or if they are overstated.
fn count(mends: &mut Mends<'_>, message: &[u8], said: Option<&[u8]>, known: &TokenUsage) {
    let numbers = ["input_tokens", "output_tokens"];
    let counts = |usage: &[u8]| {
        numbers
            .iter()
            .all(|name| json_cursor::member_value(usage, name).and_then(json_cursor::parse_integer).is_some())
    };
    if known.source == UsageSource::Overstated || !said.is_some_and(counts) {
        let mut usage = Vec::with_capacity(128);
        messages::write_usage(known, &mut usage);
        mends.say(message, "usage", said, usage);
    }
}

/// Repairs a block: removes members that are null and adds a missing signature to a thinking block.
pub(super) fn block(mends: &mut Mends<'_>, block: &[u8], seal: impl Fn(&[u8]) -> String) {
    let (mut thinks, mut thought, mut signature, mut hollow) = (false, &b""[..], None, false);
    for (key, value) in json_cursor::members(block) {
        match &*key {
            "type" => thinks = json::is_string(value, "thinking"),
            "thinking" => thought = json_cursor::string_body(value).unwrap_or_default(),
            "signature" => signature = Some(value),
            "caller" | "citations" | "toolset_name" => hollow |= json_cursor::is_null(value),
            _ => {}
        }
    }
    if hollow {
        mends.leave_out_members(block, |key, value| {
            matches!(key, b"caller" | b"citations" | b"toolset_name") && json_cursor::is_null(value)
        });
    }
    if thinks && signature.and_then(json_cursor::string_body).is_none() {
        mends.say(block, "signature", signature, quoted(&seal(thought)));
    }
}

/// Returns the correct stop reason if clients do not know the provider's or if it does not match the real end.
fn other_end(said: Option<&[u8]>, candidate: &AnswerChoice) -> Option<&'static str> {
    let finish = candidate.finish_reason?;
    (!fits(said, finish)).then(|| messages::stop_reason(finish, candidate.stop_sequence.as_ref(), false))
}

fn fits(said: Option<&[u8]>, finish: FinishReason) -> bool {
    let said = said.and_then(json_cursor::parse_string).unwrap_or_default();
    REASONS.contains(&&*said) && parse_stop_reason(&said).is_ok_and(|meant| meant == finish)
}

/// Writes the `delta` of the last event; `asked` are the client's stop sequences.
pub(super) fn end(delta: Option<&[u8]>, finish: FinishReason, asked: &[String], out: &mut Vec<u8>) {
    let delta = delta.unwrap_or_default();
    let told = json_cursor::members(delta).any(|(key, _)| key == "stop_sequence");
    if told && fits(json_cursor::member_value(delta, "stop_reason"), finish) {
        return out.extend_from_slice(delta);
    }
    let stop = json_cursor::member_value(delta, "stop_sequence").and_then(json_cursor::parse_string);
    let stop =
        stop.filter(|stop| asked.iter().any(|asked| asked == stop)).map(|stop| EscapedText::new(&stop));
    out.push(b'{');
    messages::write_stop_members(finish, stop.as_ref(), false, out);
    out.push(b'}');
}

/// Repaired `content_block_start` event, without content.
pub(super) struct Start {
    pub(super) data: Bytes,
    /// Tool input that the event contained: clients would append the deltas to it.
    pub(super) input: Option<Bytes>,
    /// Text that the event contained, with its member name: clients read text only in deltas.
    pub(super) words: Option<(&'static str, Bytes)>,
}

/// Repairs a `content_block_start` event and empties its block; `ids` are the ids of the calls so far.
pub(super) fn block_start(
    data: &Bytes,
    seen: &EventMembers<'_>,
    thinking: ThinkingDisplay,
    (ids, seed): (&mut ToolCallIds, &str),
) -> Start {
    let opened = seen.content_block.unwrap_or_default();
    let mut mends = Mends::of(data);
    block(&mut mends, opened, |_| String::new());
    let mut words = None;
    if let Some(name) = words_name(opened) {
        // Of duplicate members the first is used, as in the shadow, and all are emptied.
        for said in
            json_cursor::members(opened).filter(|(key, _)| key == name).filter_map(|(_, said)| filled(said))
        {
            mends.replace(said, &br#""""#[..]);
        }
        let shown = name == "text" || thinking == ThinkingDisplay::Shown;
        let said = early_words(opened).filter(|_| shown).and_then(json_cursor::string_body);
        words = said.and_then(|said| Some((name, shared_slice(data, said)?)));
    }
    own_id(&mut mends, opened, ids, seed);
    let mut early: Option<Bytes> = None;
    if is_type(opened, "tool_use") {
        let input =
            json_cursor::members(opened).filter(|(key, _)| key == "input").last().map(|(_, input)| input);
        let is_empty =
            |input: &[u8]| json_cursor::is_object(input) && json_cursor::members(input).next().is_none();
        if !input.is_some_and(is_empty) {
            mends.say(opened, "input", input, b"{}".to_vec());
            early = input
                .filter(|input| json_cursor::is_object(input))
                .and_then(|input| shared_slice(data, input));
        }
    }
    let data = if mends.edits.is_empty() { data.clone() } else { Bytes::from(mends.done().concat()) };
    Start { data, input: early, words }
}

/// Returns the text of a text or thinking block in its start event, with quotes; `None` if it is empty.
pub(super) fn early_words(opened: &[u8]) -> Option<&[u8]> {
    json_cursor::member_value(opened, words_name(opened)?).and_then(filled)
}

/// Returns true if the block has this `type`.
fn is_type(block: &[u8], kind: &str) -> bool {
    json_cursor::member_value(block, "type").is_some_and(|said| json::is_string(said, kind))
}

/// Returns the name of the text member of a text or thinking block.
fn words_name(opened: &[u8]) -> Option<&'static str> {
    ["text", "thinking"].into_iter().find(|kind| is_type(opened, kind))
}

/// Returns the value if it is a string that is not empty.
fn filled(value: &[u8]) -> Option<&[u8]> {
    json_cursor::string_body(value).is_some_and(|said| !said.is_empty()).then_some(value)
}

/// Returns the data of a block event with another index.
pub(super) fn numbered(data: &Bytes, index: usize) -> Vec<u8> {
    let mut mends = Mends::of(data);
    for (_, value) in json_cursor::members(data).filter(|(key, _)| key == "index") {
        mends.replace(value, index.to_string().into_bytes());
    }
    mends.done().concat()
}

/// Builds the delta with the tool input of a start event.
pub(super) fn input_delta(index: usize, input: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":""#
    );
    let mut data = head.into_bytes();
    write_escaped_json(input, &mut data);
    data.extend_from_slice(br#""}}"#);
    data
}

/// Builds the delta with the text of a start event.
pub(super) fn words_delta(index: usize, name: &str, words: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{name}_delta","{name}":""#
    );
    [head.as_bytes(), words, br#""}}"#].concat()
}

/// Builds a signature delta for a thinking block without a signature. The value proves nothing and is never verified.
pub(super) fn seal_delta(index: usize, id: &str) -> Vec<u8> {
    let seal = messages::signature_or_default(None, fnv1a_more(FNV_START, id.as_bytes()));
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"signature_delta","signature":""#
    );
    [head.as_bytes(), seal.escaped(), br#""}}"#].concat()
}
