//! MP4, M4A, QuickTime: the sum of the sample durations of the audio track and its fragments, but at least the minimum
//! for its number of samples and bytes. Boxes may come in any order, even the index after the media. The duration in
//! the track's header is used only without a sample table.

use super::MAX_BUFFERED_BYTES;
use super::bits::{be32, be64};
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};

/// Limit on the number of tracks.
const MOST_TRACKS: usize = 64;

#[derive(Debug, Default)]
struct Mp4Track {
    id: u32,
    is_audio: bool,
    is_video: bool,
    rate: u32,
    /// Duration in ticks of `rate` from the header, without fragments.
    stated: u64,
    /// Sum of the durations of its samples.
    summed: Option<u64>,
    /// Number of samples.
    samples: u64,
    coding: Mp4Codec,
}

/// Codec of a track's samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mp4Codec {
    /// AAC: a sample of 1,024 values at 96 kHz at most takes more than 10 ms.
    Aac,
    /// Opus: 2.5 ms at least.
    Opus,
    /// Lossless or unknown codec.
    #[default]
    Other,
}

impl Mp4Codec {
    fn from_name(name: &[u8]) -> Self {
        match name {
            b"mp4a" => Self::Aac,
            b"Opus" => Self::Opus,
            _ => Self::Other,
        }
    }

