//! Conversion of events into pieces, with the faults that change a good answer.

use super::energy::{self, Told};
use super::fault::Fault;
use super::script::{Head, Piece, Script};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write;
use std::time::Duration;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
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
pub(super) struct Event {
    /// Event type, in the messages dialect.
    pub name: Option<&'static str>,
    /// Data of the event.
    pub body: String,
    /// Number of tokens of the answer up to this event.
    pub tokens: u32,
    /// Kind of the event.
    pub kind: Kind,
}

/// Options of the answer writers, changed by faults.
#[derive(Clone, Copy, Debug)]
pub(super) struct Voice {
    /// True if usage is reported.
    pub usage: bool,
    /// True if the finish reason is reported.
    pub finish: bool,
    /// Name of the member with reasoning (chat).
    pub reasoning: &'static str,
    /// True if tool fields are repeated (chat).
    pub repeats: bool,
}

impl Voice {
    /// Returns the options under these faults.
    pub(super) fn of(faults: &[Fault]) -> Self {
        let vllm_now = faults.contains(&Fault::ReasoningField {});
        Self {
            usage: !faults.contains(&Fault::NoUsage {}),
            finish: !faults.contains(&Fault::NoFinish {}),
            reasoning: if vllm_now { "reasoning" } else { "reasoning_content" },
            repeats: faults.contains(&Fault::RepeatedToolFields {}),
        }
    }
}

/// Builds a stream of these events.
pub(super) fn stream(mut events: Vec<Event>, faults: &[Fault], native: bool) -> Script {
    for fault in faults {
        edit(&mut events, fault, native);
    }
    let end = if faults.contains(&Fault::Crlf {}) { "\r\n" } else { "\n" };
    let comments = faults.contains(&Fault::Comments {});
    let mut pieces = Vec::with_capacity(events.len());
    for (at, event) in events.iter().enumerate() {
        let mut text = String::with_capacity(event.body.len() + 16);
        if comments && at % 2 == 0 {
            text.extend([": a comment, simulated", end, end]);
        }
        if let Some(name) = event.name {
            text.extend(["event: ", name, end]);
        }
        let field = if event.kind == Kind::Comment { ": " } else { "data: " };
        text.extend([field, &event.body, end, end]);
        pieces.push(Piece::new(text, event.tokens));
    }
    let mut script = Script::plain(200, "text/event-stream; charset=utf-8", Bytes::new());
    script.head.headers.push(("cache-control", "no-cache".to_owned()));
    script.head.length = None;
    script.early = true;
    script.pieces = pieces;
    script
}

/// Removes and inserts events for a fault.
fn edit(events: &mut Vec<Event>, fault: &Fault, native: bool) {
    let event = |body: String, name, tokens, kind| Event { name, body, tokens, kind };
    match fault {
        Fault::NoDone {} => events.retain(|event| event.kind != Kind::Done),
        Fault::NoFinish {} if native => events.retain(|event| event.kind != Kind::Finish),
        Fault::Malformed { after } => {
            let name = native.then_some("content_block_delta");
            let broken = event(
                "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"sim".into(),
                name,
                *after,
                Kind::Other,
            );
            events.insert(behind(events, *after), broken);
        }
        Fault::ErrorEvent { after, message } => {
            events.truncate(behind(events, *after));
            let error =
                json!({ "message": message, "type": "InternalServerError", "param": null, "code": 500 });
            if native {
                let body = json!({ "type": "error", "error": { "type": "api_error", "message": message } });
                events.push(event(body.to_string(), Some("error"), *after, Kind::Error));
            } else {
                events.push(event(json!({ "error": error }).to_string(), None, *after, Kind::Error));
                events.push(event("[DONE]".to_owned(), None, *after, Kind::Done));
            }
        }
        Fault::Huge { bytes } => {
            let place = if native { "/delta/text" } else { "/choices/0/delta/content" };
            let words = |event: &Event| {
                let body: Option<serde_json::Value> = serde_json::from_str(&event.body).ok();
                body.filter(|body| event.kind == Kind::Content && body.pointer(place).is_some())
            };
            // It copies the first event with text; an answer without text has none.
            let model = events.iter().find_map(|event| Some((event.name, event.tokens, words(event)?)));
            let Some((name, tokens, mut body)) = model else { return };
            let text = "simulated ".repeat(bytes.div_ceil(10));
            if let Some(place) = body.pointer_mut(place) {
                *place = json!(text.get(..*bytes).unwrap_or(&text));
            }
            let huge = event(body.to_string(), name, tokens, Kind::Content);
            events.insert(behind(events, tokens.saturating_sub(1)), huge);
        }
        Fault::Energy { shape, joules } => match energy::told(*shape, *joules, true) {
            Told::Member(name, value) => {
                let last =
                    events.iter_mut().rev().find(|event| matches!(event.kind, Kind::Usage | Kind::Finish));
                if let Some(event) = last {
                    energy::append(&mut event.body, name, &value);
                }
            }
            Told::Comment(text) => {
                let at = events.iter().position(|event| event.kind == Kind::Done).unwrap_or(events.len());
                let tokens = events.last().map_or(0, |event| event.tokens);
                events.insert(at, event(text, None, tokens, Kind::Comment));
            }
        },
        _ => {}
    }
}

