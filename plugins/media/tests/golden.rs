//! Golden cases, a folder for each shape of provider: client request, provider request, provider answer, client answer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::*;
use penstock_media::{image, speech};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

fn folders(path: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// Compares with a golden file, or writes the file if `PENSTOCK_BLESS` is set.
fn golden(file: &Path, actual: &[u8]) {
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        fs::write(file, actual).unwrap();
    }
    let expected = fs::read(file).unwrap_or_else(|_| panic!("{} is missing", file.display()));
    assert_eq!(String::from_utf8_lossy(&expected), String::from_utf8_lossy(actual), "{}", file.display());
}

/// Shapes with golden cases. Speech synthesis has none, because its audio is forwarded unchanged.
fn form_shapes() -> impl Iterator<Item = &'static &'static dyn ProviderAdapter> {
    image::IMAGE_ADAPTERS
        .iter()
        .chain(speech::AUDIO_ADAPTERS)
        .filter(|shape| shape.kind() != ModelKind::Speech)
}

fn text(value: &Value, name: &str) -> Option<Box<str>> {
    value[name].as_str().map(Into::into)
}

fn task(kind: ModelKind, case: &Value) -> InferenceTask {
    if kind == ModelKind::Image {
        return InferenceTask::GenerateImages(ImageTask {
            prompt: Bytes::from(case["prompt"].to_string()),
            n: case["n"].as_u64().map_or(1, |n| n as u32),
            size: case["size"].as_str().map(|size| size.parse().unwrap()),
            as_base64: case["response_format"] == "b64_json",
        });
    }
    InferenceTask::Transcribe(TranscriptionTask {
        language: text(case, "language"),
        prompt: text(case, "prompt"),
        temperature: text(case, "temperature"),
        format: match case["response_format"].as_str().unwrap_or("json") {
            "json" => TranscriptFormat::Json,
            "verbose_json" => TranscriptFormat::Verbose,
            "text" => TranscriptFormat::Text,
            "srt" => TranscriptFormat::Srt,
            "vtt" => TranscriptFormat::Vtt,
            other => panic!("{other}"),
        },
        word_timestamps: case["words"] == true,
        audio: AudioInput {
            extension: "mp3",
            content_type: "audio/mpeg",
            seconds: case["seconds"].as_str().map(|seconds| seconds.parse().unwrap()),
            basis: DurationBasis::Counted,
            bytes: case["bytes"].as_u64().unwrap_or(1_000_000),
        },
    })
}

/// Returns a provider request as sent on the wire, with the upload inserted.
fn wire(call: &UpstreamRequest) -> Vec<u8> {
    let mut bytes = format!("content-type: {}\n\n", call.content_type).into_bytes();
    for (index, piece) in call.body.iter().enumerate() {
        if call.upload_index == Some(index) {
            bytes.extend_from_slice(b"<file>");
        }
        bytes.extend_from_slice(piece);
    }
    bytes.push(b'\n');
    bytes
}

fn refusal(refusal: &ApiError) -> Vec<u8> {
    format!("{:?} {:?} {}\n", refusal.code, refusal.param, refusal.message).into_bytes()
}

fn answered(whole: Result<BufferedResponse, UpstreamError>) -> Vec<u8> {
    let whole = match whole {
        Ok(whole) => whole,
        Err(fault) => return format!("{:?}\n", fault.kind).into_bytes(),
    };
    let mut bytes = whole.body.concat();
    for picture in &whole.images {
        bytes.extend_from_slice(format!("{picture:?}\n").as_bytes());
    }
    bytes.extend_from_slice(
        format!("\n{:?} {:?} text {}\n", whole.work, whole.measured_energy, whole.output_bytes).as_bytes(),
    );
    bytes
}

