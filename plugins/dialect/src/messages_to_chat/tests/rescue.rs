//! Rescue tests: a second provider of either dialect continues the answer after the first stream breaks.

use super::admitted_request;
use crate::{conformance, find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const ASK: &[u8] = br#"{"model":"m","max_tokens":9,"messages":[],"stream":true}"#;

fn named_event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap())
}

fn native_start() -> String {
    let usage = json!({"input_tokens":3,"output_tokens":0,"cache_creation_input_tokens":0,"cache_read_input_tokens":0});
    let message = json!({"id":"msg_native","type":"message","role":"assistant","model":"x","content":[],"stop_reason":null,"stop_sequence":null,"usage":usage});
    named_event(&json!({"type":"message_start","message":message}))
}

fn block_start(index: u32, block: Value) -> String {
    named_event(&json!({"type":"content_block_start","index":index,"content_block":block}))
}

fn text_delta(index: u32, text: &str) -> String {
    named_event(
        &json!({"type":"content_block_delta","index":index,"delta":{"type":"text_delta","text":text}}),
    )
}

fn block_stop(index: u32) -> String {
    named_event(&json!({"type":"content_block_stop","index":index}))
}

fn chat_chunk(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"content":text}}]}))
}

const CHAT_END: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Runs a rescue: the first provider's stream breaks; a provider of `second`'s dialect follows. Returns `None` if that
/// provider cannot continue the answer.
fn run_rescue(
    first: (Dialect, &str),
    how: RescueMode,
    second: (Dialect, &str),
) -> Option<(Option<UpstreamErrorKind>, String)> {
    let abilities = OfferCapabilities::default();
    let ask = admitted_request(Dialect::Messages, ASK);
    let target = test_support::sample_target(first.0, &abilities);
    let mut reply = find_translator(Dialect::Messages, first.0).unwrap().translate_stream(&ask, &target);
    let mut out = OutputBuffer::default();
    reply.push(Bytes::from(first.1.to_owned()), &mut out).unwrap();
    assert_eq!(reply.end(&mut out).unwrap_err().kind, UpstreamErrorKind::Truncated);
    if !reply.start_rescue(&test_support::sample_target(second.0, &abilities), how) {
        return None;
    }
    let run = test_support::run_stream(&mut *reply, second.1.as_bytes().chunks(7));
    let all = [out.0.concat(), run.out].concat();
    assert_eq!(conformance::check_messages_stream(&all), Ok(()), "{}", String::from_utf8_lossy(&all));
    Some((run.fault, String::from_utf8(all).unwrap()))
}

