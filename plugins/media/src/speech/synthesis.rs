//! Request `POST /audio/speech` of engines that generate speech (vLLM-Omni, Kokoro, LocalAI and hosted ones). The
//! gateway checks that the answer is audio and forwards it unchanged. The charged duration is measured in the audio
//! itself.

use super::parameters::is_forwarded_to_offer;
use super::signature::{FirstBytesOutcome, RAW_AUDIO_CONTENT_TYPE, aac_frame_end, check_first_bytes};
use super::stream::SpeechTranslation;
use crate::audio::{AudioMeter, MissingAudio};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, BufferedResponse, DurationBasis, FinishReason, InferenceRequest, InferenceTask,
    ModelKind, OfferObservation, PassthroughTask, ProviderAdapter, StreamTranslation, UpstreamAnswer,
    UpstreamError, UpstreamErrorKind, UpstreamRequest, WorkDone,
};
use penstock_json_scan::json;
use rust_decimal::Decimal;

/// Bytes of a second of raw audio: 16 bits, 24 kHz, mono.
const PCM_BYTES_PER_SECOND: u64 = 48_000;
/// Bytes per second of the most compressed speech: 6 kbit/s, with Opus.
const MIN_BYTES_PER_SECOND: u64 = 750;
/// Characters per second of ordinary speech, for audio whose duration cannot be measured.
const CHARACTERS_PER_SECOND: u64 = 15;

/// Number of bytes by which a header may overstate the data: some engines count their header, or round up to a buffer.
const MAX_OVERSTATED_BYTES: u64 = 1024;

/// Number of bytes at the start of an answer that are examined for text.
const SEARCHED_BYTES: usize = 4096;

/// Adapter for speech synthesis by the OpenAI API.
pub(super) struct SpeechAdapter;

impl ProviderAdapter for SpeechAdapter {
    fn kind(&self) -> ModelKind {
        ModelKind::Speech
    }

    fn name(&self) -> &'static str {
        "openai-speech"
    }

    fn path(&self) -> &'static str {
        "/audio/speech"
    }

    fn upstream_response_headers(&self) -> &'static [&'static str] {
        &["content-type"]
    }

    fn build_requests(
        &self,
        ask: &InferenceRequest,
        target: &AttemptTarget<'_>,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let mut head = b"{\"model\":".to_vec();
        json::write_str(&mut head, target.model);
        let mut body = vec![Bytes::from(head)];
        for field in
            ask.members.0.iter().filter(|field| is_forwarded_to_offer(&field.name, target.capabilities))
        {
            if ask.member_value(&field.name).is_some() {
                body.push(Bytes::from_static(b","));
                body.push(ask.body.slice(field.member_range.clone()));
            }
        }
        body.push(Bytes::from_static(b"}"));
        Ok(vec![UpstreamRequest::from_json(body)])
    }

    fn translate(
        &self,
        ask: &InferenceRequest,
        _: &AttemptTarget<'_>,
        mut answers: Vec<UpstreamAnswer>,
    ) -> Result<BufferedResponse, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let InferenceTask::Passthrough(task) = &ask.task else { return Err(malformed()) };
        let answer = answers.pop().unwrap_or_default();
        let content_type = answer.headers.first().and_then(Option::as_deref);
        let audio = answer.body;
        let found = check_audio(&audio, task.content_type, true)?;
        if task.content_type == Some(RAW_AUDIO_CONTENT_TYPE) && is_text_type(content_type) {
            return Err(malformed());
        }
        let mut meter = SpeechMeter::new(ask, task);
        meter.begin(found, &audio);
        meter.push(&audio);
        let seconds = meter.end_complete()?;
        Ok(BufferedResponse {
            output_bytes: audio.len(),
            body: vec![audio],
            work: Some(WorkDone::Audio { seconds }),
            provider_work: None,
            measured_energy: None,
            finish_reason: FinishReason::Stop,
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }

    fn translate_stream(&self, ask: &InferenceRequest) -> Option<Box<dyn StreamTranslation>> {
        SpeechTranslation::new(ask).map(|stream| Box::new(stream) as Box<dyn StreamTranslation>)
    }
}

/// Checks whether the start of an answer is audio of the requested content type, and returns its content type; `None`
/// if more bytes are needed, which never happens if `all` is true.
///
/// # Errors
/// Returns `InBandError` for the text of an error object, `Malformed` for anything else that is not audio.
pub(super) fn check_audio(
    audio: &[u8],
    requested: Option<&'static str>,
    all: bool,
) -> Result<Option<&'static str>, UpstreamError> {
    match check_first_bytes(audio, requested, all) {
        FirstBytesOutcome::Accepted(RAW_AUDIO_CONTENT_TYPE) if is_text(audio) => {}
        FirstBytesOutcome::Accepted(content_type) => return Ok(Some(content_type)),
        FirstBytesOutcome::Undecided => return Ok(None),
        FirstBytesOutcome::Refused => {}
    }
    // Some engines report an error as a JSON object with status 200.
    let is_object = is_text(audio) && audio.trim_ascii_start().first() == Some(&b'{');
    let kind = if is_object { UpstreamErrorKind::InBandError } else { UpstreamErrorKind::Malformed };
    Err(UpstreamError::new(kind))
}

