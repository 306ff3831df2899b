//! Answers of providers with status 200: which ones are accepted as an image or audio, and which ones are errors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::*;
use penstock_media::{image, speech};
use rust_decimal::Decimal;

fn target(abilities: &OfferCapabilities) -> AttemptTarget<'_> {
    AttemptTarget {
        model: "engine/model",
        dialect: Dialect::Chat,
        capabilities: abilities,
        preset: &[],
        max_tokens: None,
        adjustment: RequestAdjustment::default(),
        answer_model: "org/model",
        answer_id: "abc123",
        answer_created: 1_700_000_000,
    }
}

/// Translates an answer; returns the error if the answer is not an image or audio.
fn translate(
    shape: &dyn ProviderAdapter,
    task: InferenceTask,
    content_type: Option<&str>,
    body: &[u8],
) -> Option<UpstreamErrorKind> {
    let ask = InferenceRequest::from_non_chat_task(
        shape.kind(),
        Bytes::new(),
        BodyMembers::default(),
        "m".into(),
        task,
    );
    let abilities = OfferCapabilities::default();
    let answer = UpstreamAnswer {
        body: Bytes::copy_from_slice(body),
        headers: vec![content_type.map(Into::into); shape.response_headers().len()],
        measured_energy: None,
    };
    shape.translate(&ask, &target(&abilities), vec![answer]).err().map(|error| error.kind)
}

fn speak(requested: &'static str, content_type: Option<&str>, body: &[u8]) -> Option<UpstreamErrorKind> {
    let shape = speech::AUDIO_ADAPTERS.iter().find(|shape| shape.kind() == ModelKind::Speech).unwrap();
    let task = InferenceTask::Passthrough(PassthroughTask {
        texts: Vec::new(),
        max_work: WorkDone::Audio { seconds: Decimal::TEN },
        content_type: Some(requested),
        delivery: PassthroughDelivery::Complete,
    });
    translate(*shape, task, content_type, body)
}

const FORMATS: [&str; 6] = ["audio/mpeg", "audio/ogg", "audio/aac", "audio/flac", "audio/wav", "audio/pcm"];

#[test]
fn text_is_no_speech_in_any_format() {
    for requested in FORMATS {
        for (content_type, body) in [
            (Some("text/html"), &b"<html>Bad gateway</html>"[..]),
            (Some("text/plain; charset=utf-8"), b"error: model not loaded"),
            (Some("application/octet-stream"), "Fehler: das Modell l\u{e4}dt".as_bytes()),
            (Some("application/json"), b"[1]"),
            (None, b"\"err\""),
            (None, b"\n <?xml version=\"1.0\"?>\n"),
            (None, b""),
        ] {
            let kind = speak(requested, content_type, body);
            assert_eq!(kind, Some(UpstreamErrorKind::Malformed), "{requested} {}", body.escape_ascii());
        }
        let long = "\u{20ac}".repeat(5_000);
        assert_eq!(speak(requested, None, long.as_bytes()), Some(UpstreamErrorKind::Malformed));
        let error = br#" {"error": {"message": "no voice"}}"#;
        assert_eq!(speak(requested, None, error), Some(UpstreamErrorKind::InBandError), "{requested}");
    }
}

#[test]
fn audio_of_the_requested_format_is_speech() {
    let files: [(&str, &[u8]); 10] = [
        ("audio/mpeg", b"ID3\x04\0\0\0\0\0\x05tags! and frames"),
        ("audio/mpeg", b"\xff\xfb\x90\x64 and more"),
        ("audio/mpeg", b"\xff\xf3\x84\xc4 and more"),
        ("audio/ogg", b"OggS\0\x02 and more"),
        ("audio/ogg", b"\x1a\x45\xdf\xa3 and more"),
        ("audio/aac", b"\xff\xf1\x50\x80 and more"),
        ("audio/aac", b"\0\0\0\x20ftypM4A  and more"),
        ("audio/flac", b"fLaC\0\0\0\x22 and more"),
        ("audio/wav", b"RIFF\xff\xff\xff\xffWAVEfmt "),
        ("audio/wav", b"RF64\xff\xff\xff\xffWAVEds64"),
    ];
    for (format, body) in files {
        assert_eq!(
            speak(format, Some("binary/octet-stream"), body),
            None,
            "{format} {}",
            body.escape_ascii()
        );
        let others = FORMATS.iter().filter(|other| !matches!(**other, "audio/pcm"));
        let taken = others.filter(|other| speak(other, None, body).is_none()).count();
        // Some engines support WAV only.
        let expected = if format == "audio/wav" { 5 } else { 1 };
        assert_eq!(taken, expected, "{}", body.escape_ascii());
    }
}

#[test]
fn raw_samples_are_speech_however_they_begin() {
    let loud: Vec<u8> = (0..2_000u32).flat_map(|at| ((at * 7919) as i16).to_le_bytes()).collect();
    let brace = [&b"{\"a\":"[..], &loud].concat();
    for samples in [&vec![0; 1_000][..], &loud, &brace, &[0xff; 64]] {
        assert_eq!(speak("audio/pcm", Some("audio/pcm"), samples), None);
        assert_eq!(speak("audio/pcm", None, samples), None);
        let html = speak("audio/pcm", Some("text/html"), samples);
        assert_eq!(html, Some(UpstreamErrorKind::Malformed));
    }
}

#[test]
fn only_pictures_are_images() {
    let shape = image::IMAGE_ADAPTERS.iter().find(|shape| shape.name() == "openai-images").unwrap();
    let read = |text: &str| {
        let task = InferenceTask::GenerateImages(ImageTask {
            prompt: Bytes::from_static(b"\"p\""),
            n: 1,
            size: None,
            as_base64: true,
        });
        let body = serde_json::json!({"data": [{"b64_json": text}]}).to_string();
        translate(*shape, task, None, body.as_bytes())
    };
    let encode = |bytes: &[u8]| String::from_utf8(image::encode_base64(bytes).to_vec()).unwrap();
    let images: [&[u8]; 5] = [
        b"\x89PNG\r\n\x1a\n and more of it, so that it is long",
        b"\xff\xd8\xff\xe0 and more",
        b"RIFF\0\0\0\0WEBPVP8 ",
        b"GIF89a and more",
        b"\0\0\0\x20ftypavif and more",
    ];
    for bytes in images {
        let text = encode(bytes);
        for form in [&text, text.trim_end_matches('='), &format!("data:image/png;base64,{text}")] {
            assert_eq!(read(form), None, "{form}");
        }
    }
    let others: [&[u8]; 5] =
        [b"hello world", b"<html>Bad gateway</html>", b"<svg xmlns=\"\"/>", b"{\"error\":1}", b"\x89PN"];
    for bytes in others {
        let text = encode(bytes);
        for form in [&text, text.trim_end_matches('='), &format!("data:image/png;base64,{text}")] {
            assert_eq!(read(form), Some(UpstreamErrorKind::Malformed), "{form}");
        }
    }
}
