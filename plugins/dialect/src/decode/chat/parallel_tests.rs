//! Tests of parallel calls that all have index 0: a stream gives the same calls as a buffered answer, for clients of
//! both dialects and with every split.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use crate::answer::DecodedAnswer;
use crate::test_support;
use bytes::Bytes;
use penstock_core::{Dialect, OfferCapabilities};
use serde_json::{Value, json};

/// Returns an element of `tool_calls` with index 0; id, name and arguments may be null.
fn part(id: Value, name: Value, arguments: Value) -> Value {
    json!({"index": 0, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// Returns a fragment with arguments only.
fn more(arguments: &str) -> Value {
    json!({"index": 0, "function": {"arguments": arguments}})
}

type Calls = Vec<(String, String)>;
/// Id, name and arguments of each call.
type Expected = &'static [(&'static str, &'static str, &'static str)];

/// Returns the name and the arguments of the calls that a client reads from a stream of these chunks.
fn streamed(client: Dialect, chunks: &[Vec<Value>]) -> Calls {
    let mut stream = String::new();
    for (at, calls) in chunks.iter().enumerate() {
        let end = (at + 1 == chunks.len()).then_some("tool_calls");
        let choice = json!({"index": 0, "delta": {"tool_calls": calls}, "finish_reason": end});
        stream.push_str(&format!("data: {}\n\n", json!({"choices": [choice]})));
    }
    stream.push_str("data: [DONE]\n\n");
    let body = json!({"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "x"}],
        "tools": [{"name": "f", "input_schema": {}}]});
    let ask = test_support::sample_request(client, body.to_string().as_bytes());
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let pair = crate::find_translator(client, Dialect::Chat).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    assert_eq!(run.fault, None, "{stream}");
    let events = String::from_utf8(run.out).unwrap();
    let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
    read(client, data.filter_map(|data| serde_json::from_str(data).ok()))
}

fn read(client: Dialect, events: impl Iterator<Item = Value>) -> Calls {
    let mut calls = Calls::new();
    for event in events {
        match client {
            Dialect::Chat => {
                for call in event["choices"][0]["delta"]["tool_calls"].as_array().into_iter().flatten() {
                    let at = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
                    if at == calls.len() {
                        calls.push((call["function"]["name"].as_str().unwrap().to_owned(), String::new()));
                    }
                    calls[at].1.push_str(call["function"]["arguments"].as_str().unwrap());
                }
            }
            Dialect::Responses => {
                let item = &event["item"];
                if event["type"] == "response.output_item.done" && item["type"] == "function_call" {
                    let text = |name: &str| item[name].as_str().unwrap().to_owned();
                    calls.push((text("name"), text("arguments")));
                }
            }
            _ => {
                if event["content_block"]["type"] == "tool_use" {
                    calls.push((event["content_block"]["name"].as_str().unwrap().to_owned(), String::new()));
                }
                if let Some(piece) = event["delta"]["partial_json"].as_str() {
                    calls.last_mut().unwrap().1.push_str(piece);
                }
            }
        }
    }
    for (_, arguments) in &mut calls {
        if arguments.is_empty() {
            arguments.push_str("{}");
        }
    }
    calls
}

/// Returns the name and the arguments of the calls that are decoded from a buffered answer with these calls.
fn plain(calls: &[(&str, &str, &str)]) -> Calls {
    let calls: Vec<Value> =
        calls.iter().map(|(id, name, arguments)| part(json!(id), json!(name), json!(arguments))).collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": calls});
    let body =
        json!({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}).to_string();
    let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[]}"#);
    let abilities = OfferCapabilities::default();
    let answer = DecodedAnswer::decode(
        &ask,
        &test_support::sample_target(Dialect::Chat, &abilities),
        Bytes::from(body),
    )
    .unwrap();
    let name_and_arguments = |call: &crate::ToolCall| {
        let arguments: String = call.arguments.iter().map(|text| text.decoded().into_owned()).collect();
        (call.name.decoded().into_owned(), if arguments.is_empty() { "{}".to_owned() } else { arguments })
    };
    answer.choices[0].tool_calls.iter().map(name_and_arguments).collect()
}

