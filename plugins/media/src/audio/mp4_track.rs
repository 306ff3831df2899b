//! Track of an MP4 file: its duration, from its header and from its table of samples.

use super::aac::FrameConfig;
use super::bits::{be16, be32};
use super::container_parser::AudioDuration;
use super::mpeg::FrameHeader;
use super::opus;

/// Track of an MP4 file.
#[derive(Debug, Default)]
pub(super) struct Mp4Track {
    pub id: u32,
    pub is_audio: bool,
    pub is_video: bool,
    /// Ticks per second, the unit of the track's durations.
    pub rate: u32,
    /// Duration in ticks as the header of the track states it, without fragments.
    pub header_duration: u64,
    /// True if the track has a table of sample durations. If the track has several tables, the one with the longest
    /// sum counts.
    pub has_table: bool,
    /// Longest sum of the earlier tables of sample durations, in ticks.
    longest: u64,
    /// Sum of the current table of sample durations, in ticks.
    current: u64,
    /// Number of samples.
    pub samples: u64,
    pub coding: Mp4Codec,
}

/// Codec of a track's samples, with the configuration of its frames if it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mp4Codec {
    /// AAC, AC-3, AMR.
    Lossy(Option<FrameConfig>),
    /// Codec whose packets state their own duration.
    Packets(PacketCodec),
    /// Unknown codec, or ALAC, PCM, A-law or µ-law without a usable configuration.
    #[default]
    Other,
    /// ALAC, PCM, A-law or µ-law; a sample of PCM is a frame of one sample.
    PcmOrAlac(FrameConfig),
}

/// Codec whose packets state their own duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PacketCodec {
    Opus,
    /// MPEG audio, above all MP3.
    Mpeg,
}

impl PacketCodec {
    /// Number of first bytes of a packet from which its duration is read.
    pub(super) const fn header_bytes(self) -> usize {
        match self {
            Self::Opus => 2,
            Self::Mpeg => 4,
        }
    }

    /// Reads the duration of a packet from its first bytes; `None` if they are invalid, or the packet is empty.
    pub(super) fn packet_config(self, packet: &[u8]) -> Option<FrameConfig> {
        match self {
            Self::Opus => {
                let samples =
                    u32::try_from(opus::packet_ticks(packet)).ok().filter(|samples| *samples > 0)?;
                Some(FrameConfig { samples, rate: OPUS_RATE })
            }
            Self::Mpeg => FrameHeader::parse(packet)
                .map(|header| FrameConfig { samples: header.samples, rate: header.rate }),
        }
    }

    /// Returns a duration per packet that no usual encoder falls below, as a frame of that length: 2.5 ms for Opus, 10 ms
    /// for MPEG audio.
    const fn minimum(self) -> FrameConfig {
        match self {
            Self::Opus => FrameConfig { samples: 120, rate: OPUS_RATE },
            Self::Mpeg => FrameConfig { samples: 1, rate: 100 },
        }
    }

    /// Returns the duration of a packet of usual encoders.
    const fn usual(self) -> FrameConfig {
        match self {
            Self::Opus => FrameConfig { samples: 960, rate: OPUS_RATE },
            Self::Mpeg => FrameConfig { samples: 1_152, rate: 44_100 },
        }
    }
}

/// Samples per second of Opus.
const OPUS_RATE: u32 = 48_000;
/// Object types of MPEG audio in the descriptor of a decoder: MPEG-2 and MPEG-1.
const MPEG_OBJECT_TYPES: [u8; 2] = [0x69, 0x6b];