/// Returns the index after the event with the `tokens`-th token; for 0, before the first token.
fn behind(events: &[Event], tokens: u32) -> usize {
    let late = |event: &Event| event.kind == Kind::Content && event.tokens > tokens;
    let first = events.iter().position(late);
    let end =
        || events.iter().position(|event| matches!(event.kind, Kind::Finish | Kind::Usage | Kind::Done));
    first.or_else(end).unwrap_or(events.len())
}

/// Builds a plain answer with this body, delayed by its tokens.
pub(super) fn plain(mut body: String, tokens: u32, faults: &[Fault], native: bool) -> Script {
    for fault in faults {
        match fault {
            Fault::Energy { shape, joules } => {
                if let Told::Member(name, value) = energy::told(*shape, *joules, false) {
                    energy::append(&mut body, name, &value);
                }
            }
            Fault::Malformed { .. } => {
                let half = middle(&body);
                body.truncate(half);
            }
            Fault::ErrorEvent { message, .. } if native => {
                body = json!({ "type": "error", "error": { "type": "api_error", "message": message } })
                    .to_string();
            }
            Fault::ErrorEvent { message, .. } => {
                body = json!({ "error": { "message": message, "type": "InternalServerError", "code": 500 } })
                    .to_string();
            }
            _ => {}
        }
    }
    let mut script = Script::plain(200, "application/json", body);
    script.pieces.iter_mut().for_each(|piece| piece.tokens = tokens);
    script
}

fn middle(text: &str) -> usize {
    (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Applies the faults of bytes and connections to any answer. `tokens` are those before each event, `None` for a plain
/// answer, which breaks in its middle.
pub(super) fn break_up(mut script: Script, faults: &[Fault]) -> Script {
    let streams = script.head.length.is_none();
    for fault in faults {
        match fault {
            Fault::CutAfterHead {} => {
                script.pieces.clear();
                script.early = true;
                script.cut = true;
            }
            Fault::Cut { after } => {
                halve(&mut script.pieces, streams);
                script.pieces.truncate(point(&script.pieces, *after, streams));
                script.cut = true;
            }
            Fault::Stall { after } => {
                halve(&mut script.pieces, streams);
                let at = point(&script.pieces, *after, streams);
                if let Some(piece) = script.pieces.get_mut(at) {
                    piece.hold = true;
                }
            }
            Fault::SlowFirstToken { ms } => script.later = Duration::from_millis(*ms),
            Fault::DripHead { ms } => script.drip = Some(Duration::from_millis(*ms)),
            Fault::ContentType { value } => retype(&mut script.head, value),
            _ => {}
        }
    }
    for fault in faults {
        match fault {
            Fault::Merge { events } => script.pieces = merged(&script.pieces, (*events).max(1)),
            Fault::Gzip {} => compress(&mut script),
            _ => {}
        }
    }
    if let Some(Fault::Split { bytes }) = faults.iter().find(|fault| matches!(fault, Fault::Split { .. })) {
        script.pieces = split(&script.pieces, (*bytes).max(1));
    }
    script
}

/// Returns the index of the first piece after this number of tokens.
fn point(pieces: &[Piece], after: u32, streams: bool) -> usize {
    if !streams {
        return 1;
    }
    pieces.iter().position(|piece| piece.tokens > after).unwrap_or(pieces.len().saturating_sub(1))
}

fn halve(pieces: &mut Vec<Piece>, streams: bool) {
    if let (false, [whole]) = (streams, &pieces[..]) {
        let tokens = whole.tokens;
        let mut rest = whole.bytes.clone();
        let first = rest.split_to(rest.len() / 2);
        *pieces = vec![Piece::new(first, tokens), Piece::new(rest, tokens)];
    }
}

fn retype(head: &mut Head, value: &str) {
    for (name, old) in &mut head.headers {
        if *name == "content-type" {
            value.clone_into(old);
        }
    }
}

fn merged(pieces: &[Piece], events: usize) -> Vec<Piece> {
    let together = |group: &[Piece]| {
        let bytes: Vec<u8> = group.iter().flat_map(|piece| piece.bytes.iter().copied()).collect();
        Piece {
            hold: group.iter().any(|piece| piece.hold),
            alone: true,
            ..Piece::new(bytes, group.iter().map(|piece| piece.tokens).max().unwrap_or(0))
        }
    };
    pieces.chunks(events).map(together).collect()
}

fn split(pieces: &[Piece], bytes: usize) -> Vec<Piece> {
    let mut all = Vec::new();
    for piece in pieces {
        for at in (0..piece.bytes.len()).step_by(bytes) {
            let part = piece.bytes.slice(at..(at + bytes).min(piece.bytes.len()));
            all.push(Piece { hold: piece.hold && at == 0, alone: true, ..Piece::new(part, piece.tokens) });
        }
    }
    all
}

/// Compresses each piece separately, so that a stream is not delayed.
fn compress(script: &mut Script) {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    for piece in &mut script.pieces {
        // Writing to memory does not fail.
        if encoder.write_all(&piece.bytes).and_then(|()| encoder.flush()).is_ok() {
            piece.bytes = std::mem::take(encoder.get_mut()).into();
        }
    }
    if let (Ok(end), false) = (encoder.finish(), script.cut) {
        script.pieces.push(Piece::new(end, script.pieces.last().map_or(0, |piece| piece.tokens)));
    }
    script.head.headers.push(("content-encoding", "gzip".to_owned()));
    if script.head.length.is_some() && !script.cut {
        script.head.length = Some(script.pieces.iter().map(|piece| piece.bytes.len()).sum());
    }
}
