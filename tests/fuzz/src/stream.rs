//! Translation of a provider's stream, and the comparison of the client's content with the provider's.

use crate::target;
use bytes::Bytes;
use penstock_core::{
    ApiError, Dialect, ErrorCode, FinishReason, InferenceRequest, OfferCapabilities, OutputBuffer,
    StreamProgress, StreamTranslation, TokenUsage, Translator, UpstreamErrorKind,
};
use penstock_dialect::event::AnswerEvent;
use penstock_dialect::{ResponseConstraints, conformance, decode, find_translator, translators};
use penstock_request_validation::{RequestLimits, validate_generation_request};
use serde_json::Value;
use std::collections::BTreeSet;

const OBJECTS: &[u8] = br#""environment_impact":{"energy_kwh":0.000012},"billing_cost":{"credits":0.034}"#;

/// Returns a request of this client dialect, with the options that the bits of `choice` select.
#[must_use]
pub fn ask(client: Dialect, choice: u16) -> InferenceRequest {
    let stop = if choice & 4 == 0 { "" } else { r#","STOP":["ab","\n\n"]"# };
    let body = match client {
        Dialect::Chat => {
            let usage = if choice & 1 == 0 { "" } else { r#","stream_options":{"include_usage":true}"# };
            let n = if choice & 2 == 0 { "" } else { r#","n":2"# };
            let tools = if choice & 8 == 0 { "" } else { r#","parallel_tool_calls":false"# };
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],"stream":true{usage}{n}{tools}{stop}}}"#)
                .replace("STOP", "stop")
        }
        Dialect::Messages => {
            let thinking =
                if choice & 1 == 0 { "" } else { r#","thinking":{"type":"enabled","budget_tokens":1024}"# };
            format!(r#"{{"model":"m","max_tokens":2048,"messages":[{{"role":"user","content":"x"}}],"stream":true{thinking}{stop}}}"#)
                .replace("STOP", "stop_sequences")
        }
        _ => {
            let reasoning = if choice & 1 == 0 {
                ""
            } else {
                r#","reasoning":{"summary":"auto"},"include":["reasoning.encrypted_content"]"#
            };
            let tools = if choice & 8 == 0 { "" } else { r#","parallel_tool_calls":false"# };
            format!(r#"{{"model":"m","input":"x","stream":true{reasoning}{tools}{stop}}}"#)
                .replace("STOP", "stop")
        }
    };
    let limits = RequestLimits::default();
    let body = Bytes::from(body);
    validate_generation_request(client, body, &limits).expect("a sound request")
}

/// Result of one translated stream.
#[derive(Debug, PartialEq)]
pub struct Run {
    /// Bytes for the client.
    pub out: Vec<u8>,
    /// Error that ended the stream.
    pub fault: Option<UpstreamErrorKind>,
    /// Token usage that the provider reported.
    pub usage: Option<TokenUsage>,
    /// Number of bytes of text.
    pub output_bytes: usize,
}

/// Feeds the pieces to a translation as the gateway does, until the first error.
pub fn feed(
    reply: &mut dyn StreamTranslation,
    pieces: &[&[u8]],
    out: &mut OutputBuffer,
) -> Option<UpstreamErrorKind> {
    for piece in pieces {
        let result = reply.push(Bytes::copy_from_slice(piece), out);
        assert!(reply.progress() > StreamProgress::Pending || out.is_empty(), "something came out too early");
        if let Err(fault) = result {
            return Some(fault.kind);
        }
        if reply.progress() == StreamProgress::Ended && !reply.awaits_usage() {
            return None;
        }
    }
    reply.end(out).err().map(|fault| fault.kind)
}

/// Ends a stream as the gateway does: with the objects `environment_impact` and `billing_cost`, or with an error
/// event.
pub fn finish(
    reply: &mut dyn StreamTranslation,
    fault: Option<UpstreamErrorKind>,
    mut out: OutputBuffer,
) -> Run {
    let (usage, output_bytes) = (reply.usage(), reply.delivered_text_bytes());
    match fault {
        None => reply.write_end(
            &usage.unwrap_or(TokenUsage { input: 7, output: 3, ..TokenUsage::default() }),
            OBJECTS,
            &mut out,
        ),
        Some(_) if reply.progress() > StreamProgress::Pending => {
            reply.write_error(&ApiError::new(ErrorCode::Unavailable), "req_1", OBJECTS, &mut out);
        }
        Some(_) => {}
    }
    Run { out: out.0.concat(), fault, usage, output_bytes }
}

/// Returns the texts, reasoning, refusals and tools of each candidate from the events.
#[must_use]
pub fn heard(events: &[AnswerEvent], n: usize) -> Vec<CandidateContent> {
    let mut all = vec![CandidateContent::default(); n];
    for event in events {
        let Some(candidate) = event.choice().and_then(|choice| all.get_mut(choice as usize)) else {
            continue;
        };
        match event {
            AnswerEvent::Text { text, .. } => candidate.text += &text.decoded(),
            AnswerEvent::Reasoning { text, .. } => candidate.reasoning += &text.decoded(),
            AnswerEvent::Refusal { text, .. } => candidate.refusal += &text.decoded(),
            AnswerEvent::ToolCallStart { id, name, .. } => {
                candidate.ids.insert(id.decoded().into_owned());
                candidate.tools.push((name.decoded().into_owned(), String::new()));
            }
            AnswerEvent::ToolCallArguments { tool, fragment, .. } => {
                if let Some((_, arguments)) = candidate.tools.get_mut(*tool as usize) {
                    *arguments += &fragment.decoded();
                }
            }
            AnswerEvent::Finish { reason, .. } => candidate.called = *reason == FinishReason::ToolCalls,
            _ => {}
        }
    }
    all
}

/// Returns the texts, reasoning, refusal and tools of a response object from its output items.
#[must_use]
pub fn heard_in_response(response: &Value) -> CandidateContent {
    let mut content = CandidateContent::default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for item in response["output"].as_array().into_iter().flatten() {
        match item["type"].as_str() {
            Some("message") => {
                for part in item["content"].as_array().into_iter().flatten() {
                    content.text += &text(&part["text"]);
                    content.refusal += &text(&part["refusal"]);
                }
            }
            Some("reasoning") => {
                for list in [&item["content"], &item["summary"]] {
                    for part in list.as_array().into_iter().flatten() {
                        content.reasoning += &text(&part["text"]);
                    }
                }
            }
            _ => {
                content.ids.insert(text(&item["call_id"]));
                content.tools.push((text(&item["name"]), text(&item["arguments"])));
            }
        }
    }
    content
}

/// Returns the content that the client of a stream receives for each candidate.
#[must_use]
pub fn heard_by(client: Dialect, out: &[u8], n: usize) -> Vec<CandidateContent> {
    if client != Dialect::Responses {
        return heard(&events(client, out), n);
    }
    let stream = String::from_utf8_lossy(out);
    let last = stream.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap_or_default();
    let last = crate::parse(last.as_bytes()).expect("an event is JSON");
    vec![heard_in_response(&last["response"])]
}

/// Content of one candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CandidateContent {
    /// Text.
    pub text: String,
    /// Reasoning.
    pub reasoning: String,
    /// Refusal.
    pub refusal: String,
    /// Tools by name, with their arguments.
    pub tools: Vec<(String, String)>,
    /// Ids of the tool calls.
    pub ids: BTreeSet<String>,
    /// True if the finish reason is tool calls.
    pub called: bool,
}

/// Returns the events of a stream, until its first error.
#[must_use]
pub fn events(dialect: Dialect, stream: &[u8]) -> Vec<AnswerEvent> {
    let mut decoder = decode::new_decoder(dialect, "4b8e");
    let mut events = Vec::new();
    if decoder.push(Bytes::copy_from_slice(stream), &mut events).is_ok() {
        let _ = decoder.end(&mut events);
    }
    // The gateway does not read bytes after the end of a stream.
    if let Some(end) = events.iter().position(|event| matches!(event, AnswerEvent::End)) {
        events.truncate(end + 1);
    }
    events
}

/// Returns the events of a stream after the constraints of the request were applied to them.
#[must_use]
pub fn shaped(
    ask: &InferenceRequest,
    provider: Dialect,
    abilities: &OfferCapabilities,
    stream: &[u8],
) -> Vec<AnswerEvent> {
    let mut shape = ResponseConstraints::new(ask, &target(provider, abilities));
    let mut shaped = Vec::new();
    let has_messages = ask.dialect == Dialect::Responses;
    let adapt = |event: AnswerEvent| if has_messages { Some(event) } else { event.flatten_message_start() };
    let adapted = events(provider, stream).into_iter().filter_map(adapt);
    adapted.for_each(|event| shape.apply(event, &mut shaped));
    shaped
}

/// Checks the client's bytes against the grammar of its dialect.
pub fn conforms(ask: &InferenceRequest, out: &[u8]) {
    if let Err(rule) = conformance::check_stream(ask.dialect, out, ask.include_usage) {
        panic!("{rule}\n{}", String::from_utf8_lossy(out));
    }
}

/// Checks that each event of a messages stream is well-formed, and that its type is equal to its name.
fn agrees(out: &[u8]) {
    let text = std::str::from_utf8(out).expect("a stream is text");
    for event in text.strip_suffix("\n\n").expect("the last event is whole").split("\n\n") {
        let parts = event.strip_prefix("event: ").and_then(|event| event.split_once("\ndata: "));
        let (name, data) = parts.unwrap_or_else(|| panic!("no event: {event}"));
        let data = crate::parse(data.as_bytes()).unwrap_or_else(|error| panic!("{error}: {event}"));
        assert_eq!(data["type"], name, "{event}");
    }
}

/// Returns the translators for providers of this dialect.
pub fn pairs(provider: Dialect) -> impl Iterator<Item = &'static dyn Translator> {
    translators().filter(move |pair| pair.provider_dialect() == provider)
}

/// Translates a stream for every client dialect. Asserts that the result does not depend on the cuts, that it is
/// well-formed, and that no content is lost or invented.
pub fn stream(provider: Dialect, choice: u16, stream: &[u8]) {
    let abilities =
        OfferCapabilities { max_stop: Some(usize::from(choice & 16 == 0)), ..OfferCapabilities::default() };
    for pair in pairs(provider) {
        let ask = ask(pair.client_dialect(), choice);
        let target = target(provider, &abilities);
        let run = crate::however_cut(stream, |pieces| {
            let mut reply = pair.translate_stream(&ask, &target);
            let mut out = OutputBuffer::default();
            let fault = feed(&mut *reply, pieces, &mut out);
            finish(&mut *reply, fault, out)
        });
        if run.out.is_empty() {
            continue;
        }
        // If client and provider have the same dialect, the bytes pass unchanged: the output is only as well-formed
        // as the input, but each event must still be well-formed.
        let passed = pair.client_dialect() == Dialect::Messages && provider == Dialect::Messages;
        if passed && conformance::check_messages_stream(stream).is_err() {
            agrees(&run.out);
        } else {
            conforms(&ask, &run.out);
        }
        let n = ask.n as usize;
        let expected = heard(&shaped(&ask, provider, &abilities, stream), n);
        let got = heard_by(pair.client_dialect(), &run.out, n);
        for (expected, got) in expected.iter().zip(&got) {
            compare(expected, got, ask.dialect, run.fault.is_none());
            if !passed {
                assert!(expected.ids.is_superset(&got.ids) && got.ids.len() == got.tools.len(), "ids");
            }
        }
    }
    debug_assert!(find_translator(Dialect::Chat, provider).is_some());
}

/// Returns true if the arguments are not the beginning of any valid JSON. The decoder of chat answers, which reads
/// the client's stream here, may misinterpret fragments of such arguments as repetitions of all arguments so far.
fn is_invalid(arguments: &str) -> bool {
    let error = serde_json::from_str::<serde::de::IgnoredAny>(arguments).err();
    error.is_some_and(|error| !error.is_eof())
}

fn compare(expected: &CandidateContent, got: &CandidateContent, client: Dialect, whole: bool) {
    if client == Dialect::Messages {
        // The messages dialect has no member for a refusal, so the translation makes it text.
        if whole && expected.refusal.is_empty() {
            assert_eq!(got.text, expected.text, "text");
        }
    } else if whole {
        assert_eq!(got.text, expected.text, "text");
        assert_eq!(got.reasoning, expected.reasoning, "reasoning");
        assert_eq!(got.refusal, expected.refusal, "refusal");
    } else {
        assert!(expected.text.starts_with(&got.text), "text was made up");
    }
    let names =
        |content: &CandidateContent| content.tools.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    let is_readable = client != Dialect::Chat || !expected.tools.iter().any(|(_, text)| is_invalid(text));
    if whole && is_readable {
        assert_eq!(names(got), names(expected), "tools");
    } else {
        assert!(names(expected).starts_with(&names(got)), "tools were made up");
    }
    for ((_, arguments), (_, got)) in expected.tools.iter().zip(&got.tools).filter(|_| whole && is_readable) {
        // Clients parse the arguments of a complete call, so the translation appends `{}` to arguments of white space
        // only. It must not complete the arguments of an incomplete call.
        let is_blank = arguments.bytes().all(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        match client {
            Dialect::Chat if is_blank && expected.called => {
                assert_eq!(*got, format!("{arguments}{{}}"), "arguments")
            }
            Dialect::Chat => assert_eq!(got, arguments, "arguments"),
            // The translation drops text that follows a complete JSON object in the arguments.
            Dialect::Responses => {
                assert!(arguments.starts_with(got) || (is_blank && got.trim() == "{}"), "arguments");
            }
            _ => {}
        }
    }
}