impl Mp4Codec {
    /// Reads the codec from the table of sample descriptions (`stsd`) of a track; `None` if the table is incomplete.
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let known = Self::from_name(content.get(12..16)?, content);
        // Samples may refer to a later description than the first one.
        let later = || {
            let names: [&[u8]; 2] = [b"mp4a", b"Opus"];
            let found = names.into_iter().find(|name| memchr::memmem::find(content, name).is_some());
            found.map_or(Self::Other, |name| Self::from_name(name, content))
        };
        Some(if known == Self::Other { later() } else { known })
    }

    fn from_name(name: &[u8], content: &[u8]) -> Self {
        match name {
            b"mp4a" => esds_codec(content).unwrap_or(Self::Lossy(None)),
            b"ac-3" | b"ec-3" | b"samr" | b"sawb" => Self::Lossy(None),
            b".mp3" | b"ms\0\x55" => Self::Packets(PacketCodec::Mpeg),
            b"Opus" => Self::Packets(PacketCodec::Opus),
            b"alac" => alac_config(content).map_or(Self::Other, Self::PcmOrAlac),
            b"sowt" | b"twos" | b"in24" | b"in32" | b"fl32" | b"ulaw" | b"alaw" | b"ipcm" => {
                let rate = be16(content, 40).map_or(0, u32::from);
                if rate < 4000 { Self::Other } else { Self::PcmOrAlac(FrameConfig { samples: 1, rate }) }
            }
            _ => Self::Other,
        }
    }

    /// Returns true if the codec may be uncompressed or lossless. An unknown codec may be.
    pub(super) const fn may_be_lossless(self) -> bool {
        matches!(self, Self::Other | Self::PcmOrAlac(_))
    }

    /// Returns the codec whose packets state their own duration; `None` for other codecs.
    pub(super) const fn packet_codec(self) -> Option<PacketCodec> {
        match self {
            Self::Packets(codec) => Some(codec),
            Self::Lossy(_) | Self::Other | Self::PcmOrAlac(_) => None,
        }
    }

    /// Returns the minimum duration of this number of samples. If the duration of a sample is known, from the
    /// configuration or from `packet` (the shortest known packet), the minimum is the sum of all but two samples, which
    /// may be trimmed. Otherwise a sample of Opus counts 2.5 ms, and one of another lossy codec 10 ms, less than any
    /// frame. `Unknown` for [`Self::Other`].
    fn minimum(self, samples: u64, packet: Option<FrameConfig>) -> AudioDuration {
        match (self, packet) {
            (Self::Lossy(Some(config)) | Self::PcmOrAlac(config), _) | (Self::Packets(_), Some(config)) => {
                of_frames(config, samples.saturating_sub(2))
            }
            (Self::Packets(codec), None) => of_frames(codec.minimum(), samples),
            (Self::Lossy(None), _) => AudioDuration::from_ticks(samples, 100),
            (Self::Other, _) => AudioDuration::Unknown,
        }
    }

    /// Returns the usual duration of this number of samples; it replaces a stated duration below [`Self::minimum`]. A
    /// sample counts as long as `packet`, or as a packet of usual encoders if that is `None`. `Unknown` for
    /// [`Self::Other`].
    fn usual(self, samples: u64, packet: Option<FrameConfig>) -> AudioDuration {
        match self {
            Self::Lossy(Some(config)) | Self::PcmOrAlac(config) => of_frames(config, samples),
            Self::Packets(codec) => of_frames(packet.unwrap_or(codec.usual()), samples),
            Self::Lossy(None) | Self::Other => self.minimum(samples, packet),
        }
    }
}

/// Returns the duration of `count` frames.
fn of_frames(config: FrameConfig, count: u64) -> AudioDuration {
    AudioDuration::from_ticks(count.saturating_mul(u64::from(config.samples)), u64::from(config.rate))
}

/// Reads frame length and sample rate from the configuration box of ALAC, which has the same name as the sample
/// description that contains it; `None` if the box is missing or incomplete, or a value is zero.
fn alac_config(content: &[u8]) -> Option<FrameConfig> {
    let config = content.get(16..)?;
    let config = config.get(memchr::memmem::rfind(config, b"alac")? + 8..)?;
    let (samples, rate) = (be32(config, 0)?, be32(config, 20)?);
    (samples > 0 && rate > 0).then_some(FrameConfig { samples, rate })
}

/// Finds the codec and its configuration in the descriptors of an `esds` box; `None` if they are missing, incomplete or
/// invalid.
fn esds_codec(content: &[u8]) -> Option<Mp4Codec> {
    let at = memchr::memmem::find(content, b"esds")?;
    let mut rest = content.get(at + 8..)?;
    loop {
        let (&tag, behind) = rest.split_first()?;
        let marked = behind.iter().take(3).take_while(|byte| **byte & 0x80 != 0).count();
        let length = behind.get(..=marked)?.iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        let body = behind.get(marked + 1..)?;
        // The descriptors of the stream and of the decoder (tags 3 and 4) contain further descriptors.
        rest = match tag {
            3 => {
                let flags = *body.get(2)?;
                let url = if flags & 0x40 == 0 { 0 } else { 1 + usize::from(*body.get(3)?) };
                body.get(3 + 2 * usize::from(flags & 0x80 != 0) + url + 2 * usize::from(flags & 0x20 != 0)..)?
            }
            4 if MPEG_OBJECT_TYPES.contains(body.first()?) => {
                return Some(Mp4Codec::Packets(PacketCodec::Mpeg));
            }
            4 => body.get(13..)?,
            5 => {
                let config = FrameConfig::from_audio_specific_config(body.get(..length.min(body.len()))?);
                return config.map(|config| Mp4Codec::Lossy(Some(config)));
            }
            _ => body.get(length..)?,
        };
    }
}

impl Mp4Track {
    /// Begins a table of sample durations (`stts`); only the table with the longest sum counts.
    pub(super) fn begin_duration_table(&mut self) {
        self.has_table = true;
        self.longest = self.longest.max(std::mem::take(&mut self.current));
    }

    /// Adds `count` samples of `ticks` each to the current `stts` table.
    pub(super) fn add_samples(&mut self, count: u32, ticks: u32) {
        self.current = self.current.saturating_add(u64::from(count) * u64::from(ticks));
    }

