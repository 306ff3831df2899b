//! Streamed speech, which clients get while it arrives: as bytes and as events; failover, end and charge.

use crate::harness::gateway::Running;
use crate::harness::script::{Script, ScriptStep, status};
use crate::harness::{Bench, Provider, until};
use crate::sounds;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

const SPEECH: &str = "/v1/audio/speech";
const PRICE: &str = "price = { minute = 0.6 }";

/// A stream of these pieces.
fn chunks<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Script {
    let head = vec![("content-type", "audio/mpeg".into()), ("transfer-encoding", "chunked".into())];
    let mut script = vec![ScriptStep::Head(200, head)];
    script.extend(pieces.into_iter().map(|piece| ScriptStep::Chunk(piece.to_vec())));
    script
}

fn ended(mut script: Script) -> Script {
    script.push(ScriptStep::End);
    script
}

fn ask(members: &Value) -> Value {
    let mut body = json!({"model": "m", "input": "A penstock is a pipe that leads water.", "voice": "alloy",
        "response_format": "wav"});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    body
}

async fn bench(provider: &Provider) -> Running {
    Bench::new().kind("speech").provider_with("a", provider, "", PRICE).start().await
}

/// Returns the charged micro-credits.
fn charged(running: &Running) -> i64 {
    -running.gateway.app.ledger.balance("default").credits.amount
}

