//! Native streams with event names that contradict the data: the output is consistent and
//! complete.

use super::admitted_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use std::path::Path;

const ASK: &[u8] = br#"{"model":"m","max_tokens":9,"messages":[],"stream":true}"#;

/// Returns the events of a valid stream as pairs of name and data.
fn valid_events() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/messages_messages/stream_tools/got.sse");
    let stream = std::fs::read_to_string(path).unwrap();
    let parts =
        stream.split("\n\n").filter_map(|event| event.strip_prefix("event: ")?.split_once("\ndata: "));
    parts.map(|(name, data)| (name.to_owned(), data.to_owned())).collect()
}

fn run_events(events: &[(String, String)]) -> test_support::StreamRun {
    let stream: String =
        events.iter().map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).collect();
    let ask = admitted_request(Dialect::Messages, ASK);
    let abilities = OfferCapabilities::default();
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let whole = test_support::run_stream(&mut *pair.translate_stream(&ask, &target), [stream.as_bytes()]);
    assert_eq!(
        test_support::run_stream(&mut *pair.translate_stream(&ask, &target), stream.as_bytes().chunks(1)),
        whole,
        "byte by byte"
    );
    whole
}

#[test]
fn an_event_is_read_by_its_type_and_not_by_its_name() {
    let events = valid_events();
    let right = run_events(&events);
    assert_eq!(right.fault, None);
    let names =
        ["", "ping", "error", "impact", "message_start", "content_block_start", "content_block_delta"];
    for at in 0..events.len() {
        for name in names.iter().chain(&["content_block_stop", "message_delta", "message_stop", "\u{e9}"]) {
            let mut invalid = events.clone();
            invalid[at].0 = (*name).to_owned();
            assert_eq!(run_events(&invalid), right, "event {at} called {name}");
        }
    }
}

#[test]
fn the_last_of_two_types_is_used() {
    let events = valid_events();
    for at in 1..events.len() {
        let mut twice = events.clone();
        twice[at].1 = twice[at].1.replacen("{", r#"{"type":"ping","#, 1);
        let run = run_events(&twice);
        assert_eq!((run.fault, conformance::check_messages_stream(&run.out)), (None, Ok(())), "event {at}");
    }
}

#[test]
fn invalid_json_never_reaches_the_client() {
    let events = valid_events();
    for (at, (name, data)) in events.iter().enumerate() {
        // The gateway writes the first and the last events itself, and ignores errors after the end of the answer.
        if matches!(&**name, "message_start" | "message_delta" | "message_stop") {
            continue;
        }
        for broken in [&data[..data.len() - 1], &format!("{data}}}"), &format!("{data} {data}")] {
            let mut invalid = events.clone();
            invalid[at].1 = broken.to_owned();
            let run = run_events(&invalid);
            assert_eq!(run.fault, Some(UpstreamErrorKind::Malformed), "event {at}: {broken}");
            assert!(
                run.out.is_empty() || conformance::check_messages_stream(&run.out) == Ok(()),
                "event {at}: {broken}"
            );
        }
    }
}

#[test]
fn a_type_with_line_breaks_injects_no_event() {
    let mut events = valid_events();
    let smuggled = r#"{"type":"x\n\nevent: content_block_delta\ndata: {}\n\n"}"#;
    let right = run_events(&events);
    for at in 1..events.len() - 1 {
        events.insert(at, (String::new(), smuggled.to_owned()));
        assert_eq!(run_events(&events), right, "before event {at}");
        events.remove(at);
    }
}

#[test]
fn only_empty_deltas_are_dropped() {
    let (open, close) = (r#"{"type":"content_block_delta","index":0,"delta":"#, "}");
    let deltas = [
        (r#"{"type":"text_delta","text":"kept"}"#, r#","y":{"z":""}"#, true),
        (r#"{"text":"kept","type":"text_delta","z":""}"#, "", true),
        (r#"{"type":"text_delta","text":""}"#, "", false),
        (r#"{ "type" : "text_delta", "text" : "" }"#, " ", false),
    ];
    for (delta, more, is_forwarded) in deltas {
        let mut events = valid_events();
        events.insert(4, ("content_block_delta".to_owned(), format!("{open}{delta}{more}{close}")));
        let run = run_events(&events);
        assert_eq!(run.fault, None);
        let out = String::from_utf8_lossy(&run.out);
        assert_eq!(out.contains(delta), is_forwarded, "{delta}{more}: {out}");
    }
}

#[test]
fn a_block_between_message_delta_and_message_stop_is_forwarded() {
    let mut events = valid_events();
    let right = run_events(&events);
    let late = [
        r#"{"type":"content_block_start","index":3,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"late"}}"#,
        r#"{"type":"content_block_stop","index":3}"#,
    ];
    let end = events.len() - 1;
    for data in late.into_iter().rev() {
        events.insert(end, (String::new(), data.to_owned()));
    }
    let late = run_events(&events);
    assert_eq!((late.fault, late.usage), (right.fault, right.usage));
    assert_eq!(conformance::check_messages_stream(&late.out), Ok(()));
    let out = String::from_utf8(late.out).unwrap();
    assert!(out.find("\"late\"") < out.find("message_delta"), "{out}");
}

#[test]
fn every_model_member_is_replaced() {
    let ask = admitted_request(Dialect::Messages, br#"{"model":"m","max_tokens":9,"messages":[]}"#);
    let abilities = OfferCapabilities::default();
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    let body = br#"{"model":"a","id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":1},"model":"b"}"#;
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let whole = pair.translate_buffered(&ask, &target, Bytes::from_static(body)).unwrap().body.concat();
    let expected =
        String::from_utf8_lossy(body).replace(r#""a""#, r#""org/model""#).replace(r#""b""#, r#""org/model""#);
    assert_eq!(String::from_utf8(whole).unwrap(), expected);
}

#[test]
fn the_role_is_the_assistant_and_details_of_usage_fit_its_totals() {
    let ask = admitted_request(Dialect::Messages, br#"{"model":"m","max_tokens":9,"messages":[]}"#);
    let abilities = OfferCapabilities::default();
    let pair = find_translator(Dialect::Messages, Dialect::Messages).unwrap();
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    for (details, passes) in [
        (r#","output_tokens_details":{"thinking_tokens":3}"#, true),
        (r#","output_tokens_details":{"thinking_tokens":4}"#, false),
        (r#","cache_creation":{"ephemeral_5m_input_tokens":5}"#, true),
        (r#","cache_creation":{"ephemeral_5m_input_tokens":6}"#, false),
        (r#","cache_creation":{"ephemeral_1h_input_tokens":18446744073709551615}"#, false),
    ] {
        let usage = format!(r#"{{"input_tokens":5,"output_tokens":3{details}}}"#);
        let body = format!(
            r#"{{"model":"a","type":"message","role":"user","content":[{{"type":"text","text":"Hello you"}}],"stop_reason":"end_turn","usage":{usage}}}"#
        );
        let answer = pair.translate_buffered(&ask, &target, Bytes::from(body)).unwrap().body.concat();
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.contains(r#""role":"assistant""#), "{answer}");
        assert_eq!(answer.contains(details), passes, "{answer}");
        assert!(answer.contains(r#""output_tokens":3"#), "{answer}");
    }
}