#[test]
fn every_case_matches_its_expectation() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut count = 0;
    for shape in form_shapes() {
        for case in folders(&testdata.join(shape.name())) {
            count += 1;
            let asked: Value = serde_json::from_slice(&fs::read(case.join("ask.json")).unwrap()).unwrap();
            let task = task(shape.kind(), &asked);
            let ask = InferenceRequest::from_non_chat_task(
                shape.kind(),
                Bytes::new(),
                BodyMembers::default(),
                "org/model".into(),
                task,
            );
            let max_images = asked["max_images"].as_u64().map(|most| most as u32);
            let abilities = OfferCapabilities { max_images, ..OfferCapabilities::default() };
            let target = AttemptTarget {
                model: "engine/model",
                dialect: Dialect::Chat,
                capabilities: &abilities,
                preset: &[],
                max_tokens: None,
                adjustment: penstock_core::RequestAdjustment::default(),
                answer_model: "org/model",
                answer_id: "abc123",
                answer_created: 1_700_000_000,
            };
            let calls = match shape.build_requests(&ask, &target) {
                Ok(calls) => calls,
                Err(refused) => {
                    golden(&case.join("sent.txt"), &refusal(&refused));
                    continue;
                }
            };
            assert_eq!(shape.build_requests(&ask, &target).unwrap(), calls, "the same calls each time");
            let sent: Vec<u8> = calls.iter().flat_map(wire).collect();
            golden(&case.join("sent.txt"), &sent);
            let Ok(got) = fs::read(case.join("got.json")) else { continue };
            let got = Bytes::from(got);
            let answers = calls
                .iter()
                .map(|_| UpstreamAnswer { body: got.clone(), ..UpstreamAnswer::default() })
                .collect();
            golden(&case.join("answered.txt"), &answered(shape.translate(&ask, &target, answers)));
        }
    }
    assert!(count >= 30, "the cases are there: {count}");
}

#[test]
fn members_that_no_client_sent_can_be_left_out() {
    let abilities = OfferCapabilities::default();
    for shape in form_shapes() {
        let is_image = shape.kind() == ModelKind::Image;
        let case = if is_image { serde_json::json!({"prompt": "p"}) } else { serde_json::json!({}) };
        let task = task(shape.kind(), &case);
        let ask = InferenceRequest::from_non_chat_task(
            shape.kind(),
            Bytes::new(),
            BodyMembers::default(),
            "m".into(),
            task,
        );
        let sent = |omitted: AdjustableMemberSet| {
            let target = AttemptTarget {
                model: "m",
                dialect: Dialect::Chat,
                capabilities: &abilities,
                preset: &[],
                max_tokens: None,
                adjustment: RequestAdjustment { omitted, ..RequestAdjustment::default() },
                answer_model: "m",
                answer_id: "id",
                answer_created: 0,
            };
            let calls = shape.build_requests(&ask, &target).unwrap();
            String::from_utf8(calls.iter().flat_map(wire).collect()).unwrap()
        };
        let names = ["response_format", "timestamp_granularities", "\"n\":", "batch_size"];
        let whole = sent(AdjustableMemberSet::NONE);
        assert!(names.iter().any(|name| whole.contains(name)), "{}: {whole}", shape.name());
        let all = AdjustableMemberSet::from_member(AdjustableMember::MediaFormat)
            .union(AdjustableMemberSet::from_member(AdjustableMember::ImageCount));
        let rest = sent(all);
        assert!(names.iter().all(|name| !rest.contains(name)), "{}: {rest}", shape.name());
    }
}

#[test]
fn no_answer_however_broken_makes_a_shape_panic() {
    let testdata = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let abilities = OfferCapabilities::default();
    let target = AttemptTarget {
        model: "m",
        dialect: Dialect::Chat,
        capabilities: &abilities,
        preset: &[],
        max_tokens: None,
        adjustment: penstock_core::RequestAdjustment::default(),
        answer_model: "m",
        answer_id: "id",
        answer_created: 0,
    };
    for shape in form_shapes() {
        let format = if shape.kind() == ModelKind::Image { "b64_json" } else { "vtt" };
        let task = task(shape.kind(), &serde_json::json!({"prompt": "p", "response_format": format}));
        let ask = InferenceRequest::from_non_chat_task(
            shape.kind(),
            Bytes::new(),
            BodyMembers::default(),
            "m".into(),
            task,
        );
        for case in folders(&testdata.join(shape.name())) {
            let Ok(got) = fs::read(case.join("got.json")) else { continue };
            for end in 0..got.len() {
                let body = Bytes::copy_from_slice(&got[..end]);
                let whole = shape.translate(
                    &ask,
                    &target,
                    vec![UpstreamAnswer { body, ..UpstreamAnswer::default() }],
                );
                let closed = got[..end].trim_ascii_end() == got.trim_ascii_end();
                assert!(whole.is_err() || closed, "{} cut at {end}", case.display());
            }
        }
    }
}

