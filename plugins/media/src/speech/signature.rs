//! Format of generated audio by its first bytes. Providers label audio wrongly, or send a format that was not
//! requested, so labels are not trusted.

use crate::audio::{adts_frame_length, id3_tag_length, is_mpeg_audio, mpeg_frame_length};

/// Number of bytes at the start of a file that contain the whole signature of any format.
const SIGNATURE_BYTES: usize = 16;
/// Maximum length of a tag that is read to detect the audio after it. After a longer tag MPEG audio is assumed,
/// because only MPEG audio has tags with pictures.
const MAX_TAG_BYTES: u64 = 64 << 10;
/// Length of the head of a page of Ogg, without its table of segments.
const OGG_HEAD_BYTES: usize = 27;
/// Lengths in bytes of the shortest header of an ADIF file, and of the header of an ADTS frame.
const ADIF_HEADER_BYTES: u64 = 17;
const ADTS_HEADER_BYTES: u64 = 7;
/// Content type of audio without a header.
pub(super) const RAW_AUDIO_CONTENT_TYPE: &str = "audio/pcm";

/// Format of generated audio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpeechFormat {
    Wav,
    Mpeg,
    /// AAC in frames, or in a file of its own (`ADIF`).
    Aac,
    Mp4,
    Flac,
    /// Ogg with Opus or Vorbis.
    Ogg,
    OggFlac,
    Webm,
}

/// Outcome of the check of the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstBytesOutcome {
    /// Audio of this content type, which may be sent to the client.
    Accepted(&'static str),
    /// Another format than the requested one, or no audio.
    Refused,
    /// More bytes are needed to recognise the audio format.
    Undecided,
}

/// Checks the first bytes of an answer against the requested content type; `None` counts as MPEG audio. WAV is accepted
/// for any requested format that has a header, because some engines support only WAV. If `all` is true, no more bytes
/// follow, and the outcome is never `Undecided`.
pub(super) fn check_first_bytes(
    start: &[u8],
    requested: Option<&'static str>,
    all: bool,
) -> FirstBytesOutcome {
    if start.len() < SIGNATURE_BYTES && !all {
        return FirstBytesOutcome::Undecided;
    }
    if requested == Some(RAW_AUDIO_CONTENT_TYPE) {
        return check_raw_start(start, all);
    }
    let Some(format) = detect_format(start, all) else { return FirstBytesOutcome::Undecided };
    let accepted = match (format, requested) {
        (Some(SpeechFormat::Wav), _) => Some("audio/wav"),
        (Some(SpeechFormat::Mpeg), None | Some("audio/mpeg")) => Some("audio/mpeg"),
        (Some(SpeechFormat::Ogg), Some("audio/ogg")) => Some("audio/ogg"),
        (Some(SpeechFormat::Webm), Some("audio/ogg")) => Some("audio/webm"),
        (Some(SpeechFormat::Flac), Some("audio/flac")) => Some("audio/flac"),
        (Some(SpeechFormat::OggFlac), Some("audio/flac")) => Some("audio/ogg"),
        (Some(SpeechFormat::Aac), Some("audio/aac")) => Some("audio/aac"),
        (Some(SpeechFormat::Mp4), Some("audio/aac")) => Some("audio/mp4"),
        _ => None,
    };
    accepted.map_or(FirstBytesOutcome::Refused, FirstBytesOutcome::Accepted)
}

/// Checks the start of raw audio. Any bytes are accepted, except those of an audio file, which a client would play as
/// noise. Two samples may look like the header of a frame, so only two frames in a row count as a file.
fn check_raw_start(start: &[u8], all: bool) -> FirstBytesOutcome {
    let frames = [mpeg_frame_length, adts_frame_length];
    for read in frames {
        match read(start).map(|length| start.get(length..).filter(|next| next.len() >= SIGNATURE_BYTES)) {
            Some(Some(next)) if read(next).is_some() => return FirstBytesOutcome::Refused,
            Some(None) if !all => return FirstBytesOutcome::Undecided,
            _ => {}
        }
    }
    let has_signature = start.starts_with(b"ID3") || container_format(start).is_some();
    if start.is_empty() || has_signature {
        FirstBytesOutcome::Refused
    } else {
        FirstBytesOutcome::Accepted(RAW_AUDIO_CONTENT_TYPE)
    }
}

