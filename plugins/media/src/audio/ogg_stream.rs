//! One stream of an Ogg file: its codec, its positions and the duration of its packets.

use super::bits::{le16, le32};
use super::flac_frame;
use super::opus;
use super::vorbis::VorbisHeaders;

/// Logical stream of an Ogg file.
#[derive(Debug)]
pub(super) struct OggStream {
    /// Samples per second, the unit of positions.
    pub rate: u64,
    pub codec: OggCodec,
    /// Position at which the audio starts, in samples; `None` before the first page on which a packet of audio ends.
    /// A stream may start at any position (RFC 7845, section 4).
    start: Option<u64>,
    /// Highest granule position of all pages so far.
    position: u64,
    /// Number of samples at the start that are not played.
    skip: u64,
    /// Number of samples in all packets so far, and in the last packet of them.
    packets: u64,
    last_packet: u64,
    /// Number of packets so far.
    count: u64,
    /// True once a packet of audio has begun.
    pub has_audio_packet: bool,
    /// Kind of the packet that continues on the next page.
    current: PacketKind,
    vorbis: Option<VorbisHeaders>,
}

/// Codec, which determines how the duration of a packet is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OggCodec {
    Opus,
    Flac,
    Vorbis,
    /// Codec in which every packet has the same number of samples.
    Speex {
        packet: u64,
    },
    /// Stream without audio: pictures, subtitles, or a description of other streams.
    NoAudio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketKind {
    Audio,
    /// Packet with a header or comments of the codec.
    Header,
    /// Vorbis header that contains the modes.
    Setup,
}

/// Bytes with which the first packet of a stream without audio begins, one entry for each codec.
const NO_AUDIO: [&[u8]; 7] =
    [b"\x80theora", b"fishead\0", b"fisbone\0", b"BBCD\0", b"CMML\0\0\0\0", b"\x80kate\0\0\0", b"OVP80"];

impl OggStream {
    /// Creates a stream from its first packet; `None` if its codec is unknown or its header is invalid.
    pub(super) fn from_first_packet(packet: &[u8]) -> Option<Self> {
        let (mut skip, mut vorbis) = (0, None);
        let (codec, rate) = if packet.starts_with(b"OpusHead") {
            skip = u64::from(le16(packet, 10)?);
            (OggCodec::Opus, opus::TICKS_PER_SECOND)
        } else if packet.starts_with(b"\x01vorbis") {
            vorbis = VorbisHeaders::from_identification(packet);
            (OggCodec::Vorbis, u64::from(vorbis.as_ref()?.rate))
        } else if packet.starts_with(b"Speex   ") {
            let frame = 160u64 << le32(packet, 40)?.min(2);
            let frames = le32(packet, 64).unwrap_or(1).clamp(1, 64);
            (OggCodec::Speex { packet: frame * u64::from(frames) }, u64::from(le32(packet, 36)?))
        } else if packet.starts_with(b"\x7fFLAC") {
            (OggCodec::Flac, u64::from(flac_frame::parse_stream_info(packet.get(17..)?)?.0))
        } else if NO_AUDIO.iter().any(|start| packet.starts_with(start)) {
            (OggCodec::NoAudio, 1)
        } else {
            return None;
        };
        let current = PacketKind::Header;
        let stream = Self {
            rate,
            codec,
            start: None,
            position: 0,
            skip,
            packets: 0,
            last_packet: 0,
            count: 0,
            has_audio_packet: false,
            current,
            vorbis,
        };
        (rate > 0).then_some(stream)
    }

    /// Adds the samples of the packets that begin on a page to the sum, and records the granule position of the page;
    /// returns the number of bytes of codec headers in the page. A page on which no packet ends has no position.
    pub(super) fn add_page(&mut self, table: &[u8], body: &[u8], continued: bool, position: u64) -> u64 {
        let (mut begins, mut at, mut headers) = (!continued, 0, 0);
        let mut ends_audio = false;
        for length in table {
            let part = body.get(at..at + usize::from(*length)).unwrap_or_default();
            if begins {
                self.current = self.begin_packet(part);
            }
            if self.current != PacketKind::Audio {
                headers += part.len() as u64;
            }
            // A packet continues in the next segment if this segment is full (255 bytes).
            begins = *length < 255;
            ends_audio |= begins && self.current == PacketKind::Audio;
            if self.current == PacketKind::Setup
                && let Some(vorbis) = &mut self.vorbis
            {
                vorbis.push_setup(part);
                if begins {
                    vorbis.end_setup();
                }
            }
            at += usize::from(*length);
        }
        // Negative positions are invalid, and -1 marks a page without a position.
        if position <= i64::MAX as u64 {
            if ends_audio && self.start.is_none() {
                let open = if begins { 0 } else { self.last_packet };
                self.start = Some(position.saturating_sub(self.packets.saturating_sub(open)));
            }
            self.position = self.position.max(position);
        }
        headers
    }

    /// Adds the samples of a packet to the sum if it is audio. `packet` may be only the first part. Returns the kind.
    fn begin_packet(&mut self, packet: &[u8]) -> PacketKind {
        let first = self.count == 0;
        let second = self.count == 1;
        self.count += 1;
        let header = match self.codec {
            OggCodec::Opus => first || (second && packet.starts_with(b"OpusTags")),
            OggCodec::Vorbis if packet.starts_with(b"\x05vorbis") => return PacketKind::Setup,
            OggCodec::Vorbis => packet.first().is_some_and(|byte| byte & 1 == 1),
            OggCodec::Flac => packet.first() != Some(&0xff),
            OggCodec::Speex { .. } => first || second,
            OggCodec::NoAudio => true,
        };
        if header {
            return PacketKind::Header;
        }
        self.has_audio_packet = true;
        self.last_packet = match self.codec {
            OggCodec::Opus => opus::packet_ticks(packet),
            OggCodec::Flac => {
                flac_frame::parse_frame_header(packet).map_or(0, |frame| u64::from(frame.samples))
            }
            OggCodec::Vorbis => self.vorbis.as_mut().map_or(0, |vorbis| vorbis.packet_samples(packet)),
            OggCodec::Speex { packet } => packet,
            OggCodec::NoAudio => 0,
        };
        self.packets = self.packets.saturating_add(self.last_packet);
        PacketKind::Audio
    }

    /// Returns the number of samples in all packets.
    pub(super) const fn packet_samples(&self) -> u64 {
        self.packets
    }

    /// Returns the number of played samples. Usually this is the last position, relative to the start of the audio. If
    /// the packets have more samples than this and the trimming at both ends explain, it is the number of samples in
    /// the packets.
    pub(super) fn played_samples(&self) -> u64 {
        let start = self.start.unwrap_or_default();
        let declared = self.position.saturating_sub(start).saturating_sub(self.skip);
        let trimmed = match self.codec {
            OggCodec::NoAudio => return 0,
            OggCodec::Opus => return opus::reconcile_duration(declared, self.packets),
            OggCodec::Flac => 0,
            OggCodec::Vorbis => self.vorbis.as_ref().map_or(0, VorbisHeaders::max_trimmed_samples),
            OggCodec::Speex { packet } => 2 * packet,
        };
        if declared.saturating_add(trimmed) >= self.packets { declared } else { self.packets }
    }
}
