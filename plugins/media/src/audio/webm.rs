//! WebM and Matroska: the duration is the time from the first audio block to the end of the last one, or the duration
//! of the packets if that is longer. Recordings of browsers lack the duration and the sizes of segment and clusters.
//! Clusters are searched inside other elements too, and after lost sync, because decoders continue with the next
//! cluster after an error.

use super::container_parser::{AudioDuration, ContainerParser, ExcludedBytes, MinimumDuration, ParserStep};
use super::webm_track::{self, TrackKind, WebmCodec, WebmTrack};
use penstock_core::DurationBasis;

/// EBML ids of the parsed elements, with the length marker in their first byte.
const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_a966;
const SCALE: u32 = 0x2a_d7b1;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const CODEC: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const AUDIO: u32 = 0xe1;
const SAMPLE_RATE: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const BIT_DEPTH: u32 = 0x6264;
const CLUSTER: u32 = 0x1f43_b675;
const CLUSTER_TIME: u32 = 0xe7;
const SIMPLE_BLOCK: u32 = 0xa3;
const GROUP: u32 = 0xa0;
const BLOCK: u32 = 0xa1;
const BLOCK_DURATION: u32 = 0x9b;
/// Elements that contain no audio: EBML header, padding, checksum, indexes, chapters, tags, attachments.
const WITHOUT_AUDIO: [u32; 8] =
    [0x1a45_dfa3, 0xec, 0xbf, 0x114d_9b74, 0x1c53_bb6b, 0x1043_a770, 0x1254_c367, 0x1941_a469];
/// First bytes of the elements with which a cluster may begin: time, checksum, position, size, silent tracks, blocks,
/// padding.
const CLUSTER_STARTS: [u8; 8] = [0xe7, 0xbf, 0xa7, 0xab, 0x58, 0xa3, 0xa0, 0xec];
/// Number of bytes that identify a cluster.
const CLUSTER_HEAD: usize = 13;
/// Value of the track type for audio.
const AUDIO_TRACK: u64 = 2;
/// Default duration of a tick in nanoseconds.
const USUAL_SCALE: u64 = 1_000_000;
/// Maximum number of tracks. If there are more, the duration is unknown.
const MOST_TRACKS: usize = 64;
/// Maximum number of bytes that are read of a block or of the private data of a codec.
const MOST_READ: u64 = 128 << 10;
/// Number of bytes that are read of a block that has a single packet.
const BLOCK_START: u64 = 32;

/// Parser of a WebM or Matroska file.
#[derive(Debug, Default)]
pub(super) struct WebmParser {
    scale: Option<u64>,
    tracks: Vec<WebmTrack>,
    too_many: bool,
    cluster: u64,
    /// Index of the track of the last audio block.
    block_track: Option<usize>,
    state: WebmState,
    excluded: ExcludedBytes,
}

/// Position of the parser in the structure of the file.
#[derive(Clone, Copy, Debug, Default)]
enum WebmState {
    /// Position at the start of an element, the unit of which WebM files consist.
    #[default]
    Element,
    /// Position inside an element of which this number of bytes remains.
    Body(u64),
    /// Unknown position: the parser searches the next cluster.
    Lost,
}

/// Head of an element: its id and its size.
struct Element {
    id: u32,
    /// Length of the head (id and size) in bytes.
    head: usize,
    /// Bytes of the content; `None` if unknown.
    size: Option<u64>,
}

impl Element {
    /// Reads the head of an element. Returns `Ok(None)` if there are too few bytes.
    fn read(input: &[u8]) -> Result<Option<Self>, Lost> {
        let Some(first) = input.first() else { return Ok(None) };
        let id_length = first.leading_zeros() as usize + 1;
        if id_length > 4 {
            return Err(Lost);
        }
        let Some(marker) = input.get(id_length) else { return Ok(None) };
        let head = id_length + marker.leading_zeros() as usize + 1;
        if head - id_length > 8 {
            return Err(Lost);
        }
        let (Some(id), Some(size)) = (input.get(..id_length), input.get(id_length..head)) else {
            return Ok(None);
        };
        let id = id.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        Ok(Some(Self { id, head, size: vint(size) }))
    }
}

/// Error of bytes that are not an element.
struct Lost;

