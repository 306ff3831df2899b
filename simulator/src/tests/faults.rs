//! Tests that each fault has its documented effect and no other.

use super::super::{EnergyShape, ErrorShape};
use super::{CHAT, MESSAGES, SimulatedFault, ask, once, post, receive, send, server, streamed, with};
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read;
use tokio::io::AsyncReadExt;

#[tokio::test]
async fn a_status_comes_with_its_retry_after_and_body() {
    let server = server().await;
    let control = server.control();
    let fault = json!({ "fault": "status", "status": 503, "retry_after": 2, "times": 1 });
    assert_eq!(post(server.address, "/control", &fault).await.status, 200);
    let seen = post(server.address, CHAT, &streamed(&json!({}))).await;
    assert_eq!((seen.status, seen.header("retry-after")), (503, Some("2")));
    assert_eq!(seen.json()["error"]["code"], 503);
    assert_eq!(post(server.address, CHAT, &ask(&json!({}))).await.status, 200);
    once(&control, SimulatedFault::status(529));
    let seen = post(server.address, MESSAGES, &ask(&json!({}))).await;
    assert_eq!((seen.status, &seen.json()["error"]["type"]), (529, &json!("overloaded_error")));
    once(&control, SimulatedFault::Status { status: 418, retry_after: None, body: Some("tea".to_owned()) });
    assert_eq!(post(server.address, CHAT, &ask(&json!({}))).await.text(), "tea");
}

#[tokio::test]
async fn a_cut_before_the_head_sends_nothing() {
    assert_eq!(with(SimulatedFault::CutBeforeHead {}, &ask(&json!({}))).await.status, 0);
}

#[tokio::test]
async fn a_cut_after_the_head_sends_nothing_else() {
    for body in [ask(&json!({})), streamed(&json!({}))] {
        let seen = with(SimulatedFault::CutAfterHead {}, &body).await;
        assert_eq!((seen.status, seen.body.len(), seen.whole), (200, 0, false));
    }
}

#[tokio::test]
async fn a_cut_comes_after_exactly_so_many_tokens() {
    let seen = with(SimulatedFault::Cut { after: 4 }, &streamed(&json!({}))).await;
    assert_eq!((seen.answer_text().as_str(), seen.whole), ("This is a simulated", false));
    let seen = with(SimulatedFault::Cut { after: 0 }, &streamed(&json!({}))).await;
    assert_eq!((seen.events().len(), seen.whole), (1, false));
    let seen = with(SimulatedFault::Cut { after: 4 }, &ask(&json!({}))).await;
    assert!(!seen.whole && !seen.body.is_empty());
}

#[tokio::test]
async fn a_silent_provider_answers_once_it_is_released() {
    let server = server().await;
    let control = server.control();
    once(&control, SimulatedFault::Silent {});
    let stream = send(server.address, "POST", CHAT, &ask(&json!({})).to_string()).await;
    control.until(|counts| counts.held == 1).await;
    control.release();
    assert_eq!(receive(stream).await.status, 200);
}