/// Data of the events of a stream, and its audio.
fn events(body: &[u8]) -> (Vec<Value>, Vec<u8>) {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let events: Vec<Value> = text
        .split_terminator("\n\n")
        .filter_map(|event| event.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let audio = events
        .iter()
        .filter(|event| event["type"] == "speech.audio.delta")
        .flat_map(|event| STANDARD.decode(event["audio"].as_str().unwrap()).unwrap())
        .collect();
    (events, audio)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audio_reaches_the_client_while_the_provider_speaks() {
    let (provider, go) = (Provider::start().await, Arc::new(Notify::new()));
    let running = bench(&provider).await;
    let sound = sounds::wav(4_000);
    let (first, rest) = sound.split_at(1_000);
    for format in ["audio", "sse"] {
        let mut script = chunks([first]);
        script.push(ScriptStep::Wait(go.clone()));
        script.extend([ScriptStep::Chunk(rest.to_vec()), ScriptStep::End]);
        provider.then(script);
        // The gateway labels the audio as WAV, although MP3 was requested.
        let body = ask(&json!({"stream_format": format, "response_format": "mp3"}));
        let marker = if format == "sse" { "speech.audio.delta" } else { "WAVEfmt" };
        // The client has the first part before the provider sends the rest.
        let mut open = running.client.stream_until(SPEECH, &body, marker).await;
        let answer = crate::harness::batch_jobs::let_go(&go, open.finish()).await;
        assert_eq!(answer.status, 200);
        let (events, audio) =
            if format == "sse" { events(&answer.body) } else { (Vec::new(), answer.body.clone()) };
        assert_eq!(audio, sound, "{format}");
        if format == "audio" {
            assert_eq!(answer.header("content-type"), Some("audio/wav"));
            assert_eq!(answer.header("content-length"), None);
            continue;
        }
        assert!(answer.header("content-type").unwrap().starts_with("text/event-stream"));
        let done = events.last().unwrap();
        assert_eq!(
            (&done["type"], &done["billing_cost"]["credits"]),
            (&json!("speech.audio.done"), &json!(4))
        );
        assert!(done["environment_impact"]["energy_kwh"].as_f64().unwrap() > 0.0);
        assert!(done["usage"]["total_tokens"].as_u64().unwrap() > 0);
        assert!(provider.last().json().get("stream_format").is_none());
    }
    until("both charges", || charged(&running) == 8_000_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_is_the_same_however_it_is_cut() {
    let provider = Provider::start().await;
    let running = bench(&provider).await;
    let sound = sounds::wav(20);
    for size in [1, 2, 3, 7, 15, 16, 17, 44, 100] {
        for format in ["audio", "sse"] {
            provider.then(ended(chunks(sound.chunks(size))));
            let answer = running.client.post(SPEECH, &ask(&json!({"stream_format": format}))).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let audio = if format == "sse" { events(&answer.body).1 } else { answer.body };
            assert!(audio == sound, "{size} {format}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_provider_speaks_as_long_as_nothing_was_sent() {
    let (text, cut, good) = (Provider::start().await, Provider::start().await, Provider::start().await);
    text.always(ended(chunks([&br#"{"error": {"message": "no voice of this name"}}"#[..]])));
    cut.always([chunks([&[][..]; 0]), vec![ScriptStep::Cut]].concat());
    good.always(ended(chunks([&*sounds::wav(1_000)])));
    let running = Bench::new()
        .kind("speech")
        .settings("[routing]\nquick_retry = \"0s\"")
        .provider_with("text", &text, "", "price = { minute = 0.1 }")
        .provider_with("cut", &cut, "", "price = { minute = 0.2 }")
        .provider_with("good", &good, "", PRICE)
        .start()
        .await;
    let answer = running.client.post(SPEECH, &ask(&json!({"model": "m:price"}))).await;
    assert_eq!((answer.status, answer.body.len()), (200, sounds::wav(1_000).len()));
    assert_eq!(answer.header("x-penstock-provider"), Some("good"));
    // If all providers refuse, the client gets an error response, not a stream.
    good.always(status(503));
    let refused =
        running.client.post(SPEECH, &ask(&json!({"model": "m:price", "stream_format": "sse"}))).await;
    assert_eq!((refused.status, refused.json()["error"]["code"].as_str()), (503, Some("INFERENCE_3103")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_stream_is_cut_or_ends_with_an_error_and_is_not_charged() {
    let (provider, other) = (Provider::start().await, Provider::start().await);
    let running = Bench::new()
        .kind("speech")
        .provider_with("a", &provider, "", "price = { minute = 0.1 }")
        .provider_with("b", &other, "", "price = { minute = 60 }")
        .start()
        .await;
    let sound = sounds::wav(2_000);
    provider.always([chunks([&sound[..8_000]]), vec![ScriptStep::Cut]].concat());
    let cut = running.client.post(SPEECH, &ask(&json!({"model": "m:price"}))).await;
    assert!(!cut.whole && cut.status == 200, "the end of a broken stream looks like success");
    assert_eq!(other.calls(), 0, "another engine does not go on in the middle of a word");
    let answer =
        running.client.post(SPEECH, &ask(&json!({"model": "m:price", "stream_format": "sse"}))).await;
    let (events, audio) = events(&answer.body);
    assert_eq!(audio, &sound[..8_000]);
    let error = &events.last().unwrap()["error"];
    assert!(error["message"].is_string(), "{}", answer.text());
    let attempts = error["details"]["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), attempts[0]["provider"].as_str()), (1, Some("a")), "{error}");
    assert!(attempts[0]["reason"].is_string() && attempts[0]["ms"].is_u64(), "{error}");
    assert!(events.iter().all(|event| event["type"] != "speech.audio.done"));
    // A complete answer with less audio than its header states is broken too.
    provider.always(ended(chunks([&sound[..8_000]])));
    let cut = running.client.post(SPEECH, &ask(&json!({"model": "m:price"}))).await;
    assert!(!cut.whole && cut.status == 200, "a file that was cut looks like success");
    let answer =
        running.client.post(SPEECH, &ask(&json!({"model": "m:price", "stream_format": "sse"}))).await;
    let events = self::events(&answer.body).0;
    assert!(events.last().unwrap()["error"]["message"].is_string(), "{}", answer.text());
    assert_eq!(charged(&running), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_pays_for_what_it_has() {
    let provider = Provider::start().await;
    let running = bench(&provider).await;
    // By its header, the audio has ten seconds; one of them is delivered.
    let sound = sounds::wav(10_000);
    let part = &sound[..44 + (sound.len() - 44) / 10];
    provider.always([chunks([part]), vec![ScriptStep::Hang]].concat());
    let body = ask(&json!({"input": "x".repeat(300)}));
    let open = running.client.stream_until(SPEECH, &body, "WAVEfmt").await;
    drop(open);
    provider.until_left(1).await;
    until("the charge", || charged(&running) > 0).await;
    let charged = charged(&running);
    assert!((900_000..=3_000_000).contains(&charged), "{charged}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_provider_and_an_endless_one_are_ended() {
    let provider = Provider::start().await;
    let running = Bench::new()
        .kind("speech")
        .settings("[routing]\nquick_retry = \"0s\"\nattempts = 1")
        .hasty("a", &provider)
        .start()
        .await;
    for format in ["audio", "sse"] {
        // Silence before the first byte is an error; silence in the middle ends the audio.
        provider.then([chunks([&[][..]; 0]), vec![ScriptStep::Hang]].concat());
        let silent = running.client.post(SPEECH, &ask(&json!({"stream_format": format}))).await;
        assert_eq!(silent.status, 503, "{}", silent.text());
        let sound = sounds::wav(1_000);
        provider.then([chunks([&sound[..5_000]]), vec![ScriptStep::Hang]].concat());
        let stalled = running.client.post(SPEECH, &ask(&json!({"stream_format": format}))).await;
        assert_eq!((stalled.status, stalled.whole), (200, format == "sse"));
        // The audio is longer than any plausible speech of this text.
        let flood = vec![7_u8; 1 << 20];
        provider.then(ended(chunks(std::iter::once(&*sound).chain(std::iter::repeat_n(&*flood, 24)))));
        let endless = running.client.post(SPEECH, &ask(&json!({"stream_format": format}))).await;
        assert!(endless.body.len() < 40 << 20 && endless.whole == (format == "sse"));
    }
    let refused = running.client.post(SPEECH, &ask(&json!({"stream_format": "mp3"}))).await;
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("stream_format")));
}