#[test]
fn calls_with_the_same_index_are_distinguished_as_in_a_plain_answer() {
    let (a, b, f, g, none) = (json!("call_a"), json!("call_b"), json!("f"), json!("g"), Value::Null);
    let (one, two, empty) = (json!(r#"{"x":1}"#), json!(r#"{"y":2}"#), json!(""));
    let two_f: Expected = &[("call_a", "f", r#"{"x":1}"#), ("call_b", "f", r#"{"y":2}"#)];
    let f_g: Expected = &[("call_a", "f", r#"{"x":1}"#), ("call_b", "g", r#"{"y":2}"#)];
    let bare_f: Expected = &[("call_a", "f", ""), ("call_b", "f", r#"{"y":2}"#)];
    let cases: Vec<(&str, Vec<Vec<Value>>, Expected)> = vec![
        (
            "no ids, other names",
            vec![
                vec![json!({"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}})],
                vec![json!({"index":0,"function":{"name":"g","arguments":"{\"y\":2}"}})],
            ],
            f_g,
        ),
        (
            "no ids, one name",
            vec![
                vec![json!({"index":0,"function":{"name":"f","arguments":"{\"x\":1}"}})],
                vec![json!({"index":0,"function":{"name":"f","arguments":"{\"y\":2}"}})],
            ],
            two_f,
        ),
        (
            "null ids",
            vec![
                vec![part(none.clone(), f.clone(), one.clone())],
                vec![part(none.clone(), g.clone(), two.clone())],
            ],
            f_g,
        ),
        (
            "empty ids",
            vec![
                vec![part(empty.clone(), f.clone(), one.clone())],
                vec![part(empty.clone(), g.clone(), two.clone())],
            ],
            f_g,
        ),
        (
            "null ids in one chunk",
            vec![vec![
                part(none.clone(), f.clone(), one.clone()),
                part(none.clone(), f.clone(), two.clone()),
            ]],
            two_f,
        ),
        (
            "no ids, arguments in pieces",
            vec![
                vec![part(none.clone(), f.clone(), empty.clone())],
                vec![more("{\"x\"")],
                vec![more(":1}")],
                vec![part(none.clone(), g.clone(), empty.clone())],
                vec![more("{\"y\":")],
                vec![more("2}")],
            ],
            f_g,
        ),
        (
            "no ids, the first without arguments",
            vec![
                vec![part(none.clone(), f.clone(), none.clone())],
                vec![part(none.clone(), g.clone(), two.clone())],
            ],
            &[("a", "f", ""), ("b", "g", r#"{"y":2}"#)],
        ),
        (
            "other ids, one name, empty first arguments",
            vec![
                vec![part(a.clone(), f.clone(), empty.clone())],
                vec![part(b.clone(), f.clone(), empty.clone())],
                vec![more(r#"{"y":2}"#)],
            ],
            bare_f,
        ),
        (
            "other ids, one name, absent first arguments",
            vec![
                vec![json!({"index":0,"id":"call_a","function":{"name":"f"}})],
                vec![json!({"index":0,"id":"call_b","function":{"name":"f"}})],
                vec![more("{\"y\":"), more("2}")],
            ],
            bare_f,
        ),
        (
            "other ids, one name, null first arguments",
            vec![
                vec![part(a.clone(), f.clone(), none.clone())],
                vec![part(b.clone(), f.clone(), two.clone())],
            ],
            bare_f,
        ),
        (
            "other ids, one name, whole arguments",
            vec![
                vec![part(a.clone(), f.clone(), one.clone())],
                vec![part(b.clone(), f.clone(), two.clone())],
            ],
            two_f,
        ),
        (
            "one id, whole arguments",
            vec![
                vec![part(a.clone(), f.clone(), one.clone())],
                vec![part(a.clone(), f.clone(), two.clone())],
            ],
            two_f,
        ),
        (
            "one id, other names, whole arguments",
            vec![
                vec![part(a.clone(), f.clone(), one.clone())],
                vec![part(a.clone(), g.clone(), two.clone())],
            ],
            f_g,
        ),
        (
            "one id, arguments as objects",
            vec![
                vec![part(a.clone(), f.clone(), json!({"x":1}))],
                vec![part(a.clone(), f.clone(), json!({"y":2}))],
            ],
            two_f,
        ),
        (
            "one call, id and name on every piece",
            vec![
                vec![part(a.clone(), f.clone(), empty.clone())],
                vec![part(a.clone(), f.clone(), json!("{\"x\""))],
                vec![part(a.clone(), f.clone(), json!(":1}"))],
                vec![part(a.clone(), f.clone(), empty.clone())],
                vec![part(a.clone(), f.clone(), json!("\n "))],
            ],
            &[("call_a", "f", "{\"x\":1}\n ")],
        ),
        (
            "two calls, id and name on every piece",
            vec![
                vec![part(a.clone(), f.clone(), json!("{\"x\""))],
                vec![part(a.clone(), f.clone(), json!(":1}"))],
                vec![part(b.clone(), f.clone(), json!("{\"y\""))],
                vec![part(b.clone(), f.clone(), json!(":2}"))],
            ],
            two_f,
        ),
        (
            "the name on every piece, no ids",
            vec![
                vec![part(none.clone(), f.clone(), json!("{\"x\""))],
                vec![part(none.clone(), f.clone(), json!(":1}"))],
            ],
            &[("a", "f", r#"{"x":1}"#)],
        ),
        (
            "an id that comes late",
            vec![
                vec![part(none.clone(), f.clone(), empty.clone())],
                vec![part(a.clone(), f.clone(), one.clone())],
            ],
            &[("a", "f", r#"{"x":1}"#)],
        ),
    ];
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (what, chunks, calls) in &cases {
            assert_eq!(streamed(client, chunks), plain(calls), "{what}, {client:?}");
        }
    }
}

#[test]
fn calls_without_arguments_and_placeholders_are_as_in_a_plain_answer() {
    let (a, f, g, none) = (json!("call_a"), json!("f"), json!("g"), Value::Null);
    let (one, empty, object) = (json!(r#"{"x":1}"#), json!(""), json!("{}"));
    let bare = |name: &Value| vec![part(none.clone(), name.clone(), empty.clone())];
    let cases: Vec<(&str, Vec<Vec<Value>>, Expected)> = vec![
        ("one name twice", vec![bare(&f), bare(&f)], &[("a", "f", ""), ("b", "f", "")]),
        (
            "one name three times and another",
            vec![bare(&f), bare(&f), bare(&f), bare(&g), bare(&g)],
            &[("a", "f", ""), ("b", "f", ""), ("c", "f", ""), ("d", "g", ""), ("e", "g", "")],
        ),
        (
            "one name twice in one chunk",
            vec![vec![bare(&f).remove(0), bare(&f).remove(0)]],
            &[("a", "f", ""), ("b", "f", "")],
        ),
        (
            "absent arguments",
            vec![
                vec![json!({"index":0,"function":{"name":"f"}})],
                vec![json!({"index":0,"function":{"name":"f"}})],
            ],
            &[("a", "f", ""), ("b", "f", "")],
        ),
        (
            "a name that is repeated",
            vec![bare(&f), bare(&f), vec![more(r#"{"x":1}"#)]],
            &[("a", "f", r#"{"x":1}"#)],
        ),
        (
            "an empty object alone",
            vec![vec![part(a.clone(), f.clone(), object.clone())]],
            &[("call_a", "f", "{}")],
        ),
        (
            "an empty object, then the whole",
            vec![vec![part(a.clone(), f.clone(), object.clone())], vec![more(r#"{"x":1}"#)]],
            &[("call_a", "f", r#"{"x":1}"#)],
        ),
        (
            "an empty object, then the whole in pieces",
            vec![vec![part(a.clone(), f.clone(), object.clone())], vec![more("{\"x\"")], vec![more(":1}")]],
            &[("call_a", "f", r#"{"x":1}"#)],
        ),
        (
            "null, then the whole with id and name",
            vec![
                vec![part(a.clone(), f.clone(), json!("null"))],
                vec![part(a.clone(), f.clone(), one.clone())],
            ],
            &[("call_a", "f", r#"{"x":1}"#)],
        ),
        (
            "an empty object and another call",
            vec![
                vec![part(a.clone(), f.clone(), object.clone())],
                vec![part(json!("call_b"), g.clone(), one.clone())],
            ],
            &[("call_a", "f", "{}"), ("call_b", "g", r#"{"x":1}"#)],
        ),
        (
            "indexes that are strings",
            vec![
                vec![json!({"index":"0","id":"call_a","function":{"name":"f","arguments":""}})],
                vec![json!({"index":"0","function":{"arguments":"{\"x\":1}"}})],
                vec![json!({"index":"1","id":"call_b","function":{"name":"g","arguments":"{}"}})],
            ],
            &[("call_a", "f", r#"{"x":1}"#), ("call_b", "g", "{}")],
        ),
    ];
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        for (what, chunks, calls) in &cases {
            assert_eq!(streamed(client, chunks), plain(calls), "{what}, {client:?}");
        }
    }
}

#[test]
fn a_second_object_after_whole_arguments_is_output_of_the_model() {
    for first in [vec![r#"{"x":1}"#], vec!["{", "}"], vec![r#"{"x""#, ":1}"]] {
        let mut stream = String::new();
        let head = json!({"index": 0, "id": "call_a", "function": {"name": "f", "arguments": ""}});
        let fragments = first.iter().chain(&[r#"{"x": 1}"#]).map(|text| more(text));
        for call in std::iter::once(head).chain(fragments) {
            let choice = json!({"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null});
            stream.push_str(&format!("data: {}\n\n", json!({"choices": [choice]})));
        }
        let ask =
            test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let pair = crate::find_translator(Dialect::Chat, Dialect::Chat).unwrap();
        let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
        assert_eq!(run.fault, Some(penstock_core::UpstreamErrorKind::ModelOutput), "{stream}");
    }
}

#[test]
fn json_keys_and_names_are_compared_unescaped() {
    let stream = concat!(
        r#"data: {"choi\u0063es":[{"ind\u0065x":0,"delta":{"tool_c\u0061lls":[{"ind\u0065x":0,"\u0069d":"c\u0061","functi\u006fn":{"n\u0061me":"f","argum\u0065nts":"{\"x\":1"}}]}}]}"#,
        "\n\n",
        r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"ca","function":{"name":"\u0066","arguments":"}"}}]},"finish_re\u0061son":"tool\u005fcalls"}],"us\u0061ge":{"prompt\u005ftokens":7,"completion_tokens":3}}"#,
        "\n\ndata: [DONE]\n\n"
    );
    let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
    let abilities = OfferCapabilities::default();
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let pair = crate::find_translator(Dialect::Chat, Dialect::Chat).unwrap();
    let run = test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
    assert_eq!((run.fault, run.usage.map(|usage| (usage.input, usage.output))), (None, Some((7, 3))));
    let out = String::from_utf8(run.out).unwrap();
    let data = out.lines().filter_map(|line| line.strip_prefix("data: "));
    let calls = read(Dialect::Chat, data.filter_map(|data| serde_json::from_str(data).ok()));
    assert_eq!(calls, [("f".to_owned(), r#"{"x":1}"#.to_owned())]);
}
