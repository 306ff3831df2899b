//! Ogg: the last position of each audio stream, compared with its packets if those give their duration. Chained streams
//! add up.

use super::bits::{le16, le32, le64};
use super::opus;
use super::walk::{Floor, Span, Step, Walk};

/// Ticks per second, the common unit of all streams.
const RATE: u64 = 48_000;
/// Limit on the number of streams in one file.
const MOST_STREAMS: usize = 64;

#[derive(Debug)]
struct Stream {
    serial: u32,
    rate: u64,
    /// Samples at the start that are not played.
    skip: u64,
    position: u64,
    codec: Codec,
    /// Samples of its packets, if they give their duration.
    packets: u64,
}

/// Codec, which determines the source of a packet's duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Opus,
    Flac,
    /// Codec without durations in the first bytes of its packets.
    Other,
}

impl Stream {
    /// Counts the packets that begin in a page.
    fn take(&mut self, table: &[u8], body: &[u8], continued: bool) {
        let (mut begins, mut at) = (!continued, 0);
        for length in table {
            if begins {
                let packet = body.get(at..).unwrap_or_default();
                let packet = packet.get(..usize::from(*length)).unwrap_or(packet);
                self.packets = self.packets.saturating_add(match self.codec {
                    Codec::Opus if packet.starts_with(b"OpusTags") => 0,
                    Codec::Opus => opus::ticks(packet),
                    Codec::Flac => super::flac::frame(packet).map_or(0, |(_, samples, _)| u64::from(samples)),
                    Codec::Other => 0,
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
            Codec::Opus => opus::length(told, self.packets),
            Codec::Flac | Codec::Other => told.max(self.packets),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    streams: Vec<Stream>,
    /// Bytes in pages of audio streams.
    bytes: u64,
}

impl Walk for Pages {
    fn floor(&self) -> Floor {
        let plain = self.streams.iter().any(|stream| stream.codec == Codec::Flac);
        let rate = if plain { Floor::PLAIN } else { Floor::LOSSY };
        Floor { bytes: Some(self.bytes), rate, millis: 0 }
    }

    fn step(&mut self, ahead: &[u8]) -> Step {
        let Some(head) = ahead.get(..27) else { return Step::Need(27) };
        if !head.starts_with(b"OggS") {
            return Step::Stop;
        }
        let segments = head.get(26).map_or(0, |count| usize::from(*count));
        let Some(table) = ahead.get(27..27 + segments) else { return Step::Need(27 + segments) };
        let body: usize = table.iter().map(|length| usize::from(*length)).sum();
        let whole = 27 + segments + body;
        let flags = head.get(5).copied().unwrap_or_default();
        let begins = flags & 2 != 0;
        let (Some(serial), Some(position)) = (le32(head, 14), le64(head, 6)) else { return Step::Stop };
        if begins {
            let Some(body) = ahead.get(27 + segments..whole) else { return Step::Need(whole) };
            if let Some((codec, rate, skip)) = codec(body).filter(|_| self.streams.len() < MOST_STREAMS) {
                self.streams.push(Stream { serial, rate, skip, position: 0, codec, packets: 0 });
            }
        } else if let Some(stream) = self.streams.iter_mut().rev().find(|stream| stream.serial == serial) {
            if stream.codec != Codec::Other {
                let Some(body) = ahead.get(27 + segments..whole) else { return Step::Need(whole) };
                stream.take(table, body, flags & 1 != 0);
            }
            if position != u64::MAX {
                stream.position = stream.position.max(position);
            }
            self.bytes = self.bytes.saturating_add(body as u64);
        }
        Step::Pass(whole as u64)
    }

    fn end(&mut self, _: &[u8], _: u64) -> Span {
        if self.streams.is_empty() {
            return Span::Nothing;
        }
        let ticks = |stream: &Stream| {
            let samples = u128::from(stream.samples());
            u64::try_from(samples * u128::from(RATE) / u128::from(stream.rate.max(1))).unwrap_or(u64::MAX)
        };
        Span::of(self.streams.iter().map(ticks).fold(0, u64::saturating_add), RATE)
    }
}

/// Returns codec, sample rate of positions, and samples to skip, from a stream's first packet.
fn codec(packet: &[u8]) -> Option<(Codec, u64, u64)> {
    if packet.starts_with(b"OpusHead") {
        return Some((Codec::Opus, opus::RATE, u64::from(le16(packet, 10)?)));
    }
    let (codec, rate) = if packet.starts_with(b"\x01vorbis") {
        (Codec::Other, le32(packet, 12)?)
    } else if packet.starts_with(b"Speex   ") {
        (Codec::Other, le32(packet, 36)?)
    } else if packet.starts_with(b"\x7fFLAC") {
        (Codec::Flac, super::flac::stream_info(packet.get(17..)?)?.0)
    } else {
        return None;
    };
    (rate > 0).then_some((codec, u64::from(rate), 0))
}
