//! Tests of the usage that is charged for an answer from which the gateway removed output: text from a stop sequence
//! on, and parallel tool calls. Buffered and streamed answers are charged alike.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use crate::completions::completion_translator;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

const CLIENTS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];
const PROVIDERS: [Dialect; 3] = [Dialect::Chat, Dialect::Messages, Dialect::Responses];

fn ask(client: Dialect, members: &Value) -> InferenceRequest {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi there"}]});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    test_support::sample_request(client, body.to_string().as_bytes())
}

/// Returns the answer of a provider: its buffered body, and its stream.
fn text_answer(provider: Dialect, text: &str, tokens: u64) -> (String, String) {
    let event = |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    match provider {
        Dialect::Messages => {
            let usage = json!({"input_tokens": 9, "output_tokens": tokens});
            let message = |content: Value, reason: Value| {
                json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
                    "stop_reason": reason, "stop_sequence": null, "usage": usage})
            };
            let block = |text: &str| json!({"type": "text", "text": text});
            let pieces = text.split_inclusive(' ').map(|piece| {
                json!({"type": "content_block_delta", "index": 0,
                    "delta": {"type": "text_delta", "text": piece}})
            });
            let events = [
                json!({"type": "message_start", "message": message(json!([]), Value::Null)}),
                json!({"type": "content_block_start", "index": 0, "content_block": block("")}),
            ];
            let end = [
                json!({"type": "content_block_stop", "index": 0}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}),
                json!({"type": "message_stop"}),
            ];
            let stream = events.into_iter().chain(pieces).chain(end).map(event).collect();
            (message(json!([block(text)]), json!("end_turn")).to_string(), stream)
        }
        Dialect::Responses => {
            let item = |text: &str| {
                json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": text, "annotations": []}]})
            };
            let response = |status: &str, output: Value| {
                json!({"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": status,
                    "output": output, "usage": {"input_tokens": 9, "output_tokens": tokens}})
            };
            let pieces = text.split_inclusive(' ').map(|piece| {
                json!({"type": "response.output_text.delta", "output_index": 0, "item_id": "msg_1",
                    "content_index": 0, "delta": piece})
            });
            let start = [
                json!({"type": "response.created", "response": response("in_progress", json!([]))}),
                json!({"type": "response.output_item.added", "output_index": 0, "item": item("")}),
            ];
            let whole = response("completed", json!([item(text)]));
            let end = [
                json!({"type": "response.output_item.done", "output_index": 0, "item": item(text)}),
                json!({"type": "response.completed", "response": whole}),
            ];
            (whole.to_string(), start.into_iter().chain(pieces).chain(end).map(event).collect())
        }
        _ => chat_answer(&[text], tokens),
    }
}

