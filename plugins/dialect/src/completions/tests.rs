//! Tests of text completions.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::{completion_translator, missing_capability_error};
use crate::test_support::sample_request;
use bytes::Bytes;
use penstock_core::*;
use serde_json::{Value, json};

fn request(body: &Value) -> InferenceRequest {
    let text = body.to_string();
    let prompts = match &body["prompt"] {
        Value::Array(all) if all.iter().all(|one| !one.is_number()) => all.clone(),
        one => vec![one.clone()],
    };
    let number = |name: &str| body[name].as_u64().and_then(|number| u32::try_from(number).ok());
    let n = number("n").unwrap_or(1);
    let task = CompletionTask {
        has_token_ids: prompts.iter().any(Value::is_array),
        prompts: prompts.iter().map(|prompt| Bytes::from(prompt.to_string())).collect(),
        echo: body["echo"] == true,
        choices_per_prompt: n,
        generations_per_prompt: number("best_of").unwrap_or(n),
    };
    let choices = u32::try_from(task.prompts.len()).unwrap() * n;
    let base = sample_request(Dialect::Chat, text.as_bytes());
    InferenceRequest { task: InferenceTask::Complete(task), n: choices, ..base }
}

fn target(abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "theirs",
        dialect: Dialect::Chat,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: RequestAdjustment::default(),
        answer_model: "m",
        answer_id: "abc",
        answer_created: 7,
    }
}

fn abilities(has_endpoint: bool) -> OfferCapabilities {
    OfferCapabilities { completions: has_endpoint, ..OfferCapabilities::default() }
}

fn sent(body: &Value, has_endpoint: bool) -> Value {
    let abilities = abilities(has_endpoint);
    let segments =
        completion_translator(has_endpoint).build_request(&request(body), &target(&abilities)).unwrap();
    serde_json::from_slice(&segments.concat()).unwrap()
}

#[test]
fn a_provider_with_the_endpoint_gets_the_prompt_unchanged() {
    let body = json!({"model": "m", "prompt": ["One \u{e9}", [1, 2, 3]], "max_tokens": 5, "n": 2, "best_of": 3,
        "echo": true, "logprobs": 1, "stop": "x", "temperature": 0.5, "user": "u", "seed": 4});
    assert_eq!(
        sent(&body, true),
        json!({"model": "theirs", "prompt": ["One \u{e9}", [1, 2, 3]], "max_tokens": 5, "n": 2, "best_of": 3,
            "echo": true, "logprobs": 1, "stop": ["x"], "temperature": 0.5, "seed": 4})
    );
    assert_eq!(completion_translator(true).path(), "/completions");
}

#[test]
fn a_provider_with_chat_alone_gets_the_prompt_as_a_message() {
    let body = json!({"model": "m", "prompt": "One", "max_tokens": 5, "stream": true, "top_p": 0.5});
    assert_eq!(
        sent(&body, false),
        json!({"model": "theirs", "messages": [{"role": "user", "content": "One"}], "max_tokens": 5, "top_p": 0.5,
            "stream": true, "stream_options": {"include_usage": true}})
    );
    assert_eq!(completion_translator(false).path(), "/chat/completions");
}

#[test]
fn a_provider_with_chat_alone_refuses_by_name_what_depends_on_the_tokens() {
    let field = |body: Value, has_endpoint: bool| {
        let ask = request(&body);
        let InferenceTask::Complete(task) = &ask.task else { panic!() };
        let refusal = missing_capability_error(task, &ask, &abilities(has_endpoint));
        refusal.map(|refusal| refusal.param.unwrap().to_string())
    };
    assert_eq!(field(json!({"prompt": "a"}), false), None);
    for (body, name) in [
        (json!({"prompt": [1]}), "prompt"),
        (json!({"prompt": ["a", "b"]}), "prompt"),
        (json!({"prompt": "a", "echo": true}), "echo"),
        (json!({"prompt": "a", "logprobs": 1}), "logprobs"),
        (json!({"prompt": "a", "suffix": "b"}), "suffix"),
        (json!({"prompt": "a", "n": 2}), "n"),
        (json!({"prompt": "a", "best_of": 2}), "best_of"),
    ] {
        assert_eq!(field(body.clone(), false).as_deref(), Some(name), "{body}");
        assert_eq!(field(body.clone(), true).as_deref(), (name == "suffix").then_some(name), "{body}");
    }
}

