//! Request `POST /audio/speech` of engines that speak a text (vLLM-Omni, Kokoro, LocalAI and hosted ones). The audio
//! passes as it came; its length, which is charged, is measured in the audio itself.

use super::stream::SpeechStream;
use crate::audio::AudioMeter;
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, InferenceTask, MeteredTask,
    ModelKind, OfferObservation, ProviderAdapter, StreamTranslation, UpstreamAnswer, UpstreamError,
    UpstreamErrorKind, UpstreamRequest, WorkDone,
};
use penstock_http_wire::json;
use rust_decimal::Decimal;

/// Members that are forwarded unchanged.
const FORWARDED: &[&str] = &["input", "voice", "response_format", "speed", "instructions", "language"];
/// Bytes of a second of raw audio: 16 bits, 24 kHz, mono.
const PCM_BYTES_PER_SECOND: u64 = 48_000;
/// Bytes of a second of the most compressed speech: 6 kbit/s, as Opus has it.
const MIN_BYTES_PER_SECOND: u64 = 750;
/// Characters of a second of ordinary speech, for audio whose length cannot be measured.
const CHARACTERS_PER_SECOND: u64 = 15;

/// Shape of the OpenAI API.
pub(super) struct SpeechShape;

impl ProviderAdapter for SpeechShape {
    fn kind(&self) -> ModelKind {
        ModelKind::Speech
    }

    fn name(&self) -> &'static str {
        "openai-speech"
    }

    fn path(&self) -> &'static str {
        "/audio/speech"
    }

    fn calls(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let mut head = b"{\"model\":".to_vec();
        json::write_str(&mut head, target.model);
        let mut body = vec![Bytes::from(head)];
        for field in ask.members.0.iter().filter(|field| FORWARDED.contains(&&*field.name)) {
            if ask.member_value(&field.name).is_some() {
                body.push(Bytes::from_static(b","));
                body.push(ask.body.slice(field.member.clone()));
            }
        }
        body.push(Bytes::from_static(b"}"));
        Ok(vec![UpstreamRequest::json(body)])
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        _: &AttemptTarget<'_>,
        mut answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let InferenceTask::Metered(task) = &ask.task else { return Err(malformed()) };
        let audio = answers.pop().map(|answer| answer.body).unwrap_or_default();
        // The engine reports an error with status 200.
        if is_error_text(&audio) {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        if audio.is_empty() {
            return Err(malformed());
        }
        let mut meter = SpeechMeter::new(ask, task);
        meter.push(&audio);
        let seconds = meter.seconds(true);
        Ok(BufferedResponse {
            output_bytes: audio.len(),
            body: vec![audio],
            work: Some(WorkDone::Audio { seconds }),
            measured_energy: None,
            finish_reason: FinishReason::Stop,
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }

    fn translate_stream(&self, ask: &InferenceRequest) -> Option<Box<dyn StreamTranslation>> {
        SpeechStream::new(ask).map(|stream| Box::new(stream) as Box<dyn StreamTranslation>)
    }
}

/// Returns true if the first bytes of an answer are those of a JSON object.
pub(super) fn is_error_text(start: &[u8]) -> bool {
    let start = start.get(..16).unwrap_or(start);
    let Some(rest) = start.trim_ascii_start().strip_prefix(b"{") else { return false };
    // Raw audio may have any first byte.
    start.is_ascii() && matches!(rest.trim_ascii_start().first(), None | Some(b'"' | b'}'))
}

/// Measures the length of spoken audio.
pub(super) struct SpeechMeter {
    audio: AudioMeter,
    bytes: u64,
    is_raw: bool,
    /// Most seconds that may be charged.
    most: Decimal,
    /// Seconds by the length of the text.
    usual: Decimal,
}

impl SpeechMeter {
    pub(super) fn new(ask: &InferenceRequest, task: &MeteredTask) -> Self {
        let most = match task.max_work {
            WorkDone::Audio { seconds } => seconds,
            _ => Decimal::ZERO,
        };
        let characters = Decimal::from(ask.prompt_bytes as u64);
        Self {
            audio: AudioMeter::default(),
            bytes: 0,
            is_raw: task.content_type == Some("audio/pcm"),
            most,
            usual: characters.checked_div(Decimal::from(CHARACTERS_PER_SECOND)).unwrap_or(most),
        }
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if !self.is_raw {
            self.audio.push(bytes);
        }
    }

    /// Returns the seconds, three places, and begins anew: measured, or by the length of the text where the format does not
    /// show it; never more than was reserved. The length of a part is also bounded by its bytes, since a header may tell
    /// that of the whole.
    pub(super) fn seconds(&mut self, is_complete: bool) -> Decimal {
        let bytes = Decimal::from(std::mem::take(&mut self.bytes));
        let audio = std::mem::take(&mut self.audio);
        let measured = match self.is_raw {
            true => bytes.checked_div(Decimal::from(PCM_BYTES_PER_SECOND)),
            false => audio.end().ok().and_then(|info| info.seconds),
        };
        let seconds = measured.unwrap_or(self.usual).min(self.most);
        let possible = bytes.checked_div(Decimal::from(MIN_BYTES_PER_SECOND)).unwrap_or(seconds);
        if is_complete { seconds } else { seconds.min(possible) }.round_dp(3)
    }
}
