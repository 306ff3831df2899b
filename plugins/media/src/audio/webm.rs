//! WebM and Matroska: the end of the last audio block, compared with the packets if those give their duration. Browsers
//! that record omit the duration and the sizes of segment and clusters.

use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};
use super::opus;

/// Element ids, with their length markers.
const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_a966;
const SCALE: u32 = 0x2a_d7b1;
const DURATION: u32 = 0x4489;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const CODEC: u32 = 0x86;
const CLUSTER: u32 = 0x1f43_b675;
const CLUSTER_TIME: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
const GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const BLOCK_DURATION: u32 = 0x9b;
/// Type of an audio track.
const AUDIO_TRACK: u64 = 2;
/// Default nanoseconds of a tick.
const USUAL_SCALE: u64 = 1_000_000;
/// Limit on the number of tracks.
const MOST_TRACKS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct WebmParser {
    scale: Option<u64>,
    /// Duration in the header, in ticks.
    duration: f64,
    tracks: Vec<WebmTrack>,
    /// Bytes in audio blocks.
    bytes: u64,
    /// Ticks of their packets, 48,000 per second.
    packets: u64,
    cluster: u64,
    /// Start of the last two audio blocks, end of the last.
    last: Option<u64>,
    before: Option<u64>,
    end: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct WebmTrack {
    number: u64,
    is_audio: bool,
    codec: WebmCodec,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WebmCodec {
    /// Packets that give their duration.
    Opus,
    /// Lossy compression.
    #[default]
    Lossy,
    /// PCM, FLAC and the like.
    Plain,
}

impl WebmCodec {
    fn of(name: &[u8]) -> Self {
        let plain: [&[u8]; 6] = [b"A_PCM", b"A_FLAC", b"A_ALAC", b"A_WAVPACK4", b"A_TTA1", b"A_MS"];
        if name.starts_with(b"A_OPUS") {
            Self::Opus
        } else if plain.iter().any(|plain| name.starts_with(plain)) {
            Self::Plain
        } else {
            Self::Lossy
        }
    }
}

impl ContainerParser for WebmParser {
    fn minimum(&self) -> MinimumDuration {
        let plain = self.tracks.iter().any(|track| track.is_audio && track.codec == WebmCodec::Plain);
        let rate = if plain { MinimumDuration::PLAIN } else { MinimumDuration::LOSSY };
        MinimumDuration { bytes: Some(self.bytes), rate, millis: 0 }
    }

    fn step(&mut self, ahead: &[u8]) -> ParserStep {
        let Some(first) = ahead.first() else { return ParserStep::Need(1) };
        let id_length = first.leading_zeros() as usize + 1;
        if id_length > 4 {
            return ParserStep::Stop;
        }
        let Some(marker) = ahead.get(id_length) else { return ParserStep::Need(id_length + 1) };
        let size_length = marker.leading_zeros() as usize + 1;
        let head = id_length + size_length;
        if size_length > 8 {
            return ParserStep::Stop;
        }
        if ahead.len() < head {
            return ParserStep::Need(head);
        }
        let id =
            ahead.get(..id_length).map_or(0, |id| id.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte)));
        let size = ahead.get(id_length..head).and_then(vint);
        if matches!(id, SEGMENT | INFO | TRACKS | TRACK | CLUSTER | GROUP) {
            if id == TRACK && self.tracks.len() < MOST_TRACKS {
                self.tracks.push(WebmTrack::default());
            }
            return ParserStep::Skip(head as u64);
        }
        // Only segment and cluster may lack a size.
        let Some(size) = size else { return ParserStep::Stop };
        let reads = match id {
            SIMPLE_BLOCK | BLOCK => size.min(14),
            CODEC => size.min(16),
            SCALE | DURATION | TRACK_NUMBER | TRACK_TYPE | CLUSTER_TIME | BLOCK_DURATION => size.min(9),
            _ => 0,
        };
        let reads = usize::try_from(reads).unwrap_or(0);
        let Some(content) = ahead.get(head..head + reads) else { return ParserStep::Need(head + reads) };
        self.read(id, content, size);
        ParserStep::Skip(size.saturating_add(head as u64))
    }

    fn end(&mut self, _: &[u8], _: u64) -> AudioDuration {
        if !self.tracks.iter().any(|track| track.is_audio) {
            return AudioDuration::NoAudio;
        }
        let scale = self.scale.unwrap_or(USUAL_SCALE);
        // A block without a duration gets that of the previous one.
        let usual = self.last.zip(self.before).map_or(0, |(last, before)| last.saturating_sub(before));
        let blocks =
            self.end.max(self.last.unwrap_or(0).saturating_add(usual.min(1_000_000_000 / scale.max(1))));
        if self.last.is_some() && (blocks > 0 || self.packets > 0) {
            let told = u128::from(blocks) * u128::from(scale) * u128::from(opus::RATE) / 1_000_000_000;
            let told = u64::try_from(told).unwrap_or(u64::MAX);
            return match opus::reconcile_duration(told, self.packets) {
                counted if counted > told => AudioDuration::from_ticks(counted, opus::RATE),
                _ => AudioDuration::from_ticks(blocks.saturating_mul(scale), 1_000_000_000),
            };
        }
        let told = self.duration * scale as f64;
        let told = if (1.0..1e18).contains(&told) { told as u64 } else { 0 };
        AudioDuration::from_ticks(told, 1_000_000_000)
    }
}