#[test]
fn a_bias_without_entries_is_no_bias() {
    let abilities = abilities(true);
    for (bias, is_refused) in [("{}", false), ("{ }", false), ("{\n}", false), (r#"{"1": 2}"#, true)] {
        let body = format!(r#"{{"model": "m", "prompt": "a", "logit_bias": {bias}}}"#);
        let ask = sample_request(Dialect::Chat, body.as_bytes());
        let task = request(&json!({"prompt": "a"})).task;
        let sent = completion_translator(true)
            .build_request(&InferenceRequest { task, ..ask.clone() }, &target(&abilities));
        assert_eq!(sent.as_ref().is_err(), is_refused, "{bias}");
        assert!(sent.is_err() || !String::from_utf8(sent.unwrap().concat()).unwrap().contains("bias"));
        for provider in [Dialect::Chat, Dialect::Messages] {
            let pair = crate::find_translator(Dialect::Chat, provider).unwrap();
            let body = body.replace(r#""prompt": "a""#, r#""messages": [{"role": "user", "content": "a"}]"#);
            let ask = sample_request(Dialect::Chat, body.as_bytes());
            let sent = pair.build_request(&ask, &AttemptTarget { dialect: provider, ..target(&abilities) });
            assert_eq!(
                sent.err().map(|error| error.code),
                is_refused.then_some(ErrorCode::Unsupported),
                "{bias}"
            );
        }
    }
}

#[test]
fn dropped_answers_of_best_of_count_for_the_cap() {
    let abilities = abilities(true);
    for (tokens, reason) in [(240, "stop"), (399, "stop"), (400, "length")] {
        let ask = request(&json!({"model": "m", "prompt": "a", "best_of": 4, "max_tokens": 100}));
        let ask = InferenceRequest { max_tokens: Some(100), ..ask };
        let body = format!(
            r#"{{"object":"text_completion","choices":[{{"index":0,"text":"{}","finish_reason":null}}],"usage":{{"prompt_tokens":1,"completion_tokens":{tokens}}}}}"#,
            "word ".repeat(100)
        );
        let answer = completion_translator(true)
            .translate_buffered(&ask, &target(&abilities), Bytes::from(body))
            .unwrap();
        let written: Value = serde_json::from_slice(&answer.body.concat()).unwrap();
        assert_eq!(written["choices"][0]["finish_reason"], reason, "{tokens}");
    }
}

#[test]
fn a_plain_completion_without_a_finish_reason_ends_as_a_chat_answer_does() {
    let abilities = abilities(true);
    let usages = [
        "",
        r#","usage":{"prompt_tokens":1,"completion_tokens":1}"#,
        r#","usage":{"prompt_tokens":1,"completion_tokens":2}"#,
    ];
    for (finish, usage) in ["", r#","finish_reason":null"#, r#","finish_reason":"""#]
        .into_iter()
        .flat_map(|finish| usages.map(|usage| (finish, usage)))
    {
        let answer =
            |output: &str| Bytes::from(format!(r#"{{"choices":[{{"index":0,{output}{finish}}}]{usage}}}"#));
        let ask = InferenceRequest {
            max_tokens: Some(2),
            ..request(&json!({"model": "m", "prompt": "a", "max_tokens": 2}))
        };
        let completion = completion_translator(true).translate_buffered(
            &ask,
            &target(&abilities),
            answer(r#""text":"One two""#),
        );
        let body = json!({"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "a"}]});
        let ask = InferenceRequest {
            max_tokens: Some(2),
            ..sample_request(Dialect::Chat, body.to_string().as_bytes())
        };
        let chat = crate::find_translator(Dialect::Chat, Dialect::Chat).unwrap().translate_buffered(
            &ask,
            &target(&abilities),
            answer(r#""message":{"role":"assistant","content":"One two"}"#),
        );
        let end = |answer: Result<BufferedResponse, UpstreamError>| {
            answer.map(|answer| answer.finish_reason).map_err(|fault| fault.kind)
        };
        assert_eq!(end(completion), end(chat), "{finish} {usage}");
    }
}

#[test]
fn a_broken_answer_is_continued_behind_its_prompt() {
    let abilities = abilities(true);
    let go = |body: Value| {
        completion_translator(true).build_continuation(&request(&body), &target(&abilities), " two\n\"three")
    };
    let body = go(json!({"model": "m", "prompt": "One\u{e9}", "max_tokens": 5})).unwrap().concat();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["prompt"], "One\u{e9} two\n\"three");
    assert!(go(json!({"prompt": ["a", "b"]})).is_err());
    assert!(go(json!({"prompt": "a", "echo": true})).is_err());
}

const LOGPROBS: &str = r#"{"text_offset":[0,3],"token_logprobs":[null,-0.5],"tokens":["One"," two"],"top_logprobs":[null,{" two":-0.5}]}"#;

#[test]
fn a_buffered_answer_has_every_choice_with_its_log_probabilities() {
    let ask = request(
        &json!({"model": "m", "prompt": ["One", "Uno"], "echo": true, "logprobs": 1, "max_tokens": 0}),
    );
    let body = format!(
        r#"{{"id":"x","object":"text_completion","choices":[
            {{"index":0,"text":"One two","logprobs":{LOGPROBS},"finish_reason":"length","stop_reason":null}},
            {{"index":1,"text":"Uno due","logprobs":{LOGPROBS},"finish_reason":"length"}}],
            "usage":{{"prompt_tokens":4,"completion_tokens":0,"total_tokens":4}}}}"#
    );
    let abilities = abilities(true);
    let answer =
        completion_translator(true).translate_buffered(&ask, &target(&abilities), Bytes::from(body)).unwrap();
    let written: Value = serde_json::from_slice(&answer.body.concat()).unwrap();
    assert_eq!((&written["id"], &written["object"]), (&json!("cmpl-abc"), &json!("text_completion")));
    assert_eq!(written["choices"][1]["text"], "Uno due");
    assert_eq!(written["choices"][0]["logprobs"], serde_json::from_str::<Value>(LOGPROBS).unwrap());
    assert_eq!(written["choices"][0]["finish_reason"], "length");
    let usage = answer.usage().unwrap();
    assert_eq!(
        (usage.input, usage.output, usage.source),
        (4, 0, UsageSource::Provider),
        "an echo is no output"
    );
}

#[test]
fn a_stream_is_the_same_however_it_is_cut() {
    let ask = request(&json!({"model": "m", "prompt": ["One", "Uno"], "stream": true, "logprobs": 0}));
    let event = |index: u32, text: &str, finish: &str| {
        format!(
            "data: {{\"id\":\"x\",\"choices\":[{{\"index\":{index},\"text\":\"{text}\",\"logprobs\":{{\"tokens\":[\"{text}\"]}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let stream = [
        event(0, " two", "null"),
        event(1, " due\u{e9}", "null"),
        event(0, " three", "\"stop\""),
        event(1, "", "\"length\""),
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":9}}\n\ndata: [DONE]\n\n"
            .to_owned(),
    ]
    .concat();
    let abilities = abilities(true);
    let run = |cut: usize| {
        let mut reply = completion_translator(true).translate_stream(&ask, &target(&abilities));
        let mut out = OutputBuffer::default();
        let bytes = Bytes::from(stream.clone());
        reply.push(bytes.slice(..cut), &mut out).unwrap();
        reply.push(bytes.slice(cut..), &mut out).unwrap();
        reply.end(&mut out).unwrap();
        let usage = reply.usage().unwrap();
        reply.write_end(&usage, b"\"billing_cost\":{}", &mut out);
        String::from_utf8(out.0.concat()).unwrap()
    };
    let whole = run(stream.len());
    for cut in 0..stream.len() {
        assert_eq!(run(cut), whole, "cut at {cut}");
    }
    let events: Vec<&str> = whole.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    assert_eq!(events.last(), Some(&"[DONE]"));
    let chunks: Vec<Value> = events
        .iter()
        .filter(|data| **data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let text = |choice: u64| -> String {
        let of = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
        of.filter(|one| one["index"] == choice).map(|one| one["text"].as_str().unwrap()).collect()
    };
    assert_eq!((text(0).as_str(), text(1).as_str()), (" two three", " due\u{e9}"));
    let last = chunks.last().unwrap();
    assert_eq!(
        (&last["choices"][0]["finish_reason"], &last["usage"]["completion_tokens"]),
        (&json!("length"), &json!(9))
    );
    assert!(last.get("billing_cost").is_some());
}

#[test]
fn log_probabilities_of_a_stream_are_joined_in_a_buffered_answer() {
    let ask = request(&json!({"model": "m", "prompt": "One", "logprobs": 1}));
    let piece = |text: &str, finish: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"logprobs\":{{\"tokens\":[\"{text}\"],\"token_logprobs\":[-1]}},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let body = [piece(" a", "null"), piece(" b", "\"stop\""), "data: [DONE]\n\n".to_owned()].concat();
    let abilities = abilities(true);
    let answer =
        completion_translator(true).translate_buffered(&ask, &target(&abilities), Bytes::from(body)).unwrap();
    let written: Value = serde_json::from_slice(&answer.body.concat()).unwrap();
    assert_eq!(
        written["choices"][0]["logprobs"],
        json!({"tokens": [" a", " b"], "token_logprobs": [-1, -1]})
    );
}

/// Returns the counted output tokens and the delivered usage of a stream with this text and without usage; asserts
/// that both are the same wherever the stream is split.
fn counted_stream(ask: &InferenceRequest, text: &str) -> (u64, DeliveredUsage) {
    let abilities = abilities(true);
    let choice = json!({"index": 0, "text": text, "finish_reason": "stop"});
    let stream = format!("data: {}\n\ndata: [DONE]\n\n", json!({"id": "x", "choices": [choice]}));
    let run = |cut: usize| {
        let mut reply = completion_translator(true).translate_stream(ask, &target(&abilities));
        let (bytes, mut out) = (Bytes::from(stream.clone()), OutputBuffer::default());
        reply.push(bytes.slice(..cut), &mut out).unwrap();
        reply.push(bytes.slice(cut..), &mut out).unwrap();
        reply.end(&mut out).unwrap();
        assert_eq!(reply.attempt_usage().output, reply.estimated_usage().output);
        (reply.estimated_usage().output, reply.delivered_usage())
    };
    let whole = run(stream.len());
    for cut in 0..stream.len() {
        assert_eq!(run(cut), whole, "cut at {cut}");
    }
    whole
}

#[test]
fn an_echo_is_not_counted_as_output() {
    let prompt = "Once \u{e9}\"".repeat(20);
    let ask = |prompt: Value, echo: bool| {
        request(&json!({"model": "m", "prompt": prompt, "echo": echo, "stream": true, "max_tokens": 500}))
    };
    let echoed = ask(json!(prompt), true);
    let (tokens, part) = counted_stream(&echoed, &(prompt.clone() + "ok"));
    assert_eq!((tokens, part.bytes, part.usage.output, part.is_empty), (1, 2, 1, false));
    // If only the echo of the prompt was delivered, the output is 0 tokens.
    let (tokens, part) = counted_stream(&echoed, &prompt);
    assert_eq!((tokens, part.bytes, part.is_empty), (0, 0, false));
    let (tokens, _) = counted_stream(&ask(json!(prompt), false), &prompt);
    assert_eq!(tokens, prompt.len().div_ceil(4) as u64);
    // For a prompt of token ids, the echo is assumed to have four bytes per token id.
    let (tokens, _) = counted_stream(&ask(json!([1, 2, 3]), true), "abcdefghijklmnop");
    assert_eq!(tokens, 1);
    let body = |usage: Value| {
        let choice = json!({"index": 0, "text": prompt.clone() + "ok", "finish_reason": "stop"});
        Bytes::from(json!({"id": "x", "choices": [choice], "usage": usage}).to_string())
    };
    let abilities = abilities(true);
    let plain = |usage: Value| {
        let read = completion_translator(true)
            .translate_buffered(&echoed, &target(&abilities), body(usage))
            .unwrap();
        read.usage().unwrap()
    };
    assert_eq!(plain(Value::Null).output, 1);
    // A provider may count up to 64 tokens without text for each choice.
    assert_eq!(plain(json!({"prompt_tokens": 9, "completion_tokens": 66})).output, 66);
    let claimed = plain(json!({"prompt_tokens": 9, "completion_tokens": 67}));
    assert_eq!((claimed.output, claimed.source), (1, UsageSource::Overstated));
}

#[test]
fn equal_constraints_are_sent_once_and_different_ones_refused() {
    let schema = |kind: &str| json!({"type": kind, "title": "zebra"});
    let body = |other: Value| {
        let format = json!({"type": "json_schema", "json_schema": {"name": "n", "schema": schema("object")}});
        json!({"model": "m", "prompt": "Hi", "response_format": format, "guided_json": other})
    };
    for has_endpoint in [true, false] {
        for parameters in [&["response_format"][..], &["guided_json"], &["response_format", "guided_json"]] {
            let abilities = OfferCapabilities {
                parameters: parameters.iter().map(|name| (*name).into()).collect(),
                ..abilities(has_endpoint)
            };
            let build = |other| {
                completion_translator(has_endpoint).build_request(&request(&body(other)), &target(&abilities))
            };
            let equal = String::from_utf8(build(schema("object")).unwrap().concat()).unwrap();
            assert_eq!(equal.matches("zebra").count(), 1, "{parameters:?}: {equal}");
            let error = build(schema("array")).unwrap_err();
            assert!(error.message.contains("`response_format` and `guided_json`"), "{error:?}");
        }
    }
}