/// Returns the content type of generated audio by its first bytes; `requested` if they are of no recognised format.
#[must_use]
pub fn generated_audio_type(audio: &[u8], requested: &'static str) -> &'static str {
    match check_first_bytes(audio, Some(requested), true) {
        FirstBytesOutcome::Accepted(content_type) => content_type,
        FirstBytesOutcome::Refused | FirstBytesOutcome::Undecided => requested,
    }
}

/// Returns true for the content types of error pages and messages.
fn is_text_type(content_type: Option<&str>) -> bool {
    let name =
        content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name.starts_with("text/") || ["json", "xml", "html"].iter().any(|end| name.ends_with(end))
}

/// Returns true for UTF-8 without control characters. Audio samples never pass this check: even silence consists of
/// bytes whose bits are all zeros or all ones.
fn is_text(body: &[u8]) -> bool {
    let start = body.get(..SEARCHED_BYTES).unwrap_or(body);
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // The last character may be incomplete, because only the start of the body is examined.
        Err(error) if error.error_len().is_none() && start.len() < body.len() => start
            .get(..error.valid_up_to())
            .and_then(|valid| std::str::from_utf8(valid).ok())
            .unwrap_or_default(),
        Err(_) => return false,
    };
    !text.is_empty() && !text.chars().any(|letter| letter.is_control() && !letter.is_ascii_whitespace())
}

/// Way in which the duration of generated speech is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpeechMeasure {
    /// Number of bytes of raw audio.
    Raw,
    /// Duration of a file, measured in it.
    File,
    /// Estimate for AAC without a container, whose first frame ends after this number of bytes.
    Aac { first_frame_end: u64 },
}

/// Meter of the duration of generated speech.
pub(super) struct SpeechMeter {
    audio: AudioMeter,
    bytes: u64,
    measure: SpeechMeasure,
    /// Maximum seconds that may be charged.
    most: Decimal,
    /// Seconds estimated from the length of the text.
    usual: Decimal,
}

impl SpeechMeter {
    /// Creates the meter of the answer to a speech request.
    pub(super) fn new(ask: &InferenceRequest, task: &PassthroughTask) -> Self {
        let most = match task.max_work {
            WorkDone::Audio { seconds } => seconds,
            _ => Decimal::ZERO,
        };
        let characters = Decimal::from(ask.prompt_bytes as u64);
        let is_raw = task.content_type == Some(RAW_AUDIO_CONTENT_TYPE);
        Self {
            audio: AudioMeter::default(),
            bytes: 0,
            measure: if is_raw { SpeechMeasure::Raw } else { SpeechMeasure::File },
            most,
            usual: characters.checked_div(Decimal::from(CHARACTERS_PER_SECOND)).unwrap_or(most),
        }
    }

    /// Records the content type of the generated audio, which begins with `start`.
    pub(super) fn begin(&mut self, content_type: Option<&'static str>, start: &[u8]) {
        if content_type == Some("audio/aac") {
            self.measure = SpeechMeasure::Aac { first_frame_end: aac_frame_end(start) };
        }
    }

    /// Measures the next bytes of the generated audio.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.measure == SpeechMeasure::File {
            self.audio.push(bytes);
        }
    }

    /// Ends complete audio, resets the meter, and returns the seconds with three decimals, at most the reserved
    /// duration. The duration is measured, or estimated from the length of the text if the format does not allow a
    /// measurement; the number of bytes limits an estimate, and a duration that the file only states.
    ///
    /// # Errors
    /// Returns `Malformed` for a header without audio, and `Truncated` if the audio is shorter than the file states.
    pub(super) fn end_complete(&mut self) -> Result<Decimal, UpstreamError> {
        let malformed = || UpstreamError::new(UpstreamErrorKind::Malformed);
        let (bytes, audio) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.audio));
        let possible = possible_seconds(bytes);
        let seconds = match self.measure {
            SpeechMeasure::Raw => raw_seconds(bytes),
            SpeechMeasure::Aac { first_frame_end } if bytes < first_frame_end => return Err(malformed()),
            SpeechMeasure::Aac { .. } => self.usual.min(possible),
            SpeechMeasure::File => {
                let info = audio.end().ok().filter(|info| info.has_audio_data).ok_or_else(malformed)?;
                if info.missing_audio.is_some_and(|missing| self.is_truncated(missing)) {
                    return Err(UpstreamError::new(UpstreamErrorKind::Truncated));
                }
                match (info.seconds, info.basis) {
                    (Some(seconds), DurationBasis::Counted) => seconds,
                    (stated, _) => stated.unwrap_or(self.usual).min(possible),
                }
            }
        };
        Ok(seconds.min(self.most).round_dp(3))
    }

    /// Returns true if the missing audio shows that the file was cut. A stated length beyond the reserved duration is
    /// taken for the placeholder of an encoder that did not know the length.
    fn is_truncated(&self, missing: MissingAudio) -> bool {
        missing.bytes > MAX_OVERSTATED_BYTES && missing.stated_seconds <= self.most
    }

    /// Returns the seconds of audio of which only a part was received, with three decimals, and resets the meter: as
    /// for complete audio, but the number of bytes limits every duration, because a header may state the duration of
    /// the complete audio.
    pub(super) fn take_partial_seconds(&mut self) -> Decimal {
        let (bytes, audio) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.audio));
        let measured = match self.measure {
            SpeechMeasure::Raw => Some(raw_seconds(bytes)),
            SpeechMeasure::Aac { .. } => None,
            SpeechMeasure::File => audio.end().ok().and_then(|info| info.seconds),
        };
        measured.unwrap_or(self.usual).min(self.most).min(possible_seconds(bytes)).round_dp(3)
    }
}

/// Returns the seconds of this number of bytes of raw audio.
fn raw_seconds(bytes: u64) -> Decimal {
    Decimal::from(bytes).checked_div(Decimal::from(PCM_BYTES_PER_SECOND)).unwrap_or_default()
}

/// Returns the seconds of this number of bytes of the most compressed speech.
fn possible_seconds(bytes: u64) -> Decimal {
    Decimal::from(bytes).checked_div(Decimal::from(MIN_BYTES_PER_SECOND)).unwrap_or_default()
}