/// Returns the audio format of the first bytes: `None` if more bytes are needed, `Some(None)` if the format is unknown.
fn detect_format(start: &[u8], all: bool) -> Option<Option<SpeechFormat>> {
    let Some(tag) = id3_tag_length(start) else {
        let format = container_format(start);
        return match format {
            Some(SpeechFormat::Ogg) => ogg_format(start, all).map(Some),
            None => Some(frame_format(start)),
            format => Some(format),
        };
    };
    let behind = usize::try_from(tag).ok().filter(|_| tag <= MAX_TAG_BYTES);
    match behind.map(|length| start.get(length..).filter(|audio| audio.len() >= SIGNATURE_BYTES)) {
        None => Some(Some(SpeechFormat::Mpeg)),
        Some(Some(audio)) if audio.starts_with(b"fLaC") => Some(Some(SpeechFormat::Flac)),
        // Without a known format after the tag, the audio is MPEG: zeros may precede its first frame, which decoders
        // search.
        Some(Some(audio)) => Some(frame_format(audio).or(Some(SpeechFormat::Mpeg))),
        Some(None) if all => Some(Some(SpeechFormat::Mpeg)),
        Some(None) => None,
    }
}

/// Returns the format of a file by its signature; `None` if the signature is unknown.
fn container_format(start: &[u8]) -> Option<SpeechFormat> {
    let at = |from: usize, magic: &[u8]| start.get(from..).is_some_and(|rest| rest.starts_with(magic));
    if (at(0, b"RIFF") || at(0, b"RF64") || at(0, b"BW64")) && at(8, b"WAVE") {
        Some(SpeechFormat::Wav)
    } else if at(0, b"OggS") {
        Some(SpeechFormat::Ogg)
    } else if at(0, b"fLaC") {
        Some(SpeechFormat::Flac)
    } else if at(0, &[0x1a, 0x45, 0xdf, 0xa3]) {
        Some(SpeechFormat::Webm)
    } else if at(4, b"ftyp") || at(4, b"styp") || at(4, b"moov") {
        Some(SpeechFormat::Mp4)
    } else {
        at(0, b"ADIF").then_some(SpeechFormat::Aac)
    }
}

/// Returns the format of a sequence of frames; `None` if the bytes do not begin with a frame.
fn frame_format(start: &[u8]) -> Option<SpeechFormat> {
    match () {
        () if matches!(start, [0xff, second, ..] if second & 0xf6 == 0xf0) => Some(SpeechFormat::Aac),
        () if is_mpeg_audio(start) => Some(SpeechFormat::Mpeg),
        () => None,
    }
}

/// Returns the number of bytes up to the end of the first frame of AAC without a container, including a tag before it;
/// `start` has the bytes that the format was detected in. A frame with an invalid length ends after its header.
pub(super) fn aac_frame_end(start: &[u8]) -> u64 {
    let tag = id3_tag_length(start).unwrap_or_default();
    let audio = usize::try_from(tag).ok().and_then(|tag| start.get(tag..)).unwrap_or_default();
    let header = if audio.starts_with(b"ADIF") { ADIF_HEADER_BYTES } else { ADTS_HEADER_BYTES };
    let frame = adts_frame_length(audio).map_or(header + 1, |length| length as u64);
    tag.saturating_add(frame)
}

/// Returns the format of an Ogg file by its first packet; `None` if more bytes are needed.
fn ogg_format(start: &[u8], all: bool) -> Option<SpeechFormat> {
    let segments = start.get(OGG_HEAD_BYTES - 1).map_or(0, |count| usize::from(*count));
    match start.get(OGG_HEAD_BYTES + segments..).filter(|packet| packet.len() >= 5) {
        Some(packet) if packet.starts_with(b"\x7fFLAC") => Some(SpeechFormat::OggFlac),
        Some(_) => Some(SpeechFormat::Ogg),
        None => all.then_some(SpeechFormat::Ogg),
    }
}
