//! Fields of a transcription form, each validated separately.

use super::language;
use penstock_core::{ApiError, AudioInput, TranscriptFormat, TranscriptionTask};
use penstock_http_wire::form::upload::part_error;

/// Limit on the bytes of a model name.
const MOST_MODEL: usize = 256;
/// Limit on the bytes of a prompt.
pub(super) const MAX_PROMPT_BYTES: usize = 64 << 10;

/// Fields of a transcription form, without the audio. An empty value counts as absent, because forms have no null.
#[derive(Debug, Default)]
pub(super) struct TranscriptionFields {
    model: Option<Box<str>>,
    language: Option<Box<str>>,
    prompt: Option<Box<str>>,
    temperature: Option<Box<str>>,
    transcript_format: Option<TranscriptFormat>,
    segments: bool,
    words: bool,
    /// Names of the received fields without keys that must not be repeated.
    seen: Vec<String>,
}

/// Names of fields that may be repeated, without brackets.
const LISTS: [&str; 2] = ["timestamp_granularities", "include"];
/// Names of fields with one value.
const SINGLE_VALUES: [&str; 7] =
    ["model", "prompt", "language", "temperature", "response_format", "stream", "task"];

/// Splits the name of a field before the keys that client libraries add for nested values: `a[]`, `a[0]`, `a[b][]` and
/// `a.b` are all parts of `a`. Errors name only the part before the keys, because the keys are text of the client.
fn split_keys(name: &str) -> (&str, &str) {
    name.split_at(name.find(['[', '.']).unwrap_or(name.len()))
}

/// Returns true for keys that mark an item of a list, and for a list that is sent without keys.
fn marks_item(keys: &str) -> bool {
    let index = keys.strip_prefix('[').and_then(|keys| keys.strip_suffix(']'));
    keys.is_empty() || index.is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
}

impl TranscriptionFields {
    /// Reads a field of the form.
    ///
    /// # Errors
    /// Returns an error that names the field. Values of fields are never repeated in an error.
    pub(super) fn read_field(&mut self, name: &str, value: &[u8]) -> Result<(), ApiError> {
        let (name, keys) = split_keys(name);
        let text = std::str::from_utf8(value).map_err(|_| part_error(name, "expected text in UTF-8"))?;
        self.check_structure(name, keys)?;
        let text = text.trim_matches(['\r', '\n']);
        if text.is_empty() {
            return Ok(());
        }
        match name {
            "model" if text.len() > MOST_MODEL => {
                return Err(part_error(name, format!("expected a string of at most {MOST_MODEL} bytes")));
            }
            "model" => self.model = Some(text.into()),
            "prompt" => self.prompt = Some(text.into()),
            "language" => {
                self.language = Some(
                    language::parse_iso_639_1_code(text)
                        .ok_or_else(|| {
                            part_error(name, "expected an ISO 639-1 code of two letters, such as \"en\"")
                        })?
                        .into(),
                )
            }
            "temperature" => self.temperature = Some(temperature(name, text)?),
            "response_format" => self.transcript_format = Some(transcript_format(name, text)?),
            "timestamp_granularities" => self.granularity(text)?,
            "stream" => stream(name, text)?,
            "include" => {
                return Err(unsupported_field("include", "log probabilities are not available"));
            }
            // Fields that select a provider are refused. If the gateway ignored them, it could select a provider that
            // the client excludes.
            "filters" | "mode" | "custom_weights" => {
                return Err(unsupported_field(name, "the choice of the provider cannot be constrained here"));
            }
            "task" if text != "transcribe" => {
                return Err(unsupported_field(name, "audio is transcribed, not translated"));
            }
            // Fields of other services are ignored if they do not change the result.
            _ => {
                if let Some(sentence) = foreign_field_error(name).filter(|_| !is_off(text)) {
                    return Err(unsupported_field(name, sentence));
                }
            }
        }
        Ok(())
    }

    /// Checks that a field with one value is sent once and without keys, and a list as items of one level.
    fn check_structure(&mut self, name: &str, keys: &str) -> Result<(), ApiError> {
        let is_list = LISTS.contains(&name);
        if is_list && !marks_item(keys) {
            return Err(part_error(name, "expected a list of strings"));
        }
        if SINGLE_VALUES.contains(&name) && !keys.is_empty() {
            return Err(part_error(name, "expected one value, got a list or an object"));
        }
        if is_list || !keys.is_empty() {
            return Ok(());
        }
        if self.seen.iter().any(|seen| seen == name) {
            return Err(part_error(name, "expected it once, got it more than once"));
        }
        self.seen.push(name.to_owned());
        Ok(())
    }