impl ContainerParser for WebmParser {
    fn duration_basis(&self) -> DurationBasis {
        let mut audio = self.tracks.iter().filter(|track| track.kind == TrackKind::Audio);
        // The duration is counted only if it is known for all audio tracks, because a decoder may choose any of them.
        if audio.any(|track| track.counted_duration() == AudioDuration::Unknown) {
            DurationBasis::Stated
        } else {
            DurationBasis::Counted
        }
    }

    fn minimum_duration(&self) -> MinimumDuration {
        let mut audio = self.tracks.iter().filter(|track| track.kind == TrackKind::Audio);
        let plain = audio.any(|track| track.codec.is_lossless());
        let rate = if plain {
            MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND
        } else {
            MinimumDuration::MAX_LOSSY_BYTES_PER_SECOND
        };
        MinimumDuration { excluded: self.excluded.sum(), max_byte_rate: rate }
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        match self.state {
            WebmState::Element => self.element(input),
            WebmState::Body(left) => self.search(input, left, false),
            WebmState::Lost => self.search(input, u64::MAX, true),
        }
    }

    fn end(&mut self, input: &[u8], missing: u64) -> AudioDuration {
        let left = match self.state {
            WebmState::Body(left) => left.saturating_sub(input.len() as u64),
            WebmState::Element | WebmState::Lost => 0,
        };
        self.excluded.end_file(missing.max(left));
        if !self.tracks.iter().any(|track| track.kind == TrackKind::Audio) {
            return AudioDuration::NoAudio;
        }
        if self.too_many {
            return AudioDuration::Unknown;
        }
        let scale = self.scale.unwrap_or(USUAL_SCALE);
        let audio = self.tracks.iter().map(|track| track.duration(scale));
        audio.fold(AudioDuration::Unknown, AudioDuration::longer)
    }

    fn has_audio_data(&self) -> bool {
        self.too_many || self.tracks.iter().any(WebmTrack::has_block)
    }

    fn counted_duration(&self) -> Option<AudioDuration> {
        let tracks = self.tracks.iter().filter(|_| !self.too_many);
        let counted = tracks.map(WebmTrack::counted_duration);
        Some(counted.fold(AudioDuration::Unknown, AudioDuration::longer))
    }
}

impl WebmParser {
    /// Skips the content of an element, or bytes that are no element, up to the next cluster.
    fn search(&mut self, input: &[u8], left: u64, lost: bool) -> ParserStep {
        let within = input.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(input);
        let passed = match memchr::memchr(0x1f, within) {
            Some(0) if input.len() < CLUSTER_HEAD => return ParserStep::Need(CLUSTER_HEAD),
            Some(0) if is_cluster(input, lost) => {
                self.excluded.end_file(1);
                return self.element(input);
            }
            Some(at) => at.max(1),
            None => within.len(),
        } as u64;
        if !lost {
            self.state = if passed == left { WebmState::Element } else { WebmState::Body(left - passed) };
        }
        ParserStep::Skip(passed)
    }

    fn element(&mut self, input: &[u8]) -> ParserStep {
        self.excluded.commit_pending_bytes();
        self.state = WebmState::Element;
        let element = match Element::read(input) {
            Ok(Some(element)) => element,
            Ok(None) => return ParserStep::Need(input.len() + 1),
            Err(Lost) => return self.lose(),
        };
        let Element { id, head, size } = element;
        if matches!(id, SEGMENT | INFO | TRACKS | TRACK | AUDIO | CLUSTER | GROUP) {
            if id == TRACK {
                self.too_many |= self.tracks.len() >= MOST_TRACKS;
                if !self.too_many {
                    self.tracks.push(WebmTrack::default());
                }
            }
            return ParserStep::Skip(head as u64);
        }
        // Only a segment or a cluster may have an unknown size.
        let Some(size) = size else { return self.lose() };
        let reads = match id {
            SIMPLE_BLOCK | BLOCK => size.min(BLOCK_START),
            CODEC => size.min(16),
            CODEC_PRIVATE if size <= MOST_READ => size,
            SCALE | TRACK_NUMBER | TRACK_TYPE | SAMPLE_RATE | CHANNELS | BIT_DEPTH | CLUSTER_TIME
            | BLOCK_DURATION => size.min(9),
            _ => 0,
        };
        let reads = head + usize::try_from(reads).unwrap_or(0);
        let Some(content) = input.get(head..reads) else { return ParserStep::Need(reads) };
        let mut has_no_audio = WITHOUT_AUDIO.contains(&id);
        if matches!(id, SIMPLE_BLOCK | BLOCK) {
            let whole = head.saturating_add(usize::try_from(size).unwrap_or(usize::MAX));
            let laced = self.is_laced(content) && size <= MOST_READ;
            let content = if laced { input.get(head..whole) } else { Some(content) };
            let Some(content) = content else { return ParserStep::Need(whole) };
            has_no_audio = self.block(content, size) == Some(TrackKind::NoAudio);
        } else {
            self.read(id, content);
        }
        if has_no_audio {
            self.excluded.begin_element(size.saturating_add(head as u64));
        }
        // An apparent element may not be real: a cluster may begin inside its head, so the head is searched too.
        self.state = WebmState::Body(size.saturating_add(head as u64 - 1));
        ParserStep::Skip(1)
    }

