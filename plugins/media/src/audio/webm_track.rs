//! One track of a WebM or Matroska file: its codec and the duration of its packets.

use super::aac::FrameConfig;
use super::bits::be16;
use super::container_parser::AudioDuration;
use super::flac_frame;
use super::mpeg::FrameHeader;
use super::opus;
use super::vorbis::VorbisHeaders;

/// Track of a WebM or Matroska file.
#[derive(Debug, Default)]
pub(super) struct WebmTrack {
    pub number: u64,
    pub kind: TrackKind,
    pub codec: WebmCodec,
    vorbis: Option<VorbisHeaders>,
    aac: Option<FrameConfig>,
    /// Values that the track states: samples per second, channels, bits per sample.
    pub sample_rate: u64,
    pub channels: u64,
    pub bits: u64,
    /// Number of samples in all packets so far, and samples per second.
    samples: u64,
    rate: u64,
    times: BlockTimes,
}

/// Times of the blocks of a track, in ticks of the file.
#[derive(Debug, Default)]
struct BlockTimes {
    /// Earliest start of a block.
    first: Option<u64>,
    /// Latest start of a block (`last`) and the latest start before it (`before`).
    last: Option<u64>,
    before: Option<u64>,
    /// Latest end of a block that states its duration; 0 if none does.
    end: u64,
}

/// Maximum duration in nanoseconds that is trimmed from the first and last packets.
const MAX_TRIM: u128 = 240_000_000;

/// Kind of a track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TrackKind {
    #[default]
    Unknown,
    Audio,
    /// Pictures and subtitles.
    NoAudio,
}

/// Codec of a track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WebmCodec {
    Opus,
    Vorbis,
    Aac,
    Mpeg,
    Flac,
    /// Uncompressed samples.
    Pcm,
    /// Lossless codec other than FLAC and PCM.
    OtherLossless,
    /// Any other codec, which is treated as a lossy one.
    #[default]
    Lossy,
}

impl WebmCodec {
    /// Returns the codec with this Matroska codec id.
    pub(super) fn from_name(name: &[u8]) -> Self {
        let codecs: [(&[u8], Self); 9] = [
            (b"A_OPUS", Self::Opus),
            (b"A_VORBIS", Self::Vorbis),
            (b"A_AAC", Self::Aac),
            (b"A_MPEG/", Self::Mpeg),
            (b"A_FLAC", Self::Flac),
            (b"A_PCM", Self::Pcm),
            (b"A_ALAC", Self::OtherLossless),
            (b"A_WAVPACK4", Self::OtherLossless),
            (b"A_TTA1", Self::OtherLossless),
        ];
        codecs.into_iter().find(|(start, _)| name.starts_with(start)).map_or(Self::Lossy, |(_, codec)| codec)
    }

    /// Returns true for lossless codecs.
    pub(super) const fn is_lossless(self) -> bool {
        matches!(self, Self::OtherLossless | Self::Pcm | Self::Flac)
    }

    /// Returns true if the content of packets is needed to count them.
    pub(super) const fn needs_packet_content(self) -> bool {
        matches!(self, Self::Opus | Self::Vorbis | Self::Mpeg | Self::Flac)
    }
}

impl WebmTrack {
    /// Reads the private data of the codec.
    pub(super) fn set_codec_private(&mut self, content: &[u8]) {
        self.vorbis = VorbisHeaders::from_codec_private(content);
        self.aac = FrameConfig::from_audio_specific_config(content);
    }

    /// Adds the samples of a block's packets to the sum. `content` starts at the flags of the block, after its time,
    /// and may be cut; `size` is the complete number of bytes from the flags on.
    pub(super) fn add_block_samples(&mut self, content: &[u8], size: u64) {
        let lacing = content.first().map_or(0, |flags| flags >> 1 & 3);
        if self.codec == WebmCodec::Pcm {
            let bytes = (self.channels.max(1)).saturating_mul(self.bits).div_ceil(8).max(1);
            return self.add(size.saturating_sub(1) / bytes, self.sample_rate);
        }
        if lacing == 0 {
            return self.count(content.get(1..).unwrap_or_default());
        }
        let count = content.get(1).map_or(0, |count| usize::from(*count) + 1);
        match packet_lengths(content).filter(|_| self.codec.needs_packet_content()) {
            Some((mut at, lengths)) => {
                for length in lengths {
                    self.count(content.get(at..at + length).unwrap_or_default());
                    at += length;
                }
            }
            // The stated packet lengths are unusable, so every packet counts as long as the first one.
            None => (0..count).for_each(|_| self.count(content.get(2..).unwrap_or_default())),
        }
    }