impl WebmParser {
    fn read(&mut self, id: u32, content: &[u8], size: u64) {
        let number = || content.iter().take(8).fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        match id {
            SCALE => self.scale = Some(number()).filter(|scale| *scale > 0),
            DURATION => self.duration = float(content).unwrap_or(0.0),
            TRACK_NUMBER => self.track(|track| track.number = number()),
            TRACK_TYPE => self.track(|track| track.is_audio = number() == AUDIO_TRACK),
            CODEC => self.track(|track| track.codec = WebmCodec::of(content)),
            CLUSTER_TIME => self.cluster = number(),
            SIMPLE_BLOCK | BLOCK => drop(self.block(content, size)),
            BLOCK_DURATION => {
                let end = self.last.unwrap_or(0).saturating_add(number());
                self.end = self.end.max(end);
            }
            _ => {}
        }
    }

    fn track(&mut self, set: impl FnOnce(&mut WebmTrack)) {
        if let Some(track) = self.tracks.last_mut() {
            set(track);
        }
    }

    /// Reads a block's track and time, relative to its cluster.
    fn block(&mut self, content: &[u8], size: u64) -> Option<()> {
        let length = content.first()?.leading_zeros() as usize + 1;
        let number = vint(content.get(..length)?)?;
        let offset = i16::from_be_bytes(*content.get(length..)?.first_chunk()?);
        let track = self.tracks.iter().find(|track| track.number == number && track.is_audio);
        if let Some(track) = track {
            self.bytes = self.bytes.saturating_add(size);
            // For a block with several packets only the times are known.
            let laced = content.get(length + 2)? & 6 != 0;
            if track.codec == WebmCodec::Opus && !laced {
                let packet = content.get(length + 3..).unwrap_or_default();
                self.packets = self.packets.saturating_add(opus::packet_ticks(packet));
            }
            let at = self.cluster.saturating_add_signed(i64::from(offset));
            if self.last.is_none_or(|last| at > last) {
                self.before = self.last;
                self.last = Some(at);
            }
        }
        Some(())
    }
}

/// Reads a number whose length is in its first byte. `None`: unknown, or incomplete.
fn vint(bytes: &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first()?;
    let length = first.leading_zeros() as usize + 1;
    if length > 8 || rest.len() + 1 != length {
        return None;
    }
    let first = u64::from(*first) & (0xff_u64 >> length);
    let number = rest.iter().fold(first, |sum, byte| sum << 8 | u64::from(*byte));
    let unknown = (1u64 << (7 * length)) - 1;
    (number != unknown).then_some(number)
}

fn float(content: &[u8]) -> Option<f64> {
    match content.len() {
        4 => Some(f64::from(f32::from_be_bytes(content.try_into().ok()?))),
        8 => Some(f64::from_be_bytes(content.try_into().ok()?)),
        _ => None,
    }
}