#[test]
fn subtitles_need_no_segments() {
    let abilities = OfferCapabilities::default();
    for name in ["openai-transcription", "openai-transcription-text", "whisper-cpp"] {
        let shape = speech::AUDIO_ADAPTERS.iter().find(|shape| shape.name() == name).unwrap();
        for (format, refused, expected) in [
            ("srt", false, "1\n00:00:00,000 --> 00:00:02,500\nhello\n\n"),
            ("vtt", false, "WEBVTT\n\n00:00:00.000 --> 00:00:02.500\nhello\n\n"),
            ("verbose_json", true, ""),
        ] {
            let case = serde_json::json!({"response_format": format, "seconds": "2.5"});
            let ask = InferenceRequest::from_non_chat_task(
                shape.kind(),
                Bytes::new(),
                BodyMembers::default(),
                "m".into(),
                task(shape.kind(), &case),
            );
            // The provider has refused the field `response_format`.
            let omitted = AdjustableMemberSet::from_member(AdjustableMember::MediaFormat);
            let target = AttemptTarget {
                model: "m",
                dialect: Dialect::Chat,
                capabilities: &abilities,
                preset: &[],
                max_tokens: None,
                adjustment: RequestAdjustment { omitted, ..RequestAdjustment::default() },
                answer_model: "m",
                answer_id: "id",
                answer_created: 0,
            };
            assert_eq!(shape.build_requests(&ask, &target).is_err(), refused, "{name} {format}");
            if !refused {
                let body = Bytes::from_static(br#"{"text":"hello"}"#);
                let answers = vec![UpstreamAnswer { body, ..UpstreamAnswer::default() }];
                let whole = shape.translate(&ask, &target, answers).unwrap().body.concat();
                assert_eq!(String::from_utf8(whole).unwrap(), expected, "{name} {format}");
            }
        }
    }
}

#[test]
fn words_that_the_provider_lacks_are_left_out() {
    let abilities = OfferCapabilities::default();
    let shape = speech::AUDIO_ADAPTERS.first().unwrap();
    let case = serde_json::json!({"response_format": "verbose_json", "words": true, "seconds": "2"});
    let ask = InferenceRequest::from_non_chat_task(
        shape.kind(),
        Bytes::new(),
        BodyMembers::default(),
        "m".into(),
        task(shape.kind(), &case),
    );
    let target = AttemptTarget {
        model: "m",
        dialect: Dialect::Chat,
        capabilities: &abilities,
        preset: &[],
        max_tokens: None,
        adjustment: RequestAdjustment::default(),
        answer_model: "m",
        answer_id: "id",
        answer_created: 0,
    };
    let words = |body: &'static str| {
        let answers = vec![UpstreamAnswer { body: Bytes::from(body), ..UpstreamAnswer::default() }];
        let whole = shape.translate(&ask, &target, answers).unwrap().body.concat();
        serde_json::from_slice::<Value>(&whole).unwrap().get("words").cloned()
    };
    assert_eq!(words(r#"{"text":"hi"}"#), None);
    assert_eq!(words(r#"{"text":"hi","words":[]}"#), None);
    assert_eq!(words(r#"{"text":"","words":[]}"#), Some(serde_json::json!([])));
    let timed = r#"{"text":"hi","words":[{"word":"hi","start":0,"end":1}]}"#;
    assert_eq!(words(timed), Some(serde_json::json!([{"word": "hi", "start": 0, "end": 1}])));
}