#[tokio::test]
async fn a_stall_comes_after_so_many_tokens_and_ends_when_it_is_released() {
    let server = server().await;
    let control = server.control();
    once(&control, SimulatedFault::Stall { after: 2 });
    let mut stream = send(server.address, "POST", CHAT, &streamed(&json!({})).to_string()).await;
    control.until(|counts| counts.held == 1).await;
    let mut before = Vec::new();
    while !String::from_utf8_lossy(&before).contains("\" is\"") {
        assert_ne!(stream.read_buf(&mut before).await.unwrap(), 0);
    }
    while matches!(stream.try_read_buf(&mut before), Ok(1..)) {}
    assert!(!String::from_utf8_lossy(&before).contains("\" a\""));
    control.release();
    let mut after = Vec::new();
    stream.read_to_end(&mut after).await.unwrap();
    let after = String::from_utf8_lossy(&after).into_owned();
    assert!(after.contains("\" a\"") && after.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{after}");
}

#[tokio::test]
async fn a_client_that_leaves_a_stalled_stream_is_counted() {
    let server = server().await;
    let control = server.control();
    control.add_rule(SimulatedFault::Stall { after: 1 });
    let stream = send(server.address, "POST", CHAT, &streamed(&json!({})).to_string()).await;
    control.until(|counts| counts.held == 1).await;
    drop(stream);
    let counts = control.until(|counts| counts.cancelled == 1).await;
    assert_eq!((counts.open, counts.finished, counts.held), (0, 0, 0));
}

#[tokio::test]
async fn a_malformed_event_stands_between_good_ones() {
    let seen = with(SimulatedFault::Malformed { after: 3 }, &streamed(&json!({}))).await;
    let text = seen.text();
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert!(lines[3].contains("\" a\"") && lines[5].contains("\" simulated\""), "{lines:?}");
    assert!(serde_json::from_str::<Value>(lines[4]).is_err() && seen.whole);
    let seen = with(SimulatedFault::Malformed { after: 0 }, &ask(&json!({}))).await;
    assert!(seen.whole && serde_json::from_slice::<Value>(&seen.body).is_err());
}

#[tokio::test]
async fn an_error_event_ends_a_good_answer() {
    let fault = |after| SimulatedFault::ErrorEvent { after, message: "Broken".to_owned() };
    for (after, answer_text) in [(0, ""), (2, "This is")] {
        let seen = with(fault(after), &streamed(&json!({}))).await;
        assert_eq!((seen.status, seen.answer_text().as_str(), seen.whole), (200, answer_text, true));
        assert_eq!(seen.events().last().unwrap()["error"]["message"], "Broken");
    }
    let server = server().await;
    server.control().add_rule(fault(1));
    let seen = post(server.address, MESSAGES, &streamed(&json!({}))).await;
    assert_eq!(
        (seen.answer_text().as_str(), &seen.events().last().unwrap()["type"]),
        ("This", &json!("error"))
    );
}

#[tokio::test]
async fn ends_usage_and_reasons_can_be_left_out() {
    let body = streamed(&json!({ "stream_options": { "include_usage": true } }));
    let seen = with(SimulatedFault::NoDone {}, &body).await;
    assert!(seen.whole && !seen.text().contains("[DONE]"));
    let seen = with(SimulatedFault::NoUsage {}, &body).await;
    assert!(!seen.text().contains("usage") && seen.text().contains("[DONE]"));
    let seen = with(SimulatedFault::NoFinish {}, &body).await;
    assert!(
        seen.events()
            .iter()
            .all(|event| event.pointer("/choices/0/finish_reason").is_none_or(Value::is_null))
    );
    let server = server().await;
    let control = server.control();
    for (fault, word) in [
        (SimulatedFault::NoDone {}, "message_stop"),
        (SimulatedFault::NoUsage {}, "usage"),
        (SimulatedFault::NoFinish {}, "message_delta"),
    ] {
        once(&control, fault);
        let seen = post(server.address, MESSAGES, &streamed(&json!({}))).await;
        assert!(seen.whole && !seen.text().contains(word), "{word}");
    }
}

#[tokio::test]
async fn a_compressed_stream_unpacks_to_the_plain_one() {
    for body in [streamed(&json!({})), ask(&json!({}))] {
        let packed = with(SimulatedFault::Gzip {}, &body).await;
        assert_eq!((packed.header("content-encoding"), packed.whole), (Some("gzip"), true));
        let mut text = String::new();
        GzDecoder::new(&packed.body[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, with(SimulatedFault::SlowFirstToken { ms: 0 }, &body).await.text());
    }
}

#[tokio::test]
async fn line_ends_comments_and_cuts_leave_the_events_as_they_are() {
    let body = streamed(&json!({}));
    let good = with(SimulatedFault::SlowFirstToken { ms: 1 }, &body).await;
    for fault in [
        SimulatedFault::Crlf {},
        SimulatedFault::Comments {},
        SimulatedFault::Split { bytes: 7 },
        SimulatedFault::Merge { events: 5 },
    ] {
        let seen = with(fault.clone(), &body).await;
        assert_eq!((seen.events(), seen.whole), (good.events(), true), "{fault:?}");
    }
    let seen = with(SimulatedFault::Crlf {}, &body).await.text();
    assert_eq!(seen.matches('\n').count(), seen.matches("\r\n").count());
    assert!(with(SimulatedFault::Comments {}, &body).await.text().starts_with(": a comment"));
}

#[tokio::test]
async fn refusals_speak_in_the_words_of_their_vendors() {
    for (shape, words) in [
        (ErrorShape::Vllm, "data_inspection_failed"),
        (ErrorShape::LlamaCpp, "ResponsibleAIPolicyViolation"),
        (ErrorShape::Generic, "content_policy_violation"),
        (ErrorShape::Messages, "content filtering policy"),
    ] {
        let seen = with(SimulatedFault::Refusal { shape }, &ask(&json!({}))).await;
        assert!(seen.status == 400 && seen.text().contains(words), "{words}");
    }
    for (shape, words) in [
        (ErrorShape::Vllm, "maximum context length is"),
        (ErrorShape::LlamaCpp, "exceed_context_size_error"),
        (ErrorShape::Generic, "context_length_exceeded"),
        (ErrorShape::Messages, "prompt is too long"),
    ] {
        let seen = with(SimulatedFault::Overflow { shape }, &ask(&json!({}))).await;
        assert!(seen.status == 400 && seen.text().contains(words), "{words}");
    }
}

#[tokio::test]
async fn content_type_and_page_are_as_configured() {
    let seen = with(SimulatedFault::ContentType { value: "text/plain".to_owned() }, &ask(&json!({}))).await;
    assert_eq!((seen.status, seen.header("content-type")), (200, Some("text/plain")));
    assert_eq!(seen.json()["object"], "chat.completion");
    let seen = with(SimulatedFault::Html { status: 502 }, &ask(&json!({}))).await;
    assert!(seen.status == 502 && seen.text().starts_with("<html>"));
}

#[tokio::test]
async fn a_dripping_head_arrives_whole_in_the_end() {
    let seen = with(SimulatedFault::DripHead { ms: 0 }, &ask(&json!({}))).await;
    assert!(seen.status == 200 && seen.whole);
}

#[tokio::test]
async fn a_huge_event_has_the_configured_number_of_bytes() {
    let server = server().await;
    server.control().add_rule(SimulatedFault::Huge { bytes: 2_000_003 });
    for path in [CHAT, MESSAGES] {
        let seen = post(server.address, path, &streamed(&json!({}))).await;
        let longest = seen.events().iter().map(|event| event.to_string().len()).max().unwrap();
        assert!((2_000_003..2_001_000).contains(&longest), "{longest}");
        assert!(
            seen.answer_text().ends_with(|last: char| last != ' ')
                && seen.answer_text().contains("This is a simulated")
        );
    }
}

#[tokio::test]
async fn measured_energy_is_reported_in_the_format_of_each_vendor() {
    let energy = |shape| SimulatedFault::Energy { shape, joules: 40.433 };
    let body = streamed(&json!({ "stream_options": { "include_usage": true } }));
    let last = with(energy(EnergyShape::Greenpt), &body).await.events().pop().unwrap();
    assert_eq!(last["impact"]["energy"], json!({ "total": 40433, "unit": "Wms" }));
    assert!(last["usage"].is_object());
    let text = with(energy(EnergyShape::Neuralwatt), &body).await.text();
    let (_, comment) = text.split_once("\n: energy ").unwrap();
    let (comment, rest) = comment.split_once("\n\n").unwrap();
    assert_eq!(serde_json::from_str::<Value>(comment).unwrap()["energy_joules"], 40.433);
    assert_eq!(rest, "data: [DONE]\n\n");
    for shape in [EnergyShape::Root, EnergyShape::Neuralwatt] {
        let seen = with(energy(shape), &ask(&json!({}))).await.json();
        assert_eq!(seen["energy"]["energy_joules"], 40.433);
    }
}

#[tokio::test]
async fn odd_fields_of_engines_can_be_had() {
    let body = ask(&json!({ "model": "x-thinking#fault=reasoning_field" }));
    let server = server().await;
    let seen = post(server.address, CHAT, &body).await.json();
    assert!(seen["choices"][0]["message"]["reasoning"].is_string());
    let tools =
        json!([{ "type": "function", "function": { "name": "f", "parameters": { "required": ["a"] } } }]);
    let asked = json!({ "model": "m#fault=repeated_tool_fields", "tools": tools, "tool_choice": "required" });
    let text = post(server.address, CHAT, &streamed(&asked)).await.text();
    assert!(text.matches("\"name\":\"f\"").count() > 2 && text.contains("\"type\":null"));
}
