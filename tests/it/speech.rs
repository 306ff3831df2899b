//! `POST /v1/audio/speech` and `POST /v1/moderations`: a whole gateway in front of scripted providers.

use crate::harness::gateway::Running;
use crate::harness::script::{Script, ScriptStep, json_answer, status};
use crate::harness::{Answer, Bench, Provider};
use crate::sounds;
use serde_json::{Value, json};

const SPEECH: &str = "/v1/audio/speech";
const PRICE: &str = "price = { minute = 0.6 }";

fn audio(content_type: &str, bytes: Vec<u8>) -> Script {
    vec![ScriptStep::Head(200, vec![("content-type", content_type.to_owned())]), ScriptStep::Body(bytes)]
}

async fn speak(running: &Running, members: Value) -> Answer {
    let mut body = json!({"model": "m", "input": "A penstock is a pipe that leads water.", "voice": "alloy"});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    running.client.post(SPEECH, &body).await
}

fn header(answer: &Answer, name: &str) -> Value {
    serde_json::from_str(answer.header(name).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speech_is_the_provider_s_audio_and_is_charged_by_its_length() {
    let provider = Provider::start().await;
    let sound = sounds::wav(4_000);
    provider.always(audio("audio/mpeg", sound.clone()));
    let running = Bench::new().kind("speech").provider_with("a", &provider, "", PRICE).start().await;
    let answer =
        speak(&running, json!({"response_format": "wav", "speed": 1.5, "stream_format": "audio"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.body, sound);
    assert_eq!(answer.header("content-type"), Some("audio/wav"));
    // Four seconds at 0.60 euro a minute are four credits.
    assert_eq!(header(&answer, "x-billing-cost")["credits"].as_f64(), Some(4.0));
    let joules = 2.0 * 4.0 * 1.30 * 1.12 * 1.16;
    let energy = header(&answer, "x-environment-impact")["energy_kwh"].as_f64().unwrap();
    assert!((energy - joules / 3.6e6).abs() < 1e-12, "{energy}");
    let call = provider.last();
    assert_eq!(call.path, "/v1/audio/speech");
    assert_eq!(
        call.json(),
        json!({"model": "theirs", "input": "A penstock is a pipe that leads water.", "voice": "alloy",
            "response_format": "wav", "speed": 1.5})
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn speech_is_never_charged_beyond_what_its_text_can_be() {
    let provider = Provider::start().await;
    let running = Bench::new().kind("speech").provider_with("a", &provider, "", PRICE).start().await;
    provider.always(audio("audio/pcm", vec![0; 48_000 * 60]));
    let answer = speak(&running, json!({"input": "ten chars.", "response_format": "pcm"})).await;
    assert_eq!(answer.header("content-type"), Some("audio/pcm"));
    // The charge is limited to a plausible duration. For ten characters that is ten seconds: five for speech, and
    // five for pauses.
    assert_eq!(header(&answer, "x-billing-cost")["credits"].as_f64(), Some(10.0));
    // The duration of audio that cannot be measured is estimated from the text.
    provider.clear();
    let frame = [&[0xff, 0xf1, 0x58, 0x80, 8, 0x1f, 0xfc][..], &[0; 57]].concat();
    provider.always(audio("audio/aac", frame.repeat(125)));
    let answer = speak(&running, json!({"input": "x".repeat(150), "response_format": "aac"})).await;
    assert_eq!(header(&answer, "x-billing-cost")["credits"].as_f64(), Some(10.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_without_audio_is_replaced() {
    let (silent, broken, good) = (Provider::start().await, Provider::start().await, Provider::start().await);
    silent.always(json_answer(200, &json!({"error": "no voice"})));
    broken.always(status(503));
    good.always(audio("audio/wav", sounds::wav(1_000)));
    let running = Bench::new()
        .kind("speech")
        .settings("[routing]\nquick_retry = \"0s\"")
        .provider_with("silent", &silent, "", "price = { minute = 0.1 }")
        .provider_with("broken", &broken, "", "price = { minute = 0.2 }")
        .provider_with("good", &good, "", PRICE)
        .start()
        .await;
    let answer = speak(&running, json!({"model": "m:price"})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("x-penstock-provider"), Some("good"));
    // `content-type` is the actual format of the bytes, not the requested one.
    assert_eq!(answer.header("content-type"), Some("audio/wav"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wav_file_that_was_cut_is_replaced() {
    let (cut, good) = (Provider::start().await, Provider::start().await);
    let sound = sounds::wav(2_000);
    cut.always(audio("audio/wav", sound[..sound.len() * 15 / 100].to_vec()));
    good.always(audio("audio/wav", sound.clone()));
    let running = Bench::new()
        .kind("speech")
        .settings("[routing]\nquick_retry = \"0s\"")
        .provider_with("cut", &cut, "", "price = { minute = 0.1 }")
        .provider_with("good", &good, "", PRICE)
        .start()
        .await;
    let answer = speak(&running, json!({"model": "m:price", "response_format": "wav"})).await;
    assert_eq!((answer.status, answer.header("x-penstock-provider")), (200, Some("good")));
    assert_eq!(answer.body, sound);
    // Without another provider nothing is charged.
    good.always(status(503));
    let answer = speak(&running, json!({"model": "m:price", "response_format": "wav"})).await;
    assert_eq!((answer.status, answer.header("x-billing-cost")), (503, None), "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_no_audio_is_not_charged() {
    let provider = Provider::start().await;
    let running = Bench::new().kind("speech").provider_with("a", &provider, "", PRICE).start().await;
    let head = &sounds::wav(1_000)[..58];
    for (content_type, body) in [
        ("audio/wav", head),
        ("audio/flac", b"fLaC"),
        ("text/html", &b"<html>Bad gateway</html>"[..]),
        ("text/plain", b"error: model not loaded"),
        ("audio/mpeg", b"error: model not loaded"),
        ("application/json", b"[1]"),
        ("application/json", b"\"err\""),
    ] {
        for format in ["mp3", "opus", "aac", "flac", "wav", "pcm"] {
            provider.clear();
            provider.always(audio(content_type, body.to_vec()));
            let answer = speak(&running, json!({"response_format": format})).await;
            assert_eq!(answer.status, 503, "{format} {content_type}: {}", answer.text());
            assert_eq!(answer.header("x-billing-cost"), None);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_speech_request_names_the_field() {
    let provider = Provider::start().await;
    let running = Bench::new().kind("speech").provider_with("a", &provider, "", PRICE).start().await;
    for (members, field) in [
        (json!({"input": ""}), "input"),
        (json!({"input": 1}), "input"),
        (json!({"speed": 5}), "speed"),
        (json!({"voice": 1}), "voice"),
        (json!({"response_format": "ogg"}), "response_format"),
        (json!({"stream_format": "mp3"}), "stream_format"),
    ] {
        let answer = speak(&running, members.clone()).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["param"].as_str()),
            (400, Some(field)),
            "{members}"
        );
    }
    let chat = running.client.post("/v1/chat/completions", &running.ask()).await;
    assert!(chat.text().contains("This model is used at /v1/audio/speech."), "{}", chat.text());
    assert_eq!(provider.calls(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moderation_passes_the_results_and_accounts_for_the_tokens() {
    let provider = Provider::start().await;
    let result = |flagged: bool| json!({"flagged": flagged, "categories": {"hate": flagged}, "category_scores": {"hate": 0.5}});
    provider.always(json_answer(
        200,
        &json!({"id": "x", "model": "theirs", "results": [result(true), result(false)], "usage": {"prompt_tokens": 12}}),
    ));
    let running = Bench::new()
        .kind("moderation")
        .provider_with("a", &provider, "", "price = { input = 1 }")
        .start()
        .await;
    let answer =
        running.client.post("/v1/moderations", &json!({"model": "m", "input": ["one", "two"]})).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    assert_eq!((&body["model"], &body["results"]), (&json!("m"), &json!([result(true), result(false)])));
    assert_eq!(body["usage"]["prompt_tokens"], 12);
    assert_eq!(body["billing_cost"]["credits"].to_string(), "0.0012");
    assert!(body["environment_impact"]["energy_kwh"].as_f64().unwrap() > 0.0);
    assert_eq!(provider.last().json(), json!({"model": "theirs", "input": ["one", "two"]}));
    // A wrong number of results is a failure of the provider. Implausible usage is replaced by the gateway's own
    // count.
    let one = running.client.post("/v1/moderations", &json!({"model": "m", "input": "one"})).await;
    assert_eq!(one.status, 503, "{}", one.text());
    provider.clear();
    provider.always(json_answer(
        200,
        &json!({"results": [result(false)], "usage": {"prompt_tokens": 1_000_000_000}}),
    ));
    let one = running.client.post("/v1/moderations", &json!({"model": "m", "input": "four"})).await;
    assert_eq!(one.json()["usage"]["prompt_tokens"], 2, "{}", one.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_changes_the_voice_reaches_an_offer_that_lists_it_and_is_refused_elsewhere() {
    let provider = Provider::start().await;
    provider.always(audio("audio/wav", sounds::wav(1_000)));
    let listing = format!("{PRICE}\nsupported_parameters = [\"ref_audio\", \"seed\"]");
    for (offer, members, refused) in [
        (PRICE, json!({"ref_audio": "data:audio/wav;base64,AAAA"}), Some("ref_audio")),
        (PRICE, json!({"temperature": 0}), Some("temperature")),
        (PRICE, json!({"seed": 0}), Some("seed")),
        (PRICE, json!({"lang_code": "", "ref_text": null, "x_vector_only_mode": false}), None),
        (PRICE, json!({"user": "u"}), None),
        (&listing, json!({"sample_rate": 8000, "seed": 7}), Some("sample_rate")),
        (&listing, json!({"ref_audio": "data:audio/wav;base64,AAAA", "seed": 7}), None),
    ] {
        let bench = Bench::new().kind("speech").model("supported_parameters = [\"voice\"]");
        let running = bench.provider_with("a", &provider, "", offer).start().await;
        let calls = provider.calls();
        let answer = speak(&running, members.clone()).await;
        match refused {
            Some(name) => {
                assert_eq!(answer.status, 400, "{members}");
                assert_eq!(answer.json()["error"]["param"], name, "{members}");
                assert_eq!(provider.calls(), calls, "{members}");
            }
            None => {
                assert_eq!(answer.status, 200, "{members}: {}", String::from_utf8_lossy(&answer.body));
                let sent = provider.last().json();
                for name in ["ref_audio", "seed"] {
                    assert_eq!(sent.get(name), members.get(name), "{members}");
                }
                assert!(sent.get("user").is_none() && sent.get("lang_code").is_none(), "{sent}");
            }
        }
    }
}