    /// Adds the samples of a packet to the sum; the first bytes of the packet are enough.
    fn count(&mut self, packet: &[u8]) {
        let (samples, rate) = match self.codec {
            WebmCodec::Opus => (opus::packet_ticks(packet), opus::TICKS_PER_SECOND),
            WebmCodec::Vorbis => match &mut self.vorbis {
                Some(vorbis) => (vorbis.packet_samples(packet), u64::from(vorbis.rate)),
                None => return,
            },
            WebmCodec::Aac => match &self.aac {
                Some(config) => (u64::from(config.samples), u64::from(config.rate)),
                None => (1024, self.sample_rate),
            },
            WebmCodec::Mpeg => match FrameHeader::parse(packet) {
                Some(frame) => (u64::from(frame.samples), u64::from(frame.rate)),
                None => return,
            },
            WebmCodec::Flac => match flac_frame::parse_frame_header(packet) {
                Some(frame) if frame.rate == 0 => (u64::from(frame.samples), self.sample_rate),
                Some(frame) => (u64::from(frame.samples), u64::from(frame.rate)),
                None => return,
            },
            WebmCodec::Pcm | WebmCodec::OtherLossless | WebmCodec::Lossy => return,
        };
        self.add(samples, rate);
    }

    fn add(&mut self, samples: u64, rate: u64) {
        self.samples = self.samples.saturating_add(samples);
        // If the packets have several rates, the lowest one gives the longest duration.
        if rate > 0 && (self.rate == 0 || rate < self.rate) {
            self.rate = rate;
        }
    }

    /// Records the start of a block, in ticks.
    pub(super) fn add_block_time(&mut self, at: u64) {
        let times = &mut self.times;
        times.first = Some(times.first.map_or(at, |first| first.min(at)));
        if times.last.is_none_or(|last| at > last) {
            times.before = times.last;
            times.last = Some(at);
        }
    }

    /// Returns true if the track has a block.
    pub(super) const fn has_block(&self) -> bool {
        self.times.first.is_some()
    }

    /// Records the duration that the last block states, in ticks.
    pub(super) fn add_block_duration(&mut self, ticks: u64) {
        let end = self.times.last.unwrap_or_default().saturating_add(ticks);
        self.times.end = self.times.end.max(end);
    }

    /// Returns the duration of the track's packets; `Unknown` if they are not counted.
    pub(super) fn counted_duration(&self) -> AudioDuration {
        AudioDuration::from_ticks(self.samples, self.rate)
    }

    /// Returns the time from the start of the first block to the end of the last one, but at least the duration of the
    /// packets. `scale` is the number of nanoseconds per tick.
    pub(super) fn duration(&self, scale: u64) -> AudioDuration {
        let BlockTimes { first, last, before, end } = self.times;
        // If the last block states no duration, it lasts as long as the time between the starts of the last two
        // blocks.
        let usual = last.zip(before).map_or(0, |(last, before)| last.saturating_sub(before));
        let last = last.map_or(0, |last| last.saturating_add(usual.min(1_000_000_000 / scale.max(1))));
        let ticks = end.max(last).saturating_sub(first.unwrap_or_default());
        let declared = AudioDuration::from_ticks(ticks.saturating_mul(scale), 1_000_000_000);
        let counted = self.counted_duration();
        if declared.nanoseconds() + MAX_TRIM >= counted.nanoseconds() {
            declared.or(counted)
        } else {
            counted
        }
    }
}

/// Returns the offset of the first packet in `content` and the lengths of all packets, in bytes; `content` starts at
/// the flags of the block. Returns `None` if the lengths are incomplete or exceed the block.
fn packet_lengths(content: &[u8]) -> Option<(usize, Vec<usize>)> {
    let lacing = content.first()? >> 1 & 3;
    let count = usize::from(*content.get(1)?) + 1;
    let (mut at, mut lengths) = (2, Vec::with_capacity(count));
    match lacing {
        1 => {
            for _ in 1..count {
                let full = content.get(at..)?.iter().take_while(|byte| **byte == 255).count();
                lengths.push(full * 255 + usize::from(*content.get(at + full)?));
                at += full + 1;
            }
        }
        2 => lengths = vec![content.len().checked_sub(2)? / count; count - 1],
        _ => {
            for index in 1..count {
                let (number, bits, length) = laced_number(content.get(at..)?)?;
                let last = lengths.last().copied().unwrap_or_default();
                // The first number of the lacing is a length; each further number is the difference from the previous
                // length.
                let bias = if index == 1 { 0 } else { (1i64 << (bits - 1)) - 1 };
                let next = i64::try_from(last).ok()?.checked_add(number)?.checked_sub(bias)?;
                lengths.push(usize::try_from(next).ok()?);
                at += length;
            }
        }
    }
    let sum = lengths.iter().try_fold(at, |sum, length| sum.checked_add(*length))?;
    lengths.push(content.len().checked_sub(sum)?);
    Some((at, lengths))
}

/// Reads a number whose length is encoded in its first byte, and returns the number, its size in bits, and its size in
/// bytes; `None` if it is incomplete or has more than four bytes.
fn laced_number(content: &[u8]) -> Option<(i64, u32, usize)> {
    let first = *content.first()?;
    let length = first.leading_zeros() as usize + 1;
    let rest = content.get(1..length).filter(|_| length <= 4)?;
    let first = i64::from(u32::from(first) & (0xff >> length));
    let number = rest.iter().fold(first, |sum, byte| sum << 8 | i64::from(*byte));
    Some((number, 7 * length as u32, length))
}

/// Returns the time of a block relative to its cluster, in ticks; `content` starts after the track number. `None` if
/// the time is incomplete.
pub(super) fn block_time(content: &[u8]) -> Option<i64> {
    be16(content, 0).map(|time| i64::from(time.cast_signed()))
}