fn delivered_text(out: &str) -> String {
    let data = out.split("\n\n").filter_map(|event| Some(event.split_once("\ndata: ")?.1));
    let data = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    data.map(|data| data["delta"]["text"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_chat_provider_rescues_a_native_stream_at_any_point() {
    let events = [
        native_start(),
        block_start(0, json!({"type":"text","text":""})),
        text_delta(0, "Hello, "),
        text_delta(0, "wor"),
        block_stop(0),
    ];
    for cut in 3..=events.len() {
        let first = events[..cut].concat();
        let second = chat_chunk("Hello, world") + &chat_chunk(". More.") + CHAT_END;
        let (fault, all) =
            run_rescue((Dialect::Messages, &first), RescueMode::StartOver, (Dialect::Chat, &second)).unwrap();
        assert_eq!(fault, None);
        assert_eq!(delivered_text(&all), "Hello, world. More.");
        assert!(all.contains("msg_native") && all.contains("environment_impact"));
        assert_eq!(all.matches("event: message_start").count(), 1);
    }
}

#[test]
fn hidden_thinking_does_not_prevent_a_rescue() {
    let thinks = |index| {
        let delta = json!({"type":"thinking_delta","thinking":"hmm"});
        block_start(index, json!({"type":"thinking","thinking":"","signature":""}))
            + &named_event(&json!({"type":"content_block_delta","index":index,"delta":delta}))
            + &block_stop(index)
    };
    let says =
        |index, words| block_start(index, json!({"type":"text","text":""})) + &text_delta(index, words);
    let second = chat_chunk("Hello, world.") + CHAT_END;
    for first in [
        native_start() + &thinks(0) + &says(1, "Hello, "),
        native_start() + &says(0, "Hello, ") + &block_stop(0) + &thinks(1),
        native_start() + &thinks(0) + &thinks(1),
        native_start() + &block_start(0, json!({"type":"text","text":""})) + &block_stop(0) + &thinks(1),
    ] {
        let (fault, all) =
            run_rescue((Dialect::Messages, &first), RescueMode::StartOver, (Dialect::Chat, &second)).unwrap();
        assert_eq!((fault, delivered_text(&all).as_str()), (None, "Hello, world."));
        assert!(all.contains("msg_native") && !all.contains("hmm"), "{all}");
    }
}

#[test]
fn a_native_stream_is_continued_by_a_native_provider() {
    let first =
        native_start() + &block_start(0, json!({"type":"text","text":""})) + &text_delta(0, "Hello, ");
    let second = native_start()
        + &block_start(0, json!({"type":"text","text":""}))
        + &text_delta(0, "world.")
        + &block_stop(0)
        + &named_event(
            &json!({"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}),
        )
        + &named_event(&json!({"type":"message_stop"}));
    let (fault, all) =
        run_rescue((Dialect::Messages, &first), RescueMode::Continue, (Dialect::Messages, &second)).unwrap();
    assert_eq!((fault, delivered_text(&all).as_str()), (None, "Hello, world."));
}

#[test]
fn a_native_provider_rescues_a_translated_stream() {
    let second = native_start()
        + &block_start(0, json!({"type":"text","text":""}))
        + &text_delta(0, "Hello, world.")
        + &block_stop(0)
        + &named_event(
            &json!({"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}),
        )
        + &named_event(&json!({"type":"message_stop"}));
    let (fault, all) =
        run_rescue((Dialect::Chat, &chat_chunk("Hel")), RescueMode::StartOver, (Dialect::Messages, &second))
            .unwrap();
    assert_eq!((fault, delivered_text(&all).as_str()), (None, "Hello, world."));
}

/// Returns the signatures that a client gets, if the first stream breaks after `first` and a second provider repeats
/// the answer in these pieces; `None` if there is nothing to rescue.
fn rescued_signatures<'a>(first: &str, pieces: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<String>> {
    let abilities = OfferCapabilities::default();
    let mut ask = admitted_request(Dialect::Messages, ASK);
    ask.thinking = ThinkingDisplay::Shown;
    let target = test_support::sample_target(Dialect::Messages, &abilities);
    let mut reply =
        find_translator(Dialect::Messages, Dialect::Messages).unwrap().translate_stream(&ask, &target);
    let mut out = OutputBuffer::default();
    reply.push(Bytes::from(first.to_owned()), &mut out).unwrap();
    if reply.progress() != StreamProgress::Committed {
        return None;
    }
    assert!(reply.start_rescue(&target, RescueMode::StartOver));
    let run = test_support::run_stream(&mut *reply, pieces);
    let all = [out.0.concat(), run.out].concat();
    assert_eq!((run.fault, conformance::check_messages_stream(&all)), (None, Ok(())), "{first}");
    let all = String::from_utf8(all).unwrap();
    assert_eq!(delivered_text(&all), "Hi.", "{all}");
    let data = all.lines().filter_map(|line| line.strip_prefix("data: "));
    let data = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
    Some(data.filter_map(|event| event["delta"]["signature"].as_str().map(str::to_owned)).collect())
}

#[test]
fn the_signature_of_repeated_thinking_arrives_once_wherever_the_first_stream_broke() {
    let delta = |delta: Value| named_event(&json!({"type":"content_block_delta","index":0,"delta":delta}));
    let thinks = |text: &str| delta(json!({"type":"thinking_delta","thinking":text}));
    let signs = |seal: &str| delta(json!({"type":"signature_delta","signature":seal}));
    let start = native_start() + &block_start(0, json!({"type":"thinking","thinking":"","signature":""}));
    let answer = block_stop(0)
        + &block_start(1, json!({"type":"text","text":""}))
        + &text_delta(1, "Hi.")
        + &block_stop(1)
        + &named_event(
            &json!({"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}),
        )
        + &named_event(&json!({"type":"message_stop"}));
    let second = start.clone() + &thinks("Hm") + &signs("seal") + &answer;
    let second = second.as_bytes();
    let thoughts = start.clone() + &thinks("H") + &thinks("m");
    let signed = thoughts.clone() + &signs("own");
    let first = signed.clone() + &answer;
    let mut count = 0;
    for break_at in 0..first.len() {
        let Some(signatures) = rescued_signatures(&first[..break_at], [second]) else { continue };
        // From here on, the client has the signature of the first provider.
        let seal = if break_at < signed.len() { "seal" } else { "own" };
        assert_eq!(signatures, [seal], "{break_at}");
        count += 1;
    }
    assert!(count > 600, "{count}");
    for (first, seal) in [(&thoughts, "seal"), (&signed, "own")] {
        assert_eq!(rescued_signatures(first, second.chunks(1)).unwrap(), [seal]);
        for cut in 0..second.len() {
            let (one, other) = second.split_at(cut);
            assert_eq!(rescued_signatures(first, [one, other]).unwrap(), [seal], "{cut}");
        }
    }
}

#[test]
fn a_diverging_rescue_ends_with_an_error_without_repeated_text() {
    let first =
        native_start() + &block_start(0, json!({"type":"text","text":""})) + &text_delta(0, "Hello, ");
    let second = chat_chunk("Goodbye") + CHAT_END;
    let (fault, all) =
        run_rescue((Dialect::Messages, &first), RescueMode::StartOver, (Dialect::Chat, &second)).unwrap();
    assert_eq!((fault, delivered_text(&all).as_str()), (Some(UpstreamErrorKind::Diverged), "Hello, "));
    assert!(all.contains("event: error") && !all.contains("message_stop"));
}

#[test]
fn an_input_in_the_block_start_is_sent_once_after_a_rescue() {
    let first = native_start()
        + &block_start(0, json!({"type":"tool_use","id":"a","name":"f","input":{"k":1}}))
        + &block_stop(0);
    let call = json!({"index":0,"id":"b","type":"function","function":{"name":"f","arguments":"{\"k\":1}"}});
    let second = format!("data: {}\n\n", json!({"choices":[{"index":0,"delta":{"tool_calls":[call]}}]}))
        + &CHAT_END.replace("stop", "tool_calls");
    let (fault, all) =
        run_rescue((Dialect::Messages, &first), RescueMode::StartOver, (Dialect::Chat, &second)).unwrap();
    assert_eq!(fault, None);
    assert_eq!(all.matches(r#""partial_json":"{\"k\":1}""#).count(), 1, "{all}");
}

#[test]
fn text_in_the_block_start_is_sent_once_after_a_rescue() {
    let first = native_start() + &block_start(0, json!({"type":"text","text":"Hello, "}));
    let second = chat_chunk("Hello, world.") + CHAT_END;
    let (fault, all) =
        run_rescue((Dialect::Messages, &first), RescueMode::StartOver, (Dialect::Chat, &second)).unwrap();
    assert_eq!((fault, delivered_text(&all).as_str()), (None, "Hello, world."));
}

#[test]
fn a_stream_that_the_shadow_cannot_reproduce_is_not_rescued() {
    let foreign = native_start()
        + &block_start(0, json!({"type":"server_tool_use","id":"s","name":"web","input":{}}))
        + &block_stop(0)
        + &block_start(1, json!({"type":"text","text":""}))
        + &text_delta(1, "Hi");
    assert_eq!(
        run_rescue((Dialect::Messages, &foreign), RescueMode::StartOver, (Dialect::Chat, CHAT_END)),
        None
    );
    let two_texts = native_start()
        + &block_start(0, json!({"type":"text","text":""}))
        + &text_delta(0, "a")
        + &block_stop(0)
        + &block_start(1, json!({"type":"text","text":""}))
        + &text_delta(1, "b");
    assert_eq!(
        run_rescue((Dialect::Messages, &two_texts), RescueMode::StartOver, (Dialect::Chat, CHAT_END)),
        None
    );
    let tool = json!({"type":"tool_use","id":"a","name":"f","input":{}});
    let silent = native_start()
        + &block_start(0, json!({"type":"text","text":""}))
        + &block_stop(0)
        + &block_start(1, tool);
    assert_eq!(
        run_rescue((Dialect::Messages, &silent), RescueMode::StartOver, (Dialect::Chat, CHAT_END)),
        None
    );
}
