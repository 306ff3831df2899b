//! Conversion of events into the pieces of a script, with the faults that change a good answer.

use super::energy::{self, EnergyReport};
use super::fault::SimulatedFault;
use super::route::SimulatedDialect;
use super::script::{BodyPiece, ResponseScript, ScriptHead};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write;
use std::time::Duration;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// First event of the answer.
    Start,
    /// Event with tokens.
    Content,
    /// Other event of the grammar.
    Other,
    /// Event with the finish reason.
    Finish,
    /// Event with only the usage.
    Usage,
    /// Last event of the stream.
    Done,
    /// Comment instead of an event.
    Comment,
    /// Error event that ends the stream.
    Error,
}

/// Event of a stream.
#[derive(Clone, Debug)]
pub(super) struct StreamEvent {
    /// Event type, in the dialects that name their events.
    pub name: Option<&'static str>,
    /// Data of the event.
    pub body: String,
    /// Number of tokens of the answer up to this event.
    pub tokens: u32,
    /// Kind of the event.
    pub kind: EventKind,
}

/// Options of the answer writers, changed by faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct AnswerOptions {
    /// True if usage is reported.
    pub usage: bool,
    /// True if the answer reports its finish reason.
    pub finish: bool,
    /// Name of the member that has the reasoning (chat).
    pub reasoning: &'static str,
    /// True if every piece of a tool call repeats its name and id (chat).
    pub repeats: bool,
}

impl AnswerOptions {
    /// Returns the options that result from these faults.
    pub(super) fn from_faults(faults: &[SimulatedFault]) -> Self {
        let vllm_now = faults.contains(&SimulatedFault::ReasoningField {});
        Self {
            usage: !faults.contains(&SimulatedFault::NoUsage {}),
            finish: !faults.contains(&SimulatedFault::NoFinish {}),
            reasoning: if vllm_now { "reasoning" } else { "reasoning_content" },
            repeats: faults.contains(&SimulatedFault::RepeatedToolFields {}),
        }
    }
}

/// Builds a stream of these events.
pub(super) fn stream(
    mut events: Vec<StreamEvent>,
    faults: &[SimulatedFault],
    dialect: SimulatedDialect,
) -> ResponseScript {
    for fault in faults {
        apply_to_events(&mut events, fault, dialect);
    }
    let end = if faults.contains(&SimulatedFault::Crlf {}) { "\r\n" } else { "\n" };
    let comments = faults.contains(&SimulatedFault::Comments {});
    let mut pieces = Vec::with_capacity(events.len());
    for (at, event) in events.iter().enumerate() {
        let mut text = String::with_capacity(event.body.len() + 16);
        if comments && at % 2 == 0 {
            text.extend([": a comment, simulated", end, end]);
        }
        if let Some(name) = event.name {
            text.extend(["event: ", name, end]);
        }
        let field = if event.kind == EventKind::Comment { ": " } else { "data: " };
        text.extend([field, &event.body, end, end]);
        pieces.push(BodyPiece::new(text, event.tokens));
    }
    let mut script = ResponseScript::plain(200, "text/event-stream; charset=utf-8", Bytes::new());
    script.head.headers.push(("cache-control", "no-cache".to_owned()));
    script.head.length = None;
    script.head_at_once = true;
    script.pieces = pieces;
    script
}

/// Applies a fault to the events of a stream: removes or inserts events.
fn apply_to_events(events: &mut Vec<StreamEvent>, fault: &SimulatedFault, dialect: SimulatedDialect) {
    let event = |body: String, name, tokens, kind| StreamEvent { name, body, tokens, kind };
    match fault {
        SimulatedFault::NoDone {} => events.retain(|event| event.kind != EventKind::Done),
        SimulatedFault::NoFinish {} if dialect != SimulatedDialect::Chat => {
            events.retain(|event| event.kind != EventKind::Finish)
        }
        SimulatedFault::Malformed { after } => {
            let name = match dialect {
                SimulatedDialect::Chat => None,
                SimulatedDialect::Messages => Some("content_block_delta"),
                SimulatedDialect::Responses => Some("response.output_text.delta"),
            };
            let broken = event(
                "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"sim".into(),
                name,
                *after,
                EventKind::Other,
            );
            events.insert(index_after(events, *after), broken);
        }
        SimulatedFault::ErrorEvent { after, message } => {
            events.truncate(index_after(events, *after));
            let error =
                json!({ "message": message, "type": "InternalServerError", "param": null, "code": 500 });
            if dialect == SimulatedDialect::Chat {
                events.push(event(json!({ "error": error }).to_string(), None, *after, EventKind::Error));
                events.push(event("[DONE]".to_owned(), None, *after, EventKind::Done));
            } else {
                let body = stream_error(dialect, message);
                events.push(event(body.to_string(), Some("error"), *after, EventKind::Error));
            }
        }
        SimulatedFault::Huge { bytes } => insert_huge_event(events, *bytes, dialect),
        SimulatedFault::Energy { shape, joules } => {
            insert_energy_report(events, energy::energy_report(*shape, *joules, true));
        }
        _ => {}
    }
}