    fn lose(&mut self) -> ParserStep {
        self.state = WebmState::Lost;
        ParserStep::Skip(1)
    }

    fn read(&mut self, id: u32, content: &[u8]) {
        let number = content.iter().take(8).fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        match id {
            SCALE => self.scale = Some(number).filter(|scale| *scale > 0),
            CLUSTER_TIME => self.cluster = number,
            BLOCK_DURATION => {
                let track = self.block_track.and_then(|index| self.tracks.get_mut(index));
                if let Some(track) = track {
                    track.add_block_duration(number);
                }
            }
            _ => {
                let Some(track) = self.tracks.last_mut().filter(|_| !self.too_many) else { return };
                match id {
                    TRACK_NUMBER => track.number = number,
                    TRACK_TYPE if number == AUDIO_TRACK => track.kind = TrackKind::Audio,
                    TRACK_TYPE => track.kind = TrackKind::NoAudio,
                    CODEC => track.codec = WebmCodec::from_name(content),
                    CODEC_PRIVATE => track.set_codec_private(content),
                    SAMPLE_RATE => track.sample_rate = float(content).map_or(0, |rate| rate as u64),
                    CHANNELS => track.channels = number,
                    BIT_DEPTH => track.bits = number,
                    _ => {}
                }
            }
        }
    }

    /// Returns the index of the track of a block, and the rest of the block after the track number; `None` if the number
    /// is incomplete or no track has it.
    fn track_of<'c>(&self, content: &'c [u8]) -> Option<(usize, &'c [u8])> {
        let length = content.first()?.leading_zeros() as usize + 1;
        let (number, rest) = (vint(content.get(..length)?)?, content.get(length..)?);
        let of_kind = |audio: bool| {
            let matches =
                |track: &WebmTrack| track.number == number && (track.kind == TrackKind::Audio) == audio;
            self.tracks.iter().position(matches)
        };
        let index = of_kind(true).or_else(|| of_kind(false))?;
        Some((index, rest))
    }

    /// Returns true for a block with several packets whose content is needed to count them.
    fn is_laced(&self, content: &[u8]) -> bool {
        self.track_of(content).is_some_and(|(index, rest)| {
            let track = self.tracks.get(index).filter(|track| track.kind == TrackKind::Audio);
            track.is_some_and(|track| track.codec.needs_packet_content())
                && rest.get(2).is_some_and(|flags| flags & 6 != 0)
        })
    }

    /// Reads the time and the packets of a block of `size` bytes; the time is relative to the cluster. Returns the kind
    /// of the track; `None` if the track is unknown or the block is incomplete.
    fn block(&mut self, content: &[u8], size: u64) -> Option<TrackKind> {
        let cluster = self.cluster;
        let (index, rest) = self.track_of(content)?;
        let track = self.tracks.get_mut(index)?;
        let kind = track.kind;
        if kind != TrackKind::Audio {
            return Some(kind);
        }
        let at = cluster.saturating_add_signed(webm_track::block_time(rest)?);
        track.add_block_samples(rest.get(2..)?, size.saturating_sub(2 + (content.len() - rest.len()) as u64));
        track.add_block_time(at);
        self.block_track = Some(index);
        Some(kind)
    }
}

/// Returns true for the head of a cluster: its id and a valid size. Unless sync is `lost`, the first element of the
/// cluster must be valid too.
fn is_cluster(input: &[u8], lost: bool) -> bool {
    let Ok(Some(Element { id: CLUSTER, head, .. })) = Element::read(input) else { return false };
    lost || input.get(head).is_some_and(|first| CLUSTER_STARTS.contains(first))
}

/// Reads an integer whose length is encoded in its first byte. Returns `None` if the value means "unknown" or is
/// incomplete.
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