/// Returns a chat answer with these choices: its buffered body, and its stream.
fn chat_answer(texts: &[&str], tokens: u64) -> (String, String) {
    let usage = json!({"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens});
    let choices: Vec<Value> = texts
        .iter()
        .enumerate()
        .map(|(index, text)| {
            json!({"index": index, "finish_reason": "stop", "text": text,
                "message": {"role": "assistant", "content": text}})
        })
        .collect();
    let chunk = |choices: Value, usage: &Value| {
        format!("data: {}\n\n", json!({"id": "a", "choices": choices, "usage": usage}))
    };
    let mut stream = String::new();
    for (index, text) in texts.iter().enumerate() {
        for piece in text.split_inclusive(' ') {
            let choice = json!({"index": index, "delta": {"content": piece}, "text": piece});
            stream += &chunk(json!([choice]), &Value::Null);
        }
        stream += &chunk(json!([{"index": index, "delta": {}, "finish_reason": "stop"}]), &Value::Null);
    }
    stream += &chunk(json!([]), &usage);
    (json!({"id": "a", "choices": choices, "usage": usage}).to_string(), stream + "data: [DONE]\n\n")
}

/// Returns the charged usage of the buffered and the streamed answer, and the usage of the buffered answer's provider.
fn charges(
    pair: &dyn Translator,
    ask: &InferenceRequest,
    target: &AttemptTarget<'_>,
    (body, stream): &(String, String),
) -> ((TokenUsage, TokenUsage), Option<TokenUsage>) {
    let whole = pair.translate_buffered(ask, target, Bytes::from(body.clone())).unwrap();
    let stated = |work: Option<WorkDone>| work.and_then(|work| work.usage().copied());
    let text = String::from_utf8(whole.body.concat()).unwrap();
    let streamed = InferenceRequest { stream: true, ..ask.clone() };
    let run = test_support::run_all_splits(&|| pair.translate_stream(&streamed, target), stream.as_bytes());
    assert_eq!(run.fault, None);
    let mut reply = pair.translate_stream(&streamed, target);
    test_support::run_stream(&mut *reply, [stream.as_bytes()]);
    let usage = run.usage.unwrap_or_else(|| reply.estimated_usage());
    let charged = stated(whole.work).unwrap();
    let names = ["completion_tokens", "output_tokens"].map(|name| format!("\"{name}\":{}", charged.output));
    assert!(names.iter().any(|name| text.contains(name)), "{text}");
    ((charged, usage), stated(whole.provider_work))
}

/// Asserts that both forms of an answer are charged for `output` tokens of the gateway's own count.
fn assert_counted((plain, streamed): (TokenUsage, TokenUsage), output: u64, what: &str) {
    let charged = |usage: TokenUsage| (usage.output, usage.reasoning, usage.source);
    assert_eq!(charged(plain), (output, 0, UsageSource::Gateway), "{what}");
    assert_eq!(charged(streamed), charged(plain), "{what}");
    assert_eq!(plain.input, 9, "{what}");
}

/// Returns targets that do not get the stop sequence `there`.
fn targets_without_stop<'t>(
    provider: Dialect,
    one: &'t OfferCapabilities,
    none: &'t OfferCapabilities,
) -> [AttemptTarget<'t>; 2] {
    let mut refused = test_support::sample_target(provider, one);
    refused.adjustment.omitted = AdjustableMemberSet::from_member(AdjustableMember::Stop);
    [test_support::sample_target(provider, none), refused]
}

#[test]
fn text_behind_an_enforced_stop_sequence_is_not_charged() {
    let one = OfferCapabilities::default();
    let none = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    let long = format!("Hello there. {}", "word ".repeat(30));
    for client in CLIENTS {
        for provider in PROVIDERS {
            for target in targets_without_stop(provider, &one, &none) {
                for (text, tokens) in [(long.as_str(), 33), (&*long, 9_999), ("Hello there", 3)] {
                    let pair = find_translator(client, provider).unwrap();
                    let ask = ask(client, &json!({"stop": ["there"]}));
                    let (charged, worked) =
                        charges(pair, &ask, &target, &text_answer(provider, text, tokens));
                    let what = format!("{client:?} {provider:?} {tokens}");
                    assert_counted(charged, 2, &what);
                    let worked = worked.unwrap();
                    assert!(worked.output == tokens || worked.source == UsageSource::Overstated, "{what}");
                }
            }
        }
    }
}

#[test]
fn text_behind_a_stop_sequence_of_a_completion_is_not_charged() {
    let none = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &none);
    let mut ask = ask(Dialect::Chat, &json!({"prompt": "Hi there", "stop": ["there"]}));
    ask.task = InferenceTask::Complete(CompletionTask {
        prompts: vec![Bytes::from_static(b"\"Hi there\"")],
        has_token_ids: false,
        echo: false,
        choices_per_prompt: 1,
        generations_per_prompt: 1,
    });
    for has_endpoint in [true, false] {
        let pair = completion_translator(has_endpoint);
        let answer = chat_answer(&[&format!("Hello there. {}", "word ".repeat(30))], 33);
        let (charged, worked) = charges(pair, &ask, &target, &answer);
        assert_counted(charged, 2, "completion");
        assert_eq!(worked.unwrap().output, 33);
    }
}