/// Returns the data of an error event.
fn stream_error(dialect: SimulatedDialect, message: &str) -> serde_json::Value {
    if dialect == SimulatedDialect::Responses {
        return json!({ "type": "error", "code": "server_error", "message": message, "param": null });
    }
    json!({ "type": "error", "error": { "type": "api_error", "message": message } })
}

/// Inserts an event with a text of this size before the first event with text.
fn insert_huge_event(events: &mut Vec<StreamEvent>, bytes: usize, dialect: SimulatedDialect) {
    let pointer = match dialect {
        SimulatedDialect::Chat => "/choices/0/delta/content",
        SimulatedDialect::Messages => "/delta/text",
        SimulatedDialect::Responses => "/delta",
    };
    let words = |event: &StreamEvent| {
        let body: Option<serde_json::Value> = serde_json::from_str(&event.body).ok();
        body.filter(|body| event.kind == EventKind::Content && body.pointer(pointer).is_some())
    };
    // The inserted event is a copy of the first event with text; an answer without text has none to copy.
    let model = events.iter().find_map(|event| Some((event.name, event.tokens, words(event)?)));
    let Some((name, tokens, mut body)) = model else { return };
    let text = "simulated ".repeat(bytes.div_ceil(10));
    if let Some(value) = body.pointer_mut(pointer) {
        *value = json!(text.get(..bytes).unwrap_or(&text));
    }
    let huge = StreamEvent { name, body: body.to_string(), tokens, kind: EventKind::Content };
    events.insert(index_after(events, tokens.saturating_sub(1)), huge);
}

/// Inserts an energy report into a stream: as a member of the last event that has the usage or the finish reason, or as
/// a comment before the end.
fn insert_energy_report(events: &mut Vec<StreamEvent>, report: EnergyReport) {
    match report {
        EnergyReport::Member(name, value) => {
            let last = events
                .iter_mut()
                .rev()
                .find(|event| matches!(event.kind, EventKind::Usage | EventKind::Finish));
            if let Some(event) = last {
                energy::append_member(&mut event.body, name, &value);
            }
        }
        EnergyReport::Comment(text) => {
            let at = events.iter().position(|event| event.kind == EventKind::Done).unwrap_or(events.len());
            let tokens = events.last().map_or(0, |event| event.tokens);
            events.insert(at, StreamEvent { name: None, body: text, tokens, kind: EventKind::Comment });
        }
    }
}

/// Returns the index after the event that contains the token number `tokens`; for 0, the index before the first token.
fn index_after(events: &[StreamEvent], tokens: u32) -> usize {
    let late = |event: &StreamEvent| event.kind == EventKind::Content && event.tokens > tokens;
    let first = events.iter().position(late);
    let end = || {
        events
            .iter()
            .position(|event| matches!(event.kind, EventKind::Finish | EventKind::Usage | EventKind::Done))
    };
    first.or_else(end).unwrap_or(events.len())
}

/// Builds an unstreamed answer with this body. It is sent at the time at which the token number `tokens` is due.
pub(super) fn plain(
    mut body: String,
    tokens: u32,
    faults: &[SimulatedFault],
    dialect: SimulatedDialect,
) -> ResponseScript {
    for fault in faults {
        match fault {
            SimulatedFault::Energy { shape, joules } => {
                if let EnergyReport::Member(name, value) = energy::energy_report(*shape, *joules, false) {
                    energy::append_member(&mut body, name, &value);
                }
            }
            SimulatedFault::Malformed { .. } => {
                let half = middle(&body);
                body.truncate(half);
            }
            SimulatedFault::ErrorEvent { message, .. } if dialect == SimulatedDialect::Messages => {
                body = stream_error(dialect, message).to_string();
            }
            SimulatedFault::ErrorEvent { message, .. } => {
                body = json!({ "error": { "message": message, "type": "InternalServerError", "code": 500 } })
                    .to_string();
            }
            _ => {}
        }
    }
    let mut script = ResponseScript::plain(200, "application/json", body);
    script.pieces.iter_mut().for_each(|piece| piece.tokens = tokens);
    script
}

