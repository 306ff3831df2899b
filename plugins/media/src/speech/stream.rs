//! Speech that is forwarded while it arrives: as bytes, or as events `speech.audio.delta` and `speech.audio.done`.
//! The duration is measured in the forwarded bytes.

use super::synthesis::{SpeechMeter, check_audio};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use penstock_core::{
    ApiError, AttemptTarget, Dialect, FinishReason, InferenceRequest, InferenceTask, MeasuredEnergy,
    OutputBuffer, PassthroughDelivery, RescueMode, StreamProgress, StreamTranslation, TokenUsage,
    UpstreamError, UpstreamErrorKind, WorkDone,
};
use penstock_http_wire::error::error_envelope;
use penstock_http_wire::sse::encode_data_event;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

/// Largest plausible number of bytes of a second of audio: eight channels of 48 kHz and 16 bits.
const MAX_BYTES_PER_SECOND: u64 = 768_000;
/// Additional bytes that are allowed for headers, which may contain pictures.
const EXTRA_BYTES: u64 = 1 << 20;

/// Translator of one speech answer that is forwarded to the client while it arrives.
pub(super) struct SpeechTranslation {
    meter: SpeechMeter,
    delivery: PassthroughDelivery,
    /// Content type of the requested format; after the first output, the type of the actual audio.
    content_type: Option<&'static str>,
    progress: StreamProgress,
    /// First bytes, held back until they are recognised as audio.
    start: BytesMut,
    passed: u64,
    max_bytes: u64,
    /// Seconds of complete audio.
    seconds: Option<Decimal>,
    /// Tokens of the input text, as counted by the gateway.
    input: TokenUsage,
}

impl SpeechTranslation {
    /// Returns the translation of an answer; `None` if the request is not for speech.
    pub(super) fn new(ask: &InferenceRequest) -> Option<Self> {
        let InferenceTask::Passthrough(task) = &ask.task else { return None };
        let seconds = match task.max_work {
            WorkDone::Audio { seconds } => seconds.ceil().to_u64().unwrap_or(u64::MAX),
            _ => 0,
        };
        Some(Self {
            meter: SpeechMeter::new(ask, task),
            delivery: task.delivery,
            content_type: task.content_type,
            progress: StreamProgress::Pending,
            start: BytesMut::new(),
            passed: 0,
            seconds: None,
            max_bytes: seconds.saturating_mul(MAX_BYTES_PER_SECOND).saturating_add(EXTRA_BYTES),
            input: ask.estimate_unreported_usage(0),
        })
    }

    /// Forwards audio to the client and measures it.
    fn pass(&mut self, audio: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        self.passed = self.passed.saturating_add(audio.len() as u64);
        if self.passed > self.max_bytes {
            return Err(UpstreamError::new(UpstreamErrorKind::Malformed));
        }
        self.meter.push(&audio);
        self.progress = self.progress.max(StreamProgress::Committed);
        out.0.push(match self.delivery {
            PassthroughDelivery::Complete | PassthroughDelivery::Bytes => audio,
            PassthroughDelivery::Events => {
                let mut event = br#"{"type":"speech.audio.delta","audio":""#.to_vec();
                event.extend_from_slice(STANDARD.encode(&audio).as_bytes());
                event.extend_from_slice(br#""}"#);
                encode_data_event(&event)
            }
        });
        Ok(())
    }

    /// Forwards the first bytes once they are recognised as audio. `all` is true if no more bytes follow.
    fn pass_start(&mut self, all: bool, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        let Some(content_type) = check_audio(&self.start, self.content_type, all)? else { return Ok(()) };
        self.content_type = Some(content_type);
        self.meter.begin(Some(content_type), &self.start);
        let start = self.start.split().freeze();
        self.pass(start, out)
    }
}

impl SpeechTranslation {
    /// Ends an answer of which nothing was sent yet, because its first bytes were not recognised before its end.
    fn end_start(&mut self, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        let mut held = OutputBuffer::default();
        self.pass_start(true, &mut held)?;
        let seconds = self.meter.end_complete().inspect_err(|_| self.progress = StreamProgress::Pending)?;
        out.0.append(&mut held.0);
        (self.seconds, self.progress) = (Some(seconds), StreamProgress::Ended);
        Ok(())
    }
}

impl StreamTranslation for SpeechTranslation {
    fn push(&mut self, bytes: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.progress >= StreamProgress::Committed {
            return self.pass(bytes, out);
        }
        self.start.extend_from_slice(&bytes);
        self.pass_start(false, out)
    }

    fn end(&mut self, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if self.progress < StreamProgress::Committed {
            return self.end_start(out);
        }
        self.seconds = Some(self.meter.end_complete()?);
        self.progress = StreamProgress::Ended;
        Ok(())
    }

    fn progress(&self) -> StreamProgress {
        self.progress
    }

    fn content_type(&self) -> Option<&'static str> {
        self.content_type
    }

    fn usage(&self) -> Option<TokenUsage> {
        None
    }

    fn delivered_text_bytes(&self) -> usize {
        self.received_text_bytes()
    }

    fn received_text_bytes(&self) -> usize {
        usize::try_from(self.passed).unwrap_or(usize::MAX)
    }

    fn estimated_usage(&self) -> TokenUsage {
        TokenUsage::default()
    }

    fn attempt_usage(&self) -> TokenUsage {
        TokenUsage::default()
    }

    fn non_token_work(&mut self) -> Option<WorkDone> {
        let seconds = self.seconds.take().unwrap_or_else(|| self.meter.take_partial_seconds());
        Some(WorkDone::Audio { seconds })
    }

    fn buffered_bytes(&self) -> usize {
        self.start.len()
    }

    fn measured_energy(&self) -> Option<MeasuredEnergy> {
        None
    }

    fn finish_reason(&self) -> Option<FinishReason> {
        (self.progress == StreamProgress::Ended).then_some(FinishReason::Stop)
    }

    fn delivered_text(&mut self) -> Option<String> {
        None
    }

    /// Returns false: another provider cannot continue speech, because two engines never generate identical audio.
    fn start_rescue(&mut self, _: &AttemptTarget<'_>, _: RescueMode) -> bool {
        false
    }

    /// Writes the last event. Its usage has only the tokens of the input text, because speech is not counted in tokens.
    fn write_end(&mut self, _: &TokenUsage, objects: &[u8], out: &mut OutputBuffer) {
        if self.delivery != PassthroughDelivery::Events {
            return;
        }
        let mut event = format!(
            r#"{{"type":"speech.audio.done","usage":{{"input_tokens":{0},"output_tokens":0,"total_tokens":{0}}}"#,
            self.input.input
        )
        .into_bytes();
        if !objects.is_empty() {
            event.push(b',');
            event.extend_from_slice(objects);
        }
        event.push(b'}');
        out.0.push(encode_data_event(&event));
    }

    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut OutputBuffer) {
        if self.delivery != PassthroughDelivery::Events {
            return;
        }
        let mut event = error_envelope(Dialect::Chat, refusal, request_id);
        if let (false, Some(b'}')) = (objects.is_empty(), event.last()) {
            event.pop();
            event.push(b',');
            event.extend_from_slice(objects);
            event.push(b'}');
        }
        out.0.push(encode_data_event(&event));
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