#[test]
fn one_stopped_choice_of_several_is_charged_up_to_its_stop_sequence() {
    let none = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &none);
    let pair = find_translator(Dialect::Chat, Dialect::Chat).unwrap();
    let ask = ask(Dialect::Chat, &json!({"stop": ["there"], "n": 2}));
    let long = format!("Hello there. {}", "word ".repeat(30));
    for texts in [[&*long, "Just this."], ["Just this.", &*long]] {
        let (charged, worked) = charges(pair, &ask, &target, &chat_answer(&texts, 36));
        // `Hello ` and `Just this.` together have 16 bytes.
        assert_counted(charged, 4, &texts.concat());
        assert_eq!(worked.unwrap().output, 36);
    }
}

#[test]
fn fewer_reported_tokens_than_the_count_of_the_delivered_text_are_believed() {
    let none = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    let target = test_support::sample_target(Dialect::Chat, &none);
    let pair = find_translator(Dialect::Chat, Dialect::Chat).unwrap();
    let ask = ask(Dialect::Chat, &json!({"stop": ["there"]}));
    let text = format!("{} there", " ".repeat(200));
    let ((plain, streamed), _) = charges(pair, &ask, &target, &chat_answer(&[&text], 5));
    assert_eq!((plain.output, plain.source), (5, UsageSource::Gateway));
    assert_eq!((streamed.output, streamed.source), (5, UsageSource::Gateway));
    let ((plain, _), _) = charges(pair, &ask, &target, &chat_answer(&[&text], 0));
    assert_eq!((plain.output, plain.source), (51, UsageSource::Gateway), "201 bytes are more than 0 tokens");
}

#[test]
fn removed_parallel_calls_are_not_charged() {
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let call = |index: u64, city: &str| {
        json!({"index": index, "id": format!("c{index}"), "type": "function",
            "function": {"name": "look", "arguments": format!("{{\"city\":\"{city}\"}}")}})
    };
    let calls = [call(0, "Rome"), call(1, &"Bonn".repeat(100))];
    let usage = json!({"prompt_tokens": 9, "completion_tokens": 120});
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let body = json!({"id": "a", "usage": usage,
        "choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]});
    let chunk = |choice: Value| format!("data: {}\n\n", json!({"id": "a", "choices": [choice]}));
    let stream = chunk(json!({"index": 0, "delta": {"tool_calls": [calls[0]]}}))
        + &chunk(json!({"index": 0, "delta": {"tool_calls": [calls[1]]}}))
        + &chunk(json!({"index": 0, "delta": {}, "finish_reason": "tool_calls"}))
        + &format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage}));
    let answer = (body.to_string(), stream);
    for client in CLIENTS {
        let pair = find_translator(client, Dialect::Chat).unwrap();
        let single = ask(client, &json!({"parallel_tool_calls": false}));
        let (charged, worked) = charges(pair, &single, &target, &answer);
        // `look` and its arguments have 19 bytes.
        assert_counted(charged, 5, &format!("{client:?}"));
        assert_eq!(worked.unwrap().output, 120);
        let ((plain, streamed), worked) = charges(pair, &ask(client, &json!({})), &target, &answer);
        assert_eq!((plain, worked), (streamed, None));
        assert_eq!((plain.output, plain.source), (120, UsageSource::Provider));
    }
}

#[test]
fn usage_stands_if_no_stop_sequence_was_met() {
    let none = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
    for provider in PROVIDERS {
        let target = test_support::sample_target(provider, &none);
        let pair = find_translator(Dialect::Chat, provider).unwrap();
        let ask = ask(Dialect::Chat, &json!({"stop": ["there"]}));
        let ((plain, streamed), worked) =
            charges(pair, &ask, &target, &text_answer(provider, "Hello the one ", 7));
        assert_eq!((plain, worked), (streamed, None), "{provider:?}");
        assert_eq!((plain.output, plain.source), (7, UsageSource::Provider), "{provider:?}");
    }
}