fn middle(text: &str) -> usize {
    (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Applies the faults that concern bytes and connections to any answer. A stream is cut after the stated number of
/// tokens, an unstreamed answer in its middle.
pub(super) fn apply_byte_faults(mut script: ResponseScript, faults: &[SimulatedFault]) -> ResponseScript {
    let streams = script.head.length.is_none();
    for fault in faults {
        match fault {
            SimulatedFault::CutAfterHead {} => {
                script.pieces.clear();
                script.head_at_once = true;
                script.cut = true;
            }
            SimulatedFault::Cut { after } => {
                split_plain(&mut script.pieces, streams);
                script.pieces.truncate(cut_index(&script.pieces, *after, streams));
                script.cut = true;
            }
            SimulatedFault::Stall { after } => {
                split_plain(&mut script.pieces, streams);
                let at = cut_index(&script.pieces, *after, streams);
                if let Some(piece) = script.pieces.get_mut(at) {
                    piece.hold = true;
                }
            }
            SimulatedFault::SlowFirstToken { ms } => script.first_token_delay = Duration::from_millis(*ms),
            SimulatedFault::DripHead { ms } => script.head_byte_delay = Some(Duration::from_millis(*ms)),
            SimulatedFault::ContentType { value } => retype(&mut script.head, value),
            _ => {}
        }
    }
    for fault in faults {
        match fault {
            SimulatedFault::Merge { events } => script.pieces = merged(&script.pieces, (*events).max(1)),
            SimulatedFault::Gzip {} => compress(&mut script),
            _ => {}
        }
    }
    if let Some(SimulatedFault::Split { bytes }) =
        faults.iter().find(|fault| matches!(fault, SimulatedFault::Split { .. }))
    {
        script.pieces = split(&script.pieces, (*bytes).max(1));
    }
    script
}

/// Returns the index of the piece before which a stream is cut: the first one after `after` tokens.
fn cut_index(pieces: &[BodyPiece], after: u32, streams: bool) -> usize {
    if !streams {
        return 1;
    }
    pieces.iter().position(|piece| piece.tokens > after).unwrap_or(pieces.len().saturating_sub(1))
}

fn split_plain(pieces: &mut Vec<BodyPiece>, streams: bool) {
    if let (false, [whole]) = (streams, &pieces[..]) {
        let tokens = whole.tokens;
        let mut rest = whole.bytes.clone();
        let first = rest.split_to(rest.len() / 2);
        *pieces = vec![BodyPiece::new(first, tokens), BodyPiece::new(rest, tokens)];
    }
}

fn retype(head: &mut ScriptHead, value: &str) {
    for (name, old) in &mut head.headers {
        if *name == "content-type" {
            value.clone_into(old);
        }
    }
}

fn merged(pieces: &[BodyPiece], events: usize) -> Vec<BodyPiece> {
    let together = |group: &[BodyPiece]| {
        let bytes: Vec<u8> = group.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        BodyPiece {
            hold: group.iter().any(|piece| piece.hold),
            alone: true,
            ..BodyPiece::new(bytes, group.iter().map(|piece| piece.tokens).max().unwrap_or(0))
        }
    };
    pieces.chunks(events).map(together).collect()
}

fn split(pieces: &[BodyPiece], bytes: usize) -> Vec<BodyPiece> {
    let mut all = Vec::new();
    for piece in pieces {
        for at in (0..piece.bytes.len()).step_by(bytes) {
            let part = piece.bytes.slice(at..(at + bytes).min(piece.bytes.len()));
            all.push(BodyPiece {
                hold: piece.hold && at == 0,
                alone: true,
                ..BodyPiece::new(part, piece.tokens)
            });
        }
    }
    all
}

/// Compresses the body with a flush after each piece, so that a stream is not delayed.
fn compress(script: &mut ResponseScript) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in &mut script.pieces {
        // Writing to memory does not fail.
        if encoder.write_all(&piece.bytes).and_then(|()| encoder.flush()).is_ok() {
            piece.bytes = std::mem::take(encoder.get_mut()).into();
        }
    }
    if let (Ok(end), false) = (encoder.finish(), script.cut) {
        script.pieces.push(BodyPiece::new(end, script.pieces.last().map_or(0, |piece| piece.tokens)));
    }
    script.head.headers.push(("content-encoding", "gzip".to_owned()));
    if script.head.length.is_some() && !script.cut {
        script.head.length = Some(script.pieces.iter().map(|piece| piece.bytes.len()).sum());
    }
}
