//! Request formats of transcription providers: each request is a form whose last part is the audio, read from the
//! spool.

use super::transcript::Transcript;
use super::write;
use crate::audio::MAX_DURATION_SECONDS;
use crate::measured_energy::read_energy;
use bytes::Bytes;
use penstock_core::{
    AdjustableMember, ApiError, AttemptTarget, BufferedResponse, FinishReason, InferenceRequest,
    InferenceTask, ModelKind, OfferObservation, ProviderAdapter, TranscriptFormat, TranscriptionTask,
    UpstreamAnswer, UpstreamError, UpstreamErrorKind, UpstreamRequest, WorkDone,
};
use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;

/// Adapters of all transcription and speech providers; the first adapter of each kind of model is the default.
pub const AUDIO_ADAPTERS: &[&dyn ProviderAdapter] = &[
    &TranscriptionAdapter {
        name: "openai-transcription",
        path: "/audio/transcriptions",
        dialect: FormDialect::Verbose,
    },
    &TranscriptionAdapter {
        name: "openai-transcription-text",
        path: "/audio/transcriptions",
        dialect: FormDialect::Text,
    },
    &TranscriptionAdapter {
        name: "mistral-transcription",
        path: "/audio/transcriptions",
        dialect: FormDialect::Mistral,
    },
    &super::synthesis::SpeechAdapter,
    &TranscriptionAdapter { name: "whisper-cpp", path: "/inference", dialect: FormDialect::Verbose },
];

/// Adapter for a provider of transcriptions, whose request is a multipart form.
struct TranscriptionAdapter {
    name: &'static str,
    path: &'static str,
    dialect: FormDialect,
}

/// Response formats that a provider supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FormDialect {
    /// `verbose_json`: vLLM, faster-whisper, LocalAI and most hosts.
    Verbose,
    /// Provider that supports only `json`: the text without timestamps.
    Text,
    /// Mistral: segments are requested by a separate field, which excludes `language`; a prompt is not supported.
    Mistral,
}

impl ProviderAdapter for TranscriptionAdapter {
    fn kind(&self) -> ModelKind {
        ModelKind::Transcription
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn path(&self) -> &'static str {
        self.path
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let task = transcription_task(ask)
            .ok_or_else(|| ApiError::unsupported("model", "model: it does not transcribe audio."))?;
        let mut parts = FormBuilder::new(target.answer_id);
        parts.field("model", target.model);
        let plain = !target.allows_member(AdjustableMember::MediaFormat);
        match self.dialect {
            FormDialect::Verbose if !plain => {
                parts.common_fields(task);
                parts.field("response_format", "verbose_json");
                parts.field("timestamp_granularities[]", "segment");
                if task.word_timestamps {
                    parts.field("timestamp_granularities[]", "word");
                }
            }
            FormDialect::Verbose | FormDialect::Text => {
                // Subtitles need no segments: without them there is one subtitle for the whole length.
                if task.format == TranscriptFormat::Verbose {
                    return Err(unsupported_field("response_format", "this provider returns no segments"));
                }
                parts.common_fields(task);
                // A provider that refuses this field (`plain`) has `json` as its default format.
                if !plain {
                    parts.field("response_format", "json");
                }
            }
            FormDialect::Mistral => mistral(task, plain, &mut parts)?,
        }
        Ok(vec![parts.finish(task)])
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        _: &AttemptTarget<'_>,
        answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let task = transcription_task(ask).ok_or_else(malformed)?;
        let [answer] = answers.as_slice() else { return Err(malformed()) };
        let mut transcript = Transcript::parse(&answer.body)?;
        let seconds = audio_seconds(task, &transcript);
        transcript.limit_times(seconds);
        Ok(BufferedResponse {
            body: vec![write::write_transcript(&transcript, task, Some(seconds))],
            work: Some(WorkDone::Audio { seconds }),
            provider_work: None,
            measured_energy: read_energy(&answer.body),
            finish_reason: FinishReason::Stop,
            output_bytes: transcript.text.len(),
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }
}

fn transcription_task(ask: &InferenceRequest) -> Option<&TranscriptionTask> {
    match &ask.task {
        InferenceTask::Transcribe(task) => Some(task),
        _ => None,
    }
}

fn unsupported_field(name: &str, sentence: &str) -> ApiError {
    ApiError::unsupported(name, format!("{name}: {sentence}."))
}

/// Adds the fields of Mistral. Its API accepts either timestamps or a language: timestamps take precedence if the
/// client's format needs segments.
fn mistral(task: &TranscriptionTask, plain: bool, parts: &mut FormBuilder) -> Result<(), ApiError> {
    if task.prompt.is_some() {
        return Err(unsupported_field("prompt", "this provider takes none"));
    }
    if task.word_timestamps {
        return Err(unsupported_field("timestamp_granularities", "this provider returns no words"));
    }
    if let Some(temperature) = &task.temperature {
        parts.field("temperature", temperature);
    }
    match (&task.language, task.format) {
        (Some(language), TranscriptFormat::Json | TranscriptFormat::Text) => {
            parts.field("language", language)
        }
        (_, TranscriptFormat::Json | TranscriptFormat::Text) if plain => {}
        _ => parts.field("timestamp_granularities", "segment"),
    }
    Ok(())
}

/// Returns the seconds of audio to charge, as
/// [`AudioInput::charged_seconds`](penstock_core::AudioInput::charged_seconds) computes them from the duration that the
/// provider reports or, without one, from the end of the last segment.
fn audio_seconds(task: &TranscriptionTask, transcript: &Transcript) -> Decimal {
    let last = || Some(transcript.last_time()? as f64 / 1000.0);
    let reported = transcript.seconds.filter(|seconds| *seconds > 0.0).or_else(last).filter(|end| *end > 0.0);
    let credible =
        reported.map(|seconds| seconds.min(MAX_DURATION_SECONDS as f64)).and_then(Decimal::from_f64);
    task.audio.charged_seconds(credible)
}

/// Form under construction. Its boundary contains the random id of the request, so that a client cannot prepare a file
/// or a field that contains the boundary.
struct FormBuilder {
    boundary: String,
    text: String,
}

impl FormBuilder {
    fn new(id: &str) -> Self {
        Self { boundary: format!("----penstock{id}"), text: String::new() }
    }

    fn begin_part(&mut self, name: &str, more: &str) {
        let head = [
            "--",
            &self.boundary,
            "\r\nContent-Disposition: form-data; name=\"",
            name,
            "\"",
            more,
            "\r\n\r\n",
        ];
        self.text.extend(head);
    }

    fn field(&mut self, name: &str, value: &str) {
        self.begin_part(name, "");
        self.text.extend([value, "\r\n"]);
    }

    /// Adds the fields that every engine accepts.
    fn common_fields(&mut self, task: &TranscriptionTask) {
        for (name, value) in
            [("language", &task.language), ("prompt", &task.prompt), ("temperature", &task.temperature)]
        {
            if let Some(value) = value {
                self.field(name, value);
            }
        }
    }

    /// Adds the audio as the last part, because engines read the fields before it.
    fn finish(mut self, task: &TranscriptionTask) -> UpstreamRequest {
        let sound = &task.audio;
        let more =
            ["; filename=\"audio.", sound.extension, "\"\r\nContent-Type: ", sound.content_type].concat();
        self.begin_part("file", &more);
        let tail = format!("\r\n--{}--\r\n", self.boundary);
        UpstreamRequest {
            content_type: format!("multipart/form-data; boundary={}", self.boundary).into(),
            body: vec![Bytes::from(self.text), Bytes::from(tail)],
            upload_index: Some(1),
        }
    }
}
