//! Request `POST /audio/speech` of engines that speak a text (vLLM-Omni, Kokoro, LocalAI and hosted ones). The audio
//! passes as it came; its length, which is charged, is measured in the audio itself.

use crate::audio::AudioMeter;
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, FinishReason, InferenceRequest, InferenceTask, MeteredTask,
    ModelKind, OfferObservation, ProviderAdapter, UpstreamAnswer, UpstreamError, UpstreamErrorKind,
    UpstreamRequest, WorkDone,
};
use penstock_json_scan::json;
use rust_decimal::Decimal;

/// Members that are forwarded unchanged.
const FORWARDED: &[&str] = &["input", "voice", "response_format", "speed", "instructions", "language"];
/// Bytes of a second of raw audio: 16 bits, 24 kHz, mono.
const PCM_BYTES_PER_SECOND: u64 = 48_000;
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
        // No audio format begins so: the engine reports an error with status 200.
        if audio.trim_ascii_start().first() == Some(&b'{') {
            return Err(UpstreamError::new(UpstreamErrorKind::InBandError));
        }
        if audio.is_empty() {
            return Err(malformed());
        }
        let seconds = audio_seconds(ask, task, &audio);
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
}

/// Returns the seconds of the audio, three places: measured, or by the length of the text where the format does not
/// show it; never more than was reserved.
fn audio_seconds(ask: &InferenceRequest, task: &MeteredTask, audio: &[u8]) -> Decimal {
    let most = match task.max_work {
        WorkDone::Audio { seconds } => seconds,
        _ => Decimal::ZERO,
    };
    let measured = || {
        let mut meter = AudioMeter::default();
        meter.push(audio);
        meter.end().ok().and_then(|info| info.seconds)
    };
    let seconds = if task.content_type == Some("audio/pcm") {
        Decimal::from(audio.len() as u64).checked_div(Decimal::from(PCM_BYTES_PER_SECOND))
    } else {
        measured()
    };
    let estimated = || {
        let characters = Decimal::from(ask.prompt_bytes as u64);
        characters.checked_div(Decimal::from(CHARACTERS_PER_SECOND)).unwrap_or(most)
    };
    seconds.unwrap_or_else(estimated).min(most).round_dp(3)
}