    fn granularity(&mut self, text: &str) -> Result<(), ApiError> {
        match text {
            "word" => self.words = true,
            "segment" => self.segments = true,
            _ => return Err(part_error("timestamp_granularities", "expected \"word\" or \"segment\"")),
        }
        Ok(())
    }

    /// Returns the model's name and the task.
    ///
    /// # Errors
    /// Returns an error that names a missing or conflicting field.
    pub(super) fn finish(self, sound: AudioInput) -> Result<(Box<str>, TranscriptionTask), ApiError> {
        let model = self
            .model
            .ok_or_else(|| part_error("model", "expected the name of a model, but it is missing"))?;
        let transcript_format = self.transcript_format.unwrap_or_default();
        if (self.words || self.segments) && transcript_format != TranscriptFormat::Verbose {
            return Err(part_error(
                "timestamp_granularities",
                "expected response_format \"verbose_json\" with it",
            ));
        }
        let Self { language, prompt, temperature, words, .. } = self;
        Ok((
            model,
            TranscriptionTask {
                language,
                prompt,
                temperature,
                format: transcript_format,
                word_timestamps: words,
                audio: sound,
            },
        ))
    }
}

fn transcript_format(name: &str, text: &str) -> Result<TranscriptFormat, ApiError> {
    Ok(match text {
        "json" => TranscriptFormat::Json,
        "verbose_json" => TranscriptFormat::Verbose,
        "text" => TranscriptFormat::Text,
        "srt" => TranscriptFormat::Srt,
        "vtt" => TranscriptFormat::Vtt,
        "diarized_json" => return Err(unsupported_field(name, "speakers are not distinguished")),
        _ => {
            return Err(part_error(
                name,
                "expected \"json\", \"verbose_json\", \"text\", \"srt\" or \"vtt\"",
            ));
        }
    })
}

fn temperature(name: &str, text: &str) -> Result<Box<str>, ApiError> {
    let plain = text.len() <= 16 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = text.parse::<f64>().ok().filter(|number| plain && (0.0..=1.0).contains(number));
    number.map(|_| text.into()).ok_or_else(|| part_error(name, "expected a number from 0 to 1"))
}

fn stream(name: &str, text: &str) -> Result<(), ApiError> {
    match text.to_ascii_lowercase().as_str() {
        "false" | "0" => Ok(()),
        "true" | "1" => Err(unsupported_field(name, "transcripts are not streamed")),
        _ => Err(part_error(name, "expected true or false")),
    }
}

/// Returns the error text for a field of other services that would change the transcript, but that no provider
/// receives; `None` for other fields.
fn foreign_field_error(name: &str) -> Option<&'static str> {
    Some(match name {
        "provider" => "the choice of the provider cannot be constrained here",
        "translate" | "to_language" | "target_language" => "audio is transcribed, not translated",
        "diarize"
        | "diarization"
        | "diarization_config"
        | "enable_diarization"
        | "known_speaker_names"
        | "known_speaker_references"
        | "max_speakers"
        | "min_speakers"
        | "num_speakers"
        | "speaker_labels"
        | "speakers_expected" => "speakers are not distinguished",
        "custom_vocabulary" | "hotwords" | "keyterms" | "keywords" | "word_boost" => {
            "write the words that are expected into `prompt`"
        }
        "word_timestamps" => "send `timestamp_granularities[]` with the value \"word\"",
        "clip_timestamps" | "audio_end_at" | "audio_start_from" => {
            "the complete audio is transcribed; cut it before the request"
        }
        "filter_profanity" | "profanity_filter" | "redact" | "redact_pii" => "the transcript is not censored",
        "vad_filter" => "silence is not removed from the audio",
        _ => return None,
    })
}

/// Returns true for a field value that means "off".
fn is_off(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "false" | "0" | "no" | "none" | "off" | "[]" | "{}")
}

/// Returns the error for an unsupported field.
fn unsupported_field(name: &str, sentence: &str) -> ApiError {
    ApiError::unsupported(name, format!("{name}: {sentence}."))
}