    /// Returns true if the track has samples, and each is a frame of a known duration. Then the number of samples gives
    /// a lower limit of the duration, even if the file states a shorter one. `fragments` has the ticks and the number
    /// of samples of the fragments; `packet` is the shortest known packet, `None` if none is known.
    pub(super) fn has_known_frame_duration(
        &self,
        fragments: (u64, u64),
        packet: Option<FrameConfig>,
    ) -> bool {
        let has_frames = match self.coding {
            // A sample of PCM may have any number of bytes, so the number of PCM samples gives no reliable duration.
            Mp4Codec::Lossy(Some(config)) | Mp4Codec::PcmOrAlac(config) => config.samples > 1,
            Mp4Codec::Packets(PacketCodec::Opus) => packet.is_some(),
            // A sample of MPEG audio may have several frames.
            Mp4Codec::Packets(PacketCodec::Mpeg) | Mp4Codec::Lossy(None) | Mp4Codec::Other => false,
        };
        has_frames && self.samples.saturating_add(fragments.1) > 0
    }

    /// Returns the number of samples of the track and of its fragments. A sample has at least one byte, so there are at
    /// most `media_bytes` samples.
    fn sample_count(&self, fragments: u64, media_bytes: u64) -> u64 {
        self.samples.saturating_add(fragments).min(media_bytes)
    }

    /// Returns the duration of the track by the number of its samples alone; `Unknown` if the duration of a sample is
    /// unknown. `fragments` is the number of samples in fragments; the other arguments are those of
    /// [`Self::duration`].
    pub(super) fn counted_duration(
        &self,
        fragments: u64,
        packet: Option<FrameConfig>,
        media_bytes: u64,
    ) -> AudioDuration {
        self.coding.usual(self.sample_count(fragments, media_bytes), packet)
    }

    /// Returns the duration of the track and its fragments. `fragments` holds the ticks and the number of samples of
    /// the fragments; `movie` is used if the track states no duration; `packet` is the shortest known
    /// packet; `media_bytes` limits the number of samples.
    pub(super) fn duration(
        &self,
        fragments: (u64, u64),
        movie: AudioDuration,
        packet: Option<FrameConfig>,
        media_bytes: u64,
    ) -> AudioDuration {
        let ticks = fragments.0;
        let samples = self.sample_count(fragments.1, media_bytes);
        let summed = self.longest.max(self.current);
        let own = if self.has_table && (summed > 0 || ticks > 0) { summed } else { self.header_duration };
        let stated = AudioDuration::from_ticks(own.saturating_add(ticks), u64::from(self.rate)).or(movie);
        if stated.nanoseconds() >= self.coding.minimum(samples, packet).nanoseconds() {
            stated
        } else {
            self.coding.usual(samples, packet).longer(stated)
        }
    }
}

/// Returns the number of samples in a table of sample sizes (`stsz`, or `stz2` with compact sizes); `None` if the
/// table is incomplete.
pub(super) fn sample_count(content: &[u8]) -> Option<u64> {
    be32(content, 8).map(u64::from)
}

/// Returns the sizes of the first samples in a table of sample sizes (`stsz`), of which this is the start.
pub(super) fn first_sample_sizes(content: &[u8]) -> impl Iterator<Item = u32> {
    let (same, count) = (be32(content, 4).unwrap_or_default(), sample_count(content).unwrap_or_default());
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let listed = (content.len().saturating_sub(12) / 4).min(count);
    (0..if same > 0 { count } else { listed })
        .map_while(move |index| if same > 0 { Some(same) } else { be32(content, 12 + 4 * index) })
}

/// Returns the number of bytes of an entry in a run of samples, and true if each entry begins with a duration.
pub(super) const fn trun_entry_layout(flags: u32) -> (usize, bool) {
    (4 * (flags >> 8 & 0xf).count_ones() as usize, flags & 0x100 != 0)
}

/// Returns the version of a box and its flags; `None` if the box is incomplete.
pub(super) fn version_and_flags(content: &[u8]) -> Option<(u16, u32)> {
    Some((be16(content, 0)? >> 8, be32(content, 0)? & 0x00ff_ffff))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn the_descriptor_of_the_decoder_names_the_codec() {
        let description = |kind: u8| {
            let esds = [
                0, 0, 0, 0, 3, 25, 0, 1, 0, 4, 17, kind, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 2, 0x14, 8,
            ];
            let mut content = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 80];
            content.extend(b"mp4a");
            content.resize(48, 0);
            content.extend(b"esds");
            content.extend(esds);
            content
        };
        let aac = FrameConfig { samples: 1_024, rate: 16_000 };
        for (kind, expected) in [
            (0x40, Mp4Codec::Lossy(Some(aac))),
            (0x69, Mp4Codec::Packets(PacketCodec::Mpeg)),
            (0x6b, Mp4Codec::Packets(PacketCodec::Mpeg)),
        ] {
            let content = description(kind);
            assert_eq!(Mp4Codec::parse(&content), Some(expected), "{kind:x}");
            for end in 16..content.len() {
                let cut = Mp4Codec::parse(&content[..end]);
                assert!(cut == Some(expected) || cut == Some(Mp4Codec::Lossy(None)), "{end}: {cut:?}");
            }
        }
    }
}
