//! What client libraries stumble over in a native answer, mended where it stands:
//! everything else keeps the provider's own bytes.

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
use penstock_contract::{AttemptTarget, FinishReason, ThinkingDisplay, TokenUsage, UsageSource};
use penstock_wire::json;
use std::borrow::Cow;
use std::ops::Range;

/// Reasons that clients know.
const REASONS: [&str; 7] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
];

/// Changes to a document, made when all are known.
pub(super) struct Mends<'a> {
    document: &'a Bytes,
    edits: Vec<(Range<usize>, Cow<'static, [u8]>)>,
}

impl<'a> Mends<'a> {
    pub(super) const fn of(document: &'a Bytes) -> Self {
        Self { document, edits: Vec::new() }
    }

    /// Where `part` begins in the document.
    fn start(&self, part: &[u8]) -> usize {
        (part.as_ptr() as usize).saturating_sub(self.document.as_ptr() as usize)
    }

    pub(super) fn replace(&mut self, part: &[u8], with: impl Into<Cow<'static, [u8]>>) {
        let start = self.start(part);
        self.edits.push((start..start + part.len(), with.into()));
    }

    /// Says `name` in `object`, which has other members and says `said` under that name so far.
    pub(super) fn say(&mut self, object: &[u8], name: &str, said: Option<&[u8]>, value: Vec<u8>) {
        if let Some(said) = said {
            return self.replace(said, value);
        }
        let end = self.start(object) + object.len().saturating_sub(1);
        let member = [br#",""#, name.as_bytes(), br#"":"#, &value].concat();
        self.edits.push((end..end, member.into()));
    }

    /// Leaves items of a list out: each with the comma behind it, or at the end with the one before it.
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

    /// Leaves members out of `object`.
    fn leave_out_members(&mut self, object: &[u8], gone: impl Fn(&[u8], &[u8]) -> bool) {
        let at = self.start(object);
        self.leave_out(json::members(object).map(|member| {
            let key = object.get(member.key.clone()).and_then(json_cursor::string_body).unwrap_or_default();
            let gone = gone(key, object.get(member.value.clone()).unwrap_or_default());
            (at + member.key.start..at + member.value.end, gone)
        }));
    }

    /// Leaves elements out of `array`.
    fn leave_out_elements(&mut self, array: &[u8], gone: impl Fn(&[u8]) -> bool) {
        let at = self.start(array);
        self.leave_out(json::elements(array).map(|element| {
            let gone = gone(array.get(element.clone()).unwrap_or_default());
            (at + element.start..at + element.end, gone)
        }));
    }

    /// The document in slices, the changes made.
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

/// A whole message, with as much of what the model thought as was asked for; none if it does not say which model spoke.
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

/// The blocks of a whole message, of which there is one at least.
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

/// A call gets an id of its own where another has it.
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

/// Leaves the words of a thought out, and not its seal.
fn omit(mends: &mut Mends<'_>, block: &[u8]) {
    if is_thought(block) {
        for (_, words) in json_cursor::members(block).filter(|(key, _)| key == "thinking") {
            mends.replace(words, &br#""""#[..]);
        }
    }
}

/// The opening event's `message`.
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

/// Usage, where the two numbers are missing that every client reads unasked, or are more than can be.
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

/// A block: members that are absent or have a value, and a seal on what was thought.
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

/// The name of the end, where the provider's own is unknown to clients or is not what happened.
fn other_end(said: Option<&[u8]>, candidate: &AnswerChoice) -> Option<&'static str> {
    let finish = candidate.finish_reason?;
    (!fits(said, finish)).then(|| messages::stop_reason(finish, candidate.stop_sequence.as_ref(), false))
}

fn fits(said: Option<&[u8]>, finish: FinishReason) -> bool {
    let said = said.and_then(json_cursor::parse_string).unwrap_or_default();
    REASONS.contains(&&*said) && parse_stop_reason(&said).is_ok_and(|meant| meant == finish)
}

/// The `delta` of the last event; `asked` are the client's stop sequences.
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

/// The opening event of a block.
pub(super) struct Start {
    pub(super) data: Bytes,
    /// The input that it said too early: clients add it to what the deltas say.
    pub(super) input: Option<Bytes>,
    /// The words that it said too early: clients read them in deltas only. By the name that the block has for them.
    pub(super) words: Option<(&'static str, Bytes)>,
}

/// Such an event with nothing in it yet. Calls so far have `ids`.
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
        // Said twice, the first is heard, as the shadow hears it, and the other does not stay behind.
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

/// What a block of text or thinking says in its opening event.
pub(super) fn early_words(opened: &[u8]) -> Option<&[u8]> {
    json_cursor::member_value(opened, words_name(opened)?).and_then(filled)
}

/// Whether this is the block's `type`.
fn is_type(block: &[u8], kind: &str) -> bool {
    json_cursor::member_value(block, "type").is_some_and(|said| json::is_string(said, kind))
}

/// The member that has the words of a block of text or thinking.
fn words_name(opened: &[u8]) -> Option<&'static str> {
    ["text", "thinking"].into_iter().find(|kind| is_type(opened, kind))
}

/// A string that says something.
fn filled(value: &[u8]) -> Option<&[u8]> {
    json_cursor::string_body(value).is_some_and(|said| !said.is_empty()).then_some(value)
}

/// An event about a block, under another number.
pub(super) fn numbered(data: &Bytes, index: usize) -> Vec<u8> {
    let mut mends = Mends::of(data);
    for (_, value) in json_cursor::members(data).filter(|(key, _)| key == "index") {
        mends.replace(value, index.to_string().into_bytes());
    }
    mends.done().concat()
}

/// The delta that says such an input after all.
pub(super) fn input_delta(index: usize, input: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":""#
    );
    let mut data = head.into_bytes();
    write_escaped_json(input, &mut data);
    data.extend_from_slice(br#""}}"#);
    data
}

/// The delta that says such words after all.
pub(super) fn words_delta(index: usize, name: &str, words: &[u8]) -> Vec<u8> {
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"{name}_delta","{name}":""#
    );
    [head.as_bytes(), words, br#""}}"#].concat()
}

/// The delta that seals a thought which the provider left unsealed. It proves nothing and is never checked.
pub(super) fn seal_delta(index: usize, id: &str) -> Vec<u8> {
    let seal = messages::signature_or_default(None, fnv1a_more(FNV_START, id.as_bytes()));
    let head = format!(
        r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"signature_delta","signature":""#
    );
    [head.as_bytes(), seal.escaped(), br#""}}"#].concat()
}