    /// Returns the minimum duration of this number of samples in milliseconds.
    const fn minimum_millis(self, samples: u64) -> u64 {
        match self {
            Self::Aac => samples.saturating_mul(10),
            Self::Opus => samples.saturating_mul(5) / 2,
            Self::Other => 0,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Mp4Parser {
    tracks: Vec<Mp4Track>,
    /// Ticks and rate of the presentation.
    movie: (u64, u32),
    /// Ticks of the presentation with its fragments.
    extended: u64,
    /// Defaults of fragments, before or after the tracks: id, ticks of a sample.
    defaults: Vec<(u32, u32)>,
    /// Track of the current fragment, and the ticks of its samples if given.
    fragment: (u32, Option<u32>),
    /// Fragments by track: id, ticks, samples.
    fragments: Vec<(u32, u64, u64)>,
    /// Bytes of media.
    media: u64,
}

/// Boxes that contain other relevant boxes.
const CONTAINER_BOXES: [&[u8; 4]; 8] =
    [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"mvex", b"moof", b"traf"];
/// Boxes that are parsed.
const PARSED_BOXES: [&[u8; 4]; 11] =
    [b"mvhd", b"tkhd", b"mdhd", b"hdlr", b"mehd", b"trex", b"tfhd", b"trun", b"stts", b"stsz", b"stsd"];
/// Limit on the parsed bytes of boxes of which only the start is needed.
const MAX_PARSED_BYTES: usize = 24;

impl ContainerParser for Mp4Parser {
    fn minimum(&self) -> MinimumDuration {
        let Some(track) = self.audio_track() else {
            return MinimumDuration::by_all_bytes(MinimumDuration::PLAIN);
        };
        let pictures = self.tracks.iter().any(|track| track.is_video);
        let rate = if track.coding == Mp4Codec::Other || pictures {
            MinimumDuration::PLAIN
        } else {
            MinimumDuration::LOSSY
        };
        let samples = track.samples.saturating_add(self.fragments_of(track).1);
        MinimumDuration { bytes: Some(self.media), rate, millis: track.coding.minimum_millis(samples) }
    }

    fn step(&mut self, ahead: &[u8]) -> ParserStep {
        let (Some(short), Some(name)) = (be32(ahead, 0), ahead.get(4..8)) else { return ParserStep::Need(8) };
        let (head, size) = match short {
            // The media extends to the end of the file.
            0 if name == b"mdat" => {
                self.media = u64::MAX;
                return ParserStep::Skip(u64::MAX);
            }
            0 => return ParserStep::Stop,
            1 => match be64(ahead, 8) {
                Some(size) => (16, size),
                None => return ParserStep::Need(16),
            },
            size => (8, u64::from(size)),
        };
        if size < head {
            return ParserStep::Stop;
        }
        if CONTAINER_BOXES.iter().any(|folder| **folder == *name) {
            if name == b"trak" && self.tracks.len() < MOST_TRACKS {
                self.tracks.push(Mp4Track::default());
            }
            return ParserStep::Skip(head);
        }
        if PARSED_BOXES.iter().any(|read| **read == *name) {
            let (Ok(whole), Ok(head)) = (usize::try_from(size), usize::try_from(head)) else {
                return ParserStep::Stop;
            };
            let whole = match name {
                b"stsz" | b"stsd" => whole.min(MAX_PARSED_BYTES),
                // Larger than a table of one track's durations can be: the sum stays unknown.
                b"stts" if whole > MAX_BUFFERED_BYTES => return ParserStep::Skip(size),
                _ => whole,
            };
            let Some(content) = ahead.get(head..whole) else { return ParserStep::Need(whole) };
            // A truncated box is ignored.
            self.read(name, content);
        }
        if name == b"mdat" {
            self.media = self.media.saturating_add(size - head);
        }
        ParserStep::Skip(size)
    }

    fn end(&mut self, _: &[u8], _: u64) -> AudioDuration {
        if self.tracks.is_empty() {
            return AudioDuration::NoAudio;
        }
        let Some(track) = self.audio_track() else { return AudioDuration::NoAudio };
        let (fragments, _) = self.fragments_of(track);
        let samples = track.summed.filter(|sum| *sum > 0 || fragments > 0).unwrap_or(track.stated);
        let own = AudioDuration::from_ticks(samples.saturating_add(fragments), u64::from(track.rate));
        let movie = AudioDuration::from_ticks(self.movie.0.max(self.extended), u64::from(self.movie.1));
        if own == AudioDuration::Unknown { movie } else { own }
    }
}

impl Mp4Parser {
    /// Returns the first audio track.
    fn audio_track(&self) -> Option<&Mp4Track> {
        self.tracks.iter().find(|track| track.is_audio)
    }

    /// Returns ticks and samples of a track's fragments.
    fn fragments_of(&self, track: &Mp4Track) -> (u64, u64) {
        let found = self.fragments.iter().find(|(id, ..)| *id == track.id);
        found.map_or((0, 0), |(_, ticks, samples)| (*ticks, *samples))
    }

    fn read(&mut self, name: &[u8], content: &[u8]) -> Option<()> {
        let long = *content.first()? == 1;
        let flags = be32(content, 0)? & 0x00ff_ffff;
        match name {
            b"mvhd" => self.movie = length(content, long)?,
            b"mehd" => self.extended = number(content, 4, long)?,
            b"tkhd" => self.tracks.last_mut()?.id = be32(content, if long { 20 } else { 12 })?,
            b"mdhd" => {
                let track = self.tracks.last_mut()?;
                (track.stated, track.rate) = length(content, long)?;
            }
            b"hdlr" => {
                let (track, kind) = (self.tracks.last_mut()?, content.get(8..12)?);
                track.is_audio |= kind == b"soun";
                track.is_video |= kind == b"vide";
            }
            b"stsd" => self.tracks.last_mut()?.coding = Mp4Codec::from_name(content.get(12..16)?),
            b"stsz" => self.tracks.last_mut()?.samples = u64::from(be32(content, 8)?),
            b"stts" => {
                let entries =
                    content.get(8..)?.chunks_exact(8).take(usize::try_from(be32(content, 4)?).ok()?);
                let ticks = entries.map(|entry| {
                    let of = |at| u64::from(be32(entry, at).unwrap_or_default());
                    of(0).saturating_mul(of(4))
                });
                self.tracks.last_mut()?.summed = Some(ticks.fold(0, u64::saturating_add));
            }
            b"trex" if self.defaults.len() < MOST_TRACKS => {
                self.defaults.push((be32(content, 4)?, be32(content, 12)?));
            }
            b"tfhd" => {
                let mut at = 8;
                // A data offset and a sample description come first, if present.
                at += if flags & 1 == 0 { 0 } else { 8 };
                at += if flags & 2 == 0 { 0 } else { 4 };
                let each = if flags & 8 == 0 { None } else { be32(content, at) };
                self.fragment = (be32(content, 4)?, each);
            }
            b"trun" => self.read_run(content, flags)?,
            _ => {}
        }
        Some(())
    }

    /// Adds a run of samples in a fragment.
    fn read_run(&mut self, content: &[u8], flags: u32) -> Option<()> {
        let (id, each) = self.fragment;
        let count = be32(content, 4)?;
        let ticks = if flags & 0x100 == 0 {
            let usual = || self.defaults.iter().find(|(track, _)| *track == id).map_or(0, |(_, each)| *each);
            u64::from(count) * u64::from(each.unwrap_or_else(usual))
        } else {
            let at = 8 + 4 * usize::from(flags & 1 != 0) + 4 * usize::from(flags & 4 != 0);
            let size = 4 * (flags >> 8 & 0xf).count_ones() as usize;
            let samples = content.get(at..)?.chunks_exact(size).take(usize::try_from(count).ok()?);
            samples.filter_map(|sample| be32(sample, 0)).map(u64::from).sum()
        };
        if let Some((_, sum, samples)) = self.fragments.iter_mut().find(|(track, ..)| *track == id) {
            *sum = sum.saturating_add(ticks);
            *samples = samples.saturating_add(u64::from(count));
        } else if self.fragments.len() < MOST_TRACKS {
            self.fragments.push((id, ticks, u64::from(count)));
        }
        Some(())
    }
}

/// Returns ticks and rate of a header box. All ones: unknown.
fn length(content: &[u8], long: bool) -> Option<(u64, u32)> {
    let at = if long { 20 } else { 12 };
    let ticks = number(content, at + 4, long)?;
    let unknown = if long { u64::MAX } else { u64::from(u32::MAX) };
    Some((if ticks == unknown { 0 } else { ticks }, be32(content, at)?))
}

fn number(content: &[u8], at: usize, long: bool) -> Option<u64> {
    if long { be64(content, at) } else { be32(content, at).map(u64::from) }
}
