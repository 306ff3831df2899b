//! Answers of providers of embeddings, rerank, images and transcriptions: the translated answer is valid, and within
//! the limits of the request.

use crate::{bit, choice, json, target};
use bytes::Bytes;
use penstock_core::{
    AudioInput, BodyMembers, Dialect, DurationBasis, ImageTask, InferenceRequest, InferenceTask, ModelKind,
    OfferCapabilities, RerankScoreTransform, TranscriptFormat, TranscriptionTask, UpstreamAnswer,
};
use penstock_request_validation::{RequestLimits, validate_embeddings_request, validate_rerank_request};

fn ask(kind: ModelKind, choice: u16) -> InferenceRequest {
    let limits = RequestLimits::default();
    let plain = |task| {
        InferenceRequest::from_non_chat_task(kind, Bytes::new(), BodyMembers::default(), "m".into(), task)
    };
    match kind {
        ModelKind::Embedding => {
            let format = if bit(choice, 0) { "base64" } else { "float" };
            let dimensions = if bit(choice, 1) { r#","dimensions":2"# } else { "" };
            let body =
                format!(r#"{{"model":"m","input":["a","b"],"encoding_format":"{format}"{dimensions}}}"#);
            validate_embeddings_request(Bytes::from(body), &limits).expect("a sound request")
        }
        ModelKind::Rerank => {
            let top = if bit(choice, 0) { r#","top_n":1"# } else { "" };
            let body = format!(
                r#"{{"model":"m","query":"q","documents":["a","b"],"return_documents":{}{top}}}"#,
                bit(choice, 1)
            );
            validate_rerank_request(Bytes::from(body), &limits).expect("a sound request")
        }
        ModelKind::Transcription => plain(InferenceTask::Transcribe(TranscriptionTask {
            language: None,
            prompt: None,
            temperature: None,
            format: [
                TranscriptFormat::Json,
                TranscriptFormat::Verbose,
                TranscriptFormat::Text,
                TranscriptFormat::Srt,
                TranscriptFormat::Vtt,
            ][usize::from(choice % 5)],
            word_timestamps: bit(choice, 4),
            audio: AudioInput {
                extension: "mp3",
                content_type: "audio/mpeg",
                seconds: Some(3.into()),
                basis: DurationBasis::Counted,
                bytes: 6,
            },
        })),
        _ => plain(InferenceTask::GenerateImages(ImageTask {
            prompt: Bytes::from_static(b"\"p\""),
            n: 2,
            size: bit(choice, 0).then(|| "64x32".parse().expect("a size")),
            as_base64: bit(choice, 1),
        })),
    }
}

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let body = Bytes::copy_from_slice(body);
    let score = if bit(choice, 2) { RerankScoreTransform::Sigmoid } else { RerankScoreTransform::Identity };
    let abilities = OfferCapabilities {
        score_transform: score,
        max_inputs: bit(choice, 3).then_some(1),
        ..OfferCapabilities::default()
    };
    let shapes = penstock_embeddings::ADAPTERS
        .iter()
        .chain(penstock_media::image::IMAGE_ADAPTERS)
        .chain(penstock_media::speech::AUDIO_ADAPTERS);
    for shape in shapes {
        let ask = ask(shape.kind(), choice);
        let target = target(Dialect::Chat, &abilities);
        let Ok(calls) = shape.build_requests(&ask, &target) else { continue };
        let answers = || {
            calls
                .iter()
                .map(|_| UpstreamAnswer { body: body.clone(), headers: vec![None; 8], measured_energy: None })
                .collect()
        };
        let Ok(whole) = shape.translate(&ask, &target, answers()) else { continue };
        assert_eq!(
            shape.translate(&ask, &target, answers()).ok().as_ref(),
            Some(&whole),
            "the same each time"
        );
        match &ask.task {
            InferenceTask::Embed(_) => {
                assert_eq!(json(&whole.body)["data"].as_array().map(Vec::len), Some(2))
            }
            InferenceTask::Rerank(asked) => {
                let value = json(&whole.body);
                let results = value["results"].as_array().expect("a list of results");
                assert!(results.len() <= asked.top_n.unwrap_or(2));
                let indices: Vec<u64> =
                    results.iter().filter_map(|result| result["index"].as_u64()).collect();
                assert!(indices.iter().all(|index| *index < 2) && indices.len() == results.len());
                assert!(indices.len() < 2 || indices[0] != indices[1], "a document twice");
            }
            InferenceTask::GenerateImages(_) => assert!(!whole.images.is_empty() && whole.images.len() <= 2),
            InferenceTask::Transcribe(asked)
                if matches!(asked.format, TranscriptFormat::Json | TranscriptFormat::Verbose) =>
            {
                assert!(json(&whole.body)["text"].is_string());
            }
            _ => assert!(std::str::from_utf8(&whole.body.concat()).is_ok()),
        }
    }
}
