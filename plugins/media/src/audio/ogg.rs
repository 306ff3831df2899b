//! Ogg: the last position of each audio stream, compared with its packets if those give their duration. Chained streams
//! add up.

use super::bits::{le16, le32, le64};
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserStep};
use super::opus;

/// Ticks per second, the common unit of all streams.
const RATE: u64 = 48_000;
/// Limit on the number of streams in one file.
const MOST_STREAMS: usize = 64;

#[derive(Debug)]
struct OggStream {
    serial: u32,
    rate: u64,
    /// Samples at the start that are not played.
    skip: u64,
    position: u64,
    codec: OggCodec,
    /// Samples of its packets, if they give their duration.
    packets: u64,
}

/// Codec, which determines the source of a packet's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OggCodec {
    Opus,
    Flac,
    /// Codec without durations in the first bytes of its packets.
    Other,
}

impl OggStream {
    /// Counts the packets that begin in a page.
    fn count_packets(&mut self, table: &[u8], body: &[u8], continued: bool) {
        let (mut begins, mut at) = (!continued, 0);
        for length in table {
            if begins {
                let packet = body.get(at..).unwrap_or_default();
                let packet = packet.get(..usize::from(*length)).unwrap_or(packet);
                self.packets = self.packets.saturating_add(match self.codec {
                    OggCodec::Opus if packet.starts_with(b"OpusTags") => 0,
                    OggCodec::Opus => opus::packet_ticks(packet),
                    OggCodec::Flac => {
                        super::flac::frame_header(packet).map_or(0, |(_, samples, _)| u64::from(samples))
                    }
                    OggCodec::Other => 0,
                });
            }
            at += usize::from(*length);
            // A packet continues after a full segment.
            begins = *length < 255;
        }
    }

    /// Returns the number of played samples.
    fn samples(&self) -> u64 {
        let told = self.position.saturating_sub(self.skip);
        match self.codec {
            OggCodec::Opus => opus::reconcile_duration(told, self.packets),
            OggCodec::Flac | OggCodec::Other => told.max(self.packets),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct OggParser {
    streams: Vec<OggStream>,
    /// Bytes in pages of audio streams.
    bytes: u64,
}

impl ContainerParser for OggParser {
    fn minimum(&self) -> MinimumDuration {
        let plain = self.streams.iter().any(|stream| stream.codec == OggCodec::Flac);
        let rate = if plain { MinimumDuration::PLAIN } else { MinimumDuration::LOSSY };
        MinimumDuration { bytes: Some(self.bytes), rate, millis: 0 }
    }

    fn step(&mut self, ahead: &[u8]) -> ParserStep {
        let Some(head) = ahead.get(..27) else { return ParserStep::Need(27) };
        if !head.starts_with(b"OggS") {
            return ParserStep::Stop;
        }
        let segments = head.get(26).map_or(0, |count| usize::from(*count));
        let Some(table) = ahead.get(27..27 + segments) else { return ParserStep::Need(27 + segments) };
        let body: usize = table.iter().map(|length| usize::from(*length)).sum();
        let whole = 27 + segments + body;
        let flags = head.get(5).copied().unwrap_or_default();
        let begins = flags & 2 != 0;
        let (Some(serial), Some(position)) = (le32(head, 14), le64(head, 6)) else { return ParserStep::Stop };
        if begins {
            let Some(body) = ahead.get(27 + segments..whole) else { return ParserStep::Need(whole) };
            if let Some((codec, rate, skip)) = codec(body).filter(|_| self.streams.len() < MOST_STREAMS) {
                self.streams.push(OggStream { serial, rate, skip, position: 0, codec, packets: 0 });
            }
        } else if let Some(stream) = self.streams.iter_mut().rev().find(|stream| stream.serial == serial) {
            if stream.codec != OggCodec::Other {
                let Some(body) = ahead.get(27 + segments..whole) else { return ParserStep::Need(whole) };
                stream.count_packets(table, body, flags & 1 != 0);
            }
            if position != u64::MAX {
                stream.position = stream.position.max(position);
            }
            self.bytes = self.bytes.saturating_add(body as u64);
        }
        ParserStep::Skip(whole as u64)
    }

    fn end(&mut self, _: &[u8], _: u64) -> AudioDuration {
        if self.streams.is_empty() {
            return AudioDuration::NoAudio;
        }
        let ticks = |stream: &OggStream| {
            let samples = u128::from(stream.samples());
            u64::try_from(samples * u128::from(RATE) / u128::from(stream.rate.max(1))).unwrap_or(u64::MAX)
        };
        AudioDuration::from_ticks(self.streams.iter().map(ticks).fold(0, u64::saturating_add), RATE)
    }
}

/// Returns codec, sample rate of positions, and samples to skip, from a stream's first packet.
fn codec(packet: &[u8]) -> Option<(OggCodec, u64, u64)> {
    if packet.starts_with(b"OpusHead") {
        return Some((OggCodec::Opus, opus::RATE, u64::from(le16(packet, 10)?)));
    }
    let (codec, rate) = if packet.starts_with(b"\x01vorbis") {
        (OggCodec::Other, le32(packet, 12)?)
    } else if packet.starts_with(b"Speex   ") {
        (OggCodec::Other, le32(packet, 36)?)
    } else if packet.starts_with(b"\x7fFLAC") {
        (OggCodec::Flac, super::flac::stream_info(packet.get(17..)?)?.0)
    } else {
        return None;
    };
    (rate > 0).then_some((codec, u64::from(rate), 0))
}
