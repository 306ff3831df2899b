//! Ogg: the last position that each stream of sound tells. Chained streams add up.

use super::bits::{le16, le32, le64};
use super::walk::{Span, Step, Walk};

/// Ticks of a second into which every stream is converted.
const RATE: u64 = 48_000;
/// Most streams of one file that count.
const MOST_STREAMS: usize = 64;

#[derive(Debug)]
struct Stream {
    serial: u32,
    rate: u64,
    /// Samples in front that do not sound.
    skip: u64,
    position: u64,
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    streams: Vec<Stream>,
}

impl Walk for Pages {
    fn step(&mut self, ahead: &[u8]) -> Step {
        let Some(head) = ahead.get(..27) else { return Step::Need(27) };
        if !head.starts_with(b"OggS") {
            return Step::Stop;
        }
        let segments = head.get(26).map_or(0, |count| usize::from(*count));
        let Some(table) = ahead.get(27..27 + segments) else { return Step::Need(27 + segments) };
        let body: usize = table.iter().map(|length| usize::from(*length)).sum();
        let whole = 27 + segments + body;
        let begins = head.get(5).is_some_and(|flags| flags & 2 != 0);
        let (Some(serial), Some(position)) = (le32(head, 14), le64(head, 6)) else { return Step::Stop };
        if begins {
            let Some(body) = ahead.get(27 + segments..whole) else { return Step::Need(whole) };
            if let Some((rate, skip)) = codec(body).filter(|_| self.streams.len() < MOST_STREAMS) {
                self.streams.push(Stream { serial, rate, skip, position: 0 });
            }
        } else if position != u64::MAX
            && let Some(stream) = self.streams.iter_mut().rev().find(|stream| stream.serial == serial)
        {
            stream.position = stream.position.max(position);
        }
        Step::Pass(whole as u64)
    }

    fn end(&mut self, _: &[u8], _: u64) -> Span {
        if self.streams.is_empty() {
            return Span::Nothing;
        }
        let ticks = |stream: &Stream| {
            let samples = u128::from(stream.position.saturating_sub(stream.skip));
            u64::try_from(samples * u128::from(RATE) / u128::from(stream.rate.max(1))).unwrap_or(u64::MAX)
        };
        Span::of(self.streams.iter().map(ticks).fold(0, u64::saturating_add), RATE)
    }
}

/// Sample rate of positions, and samples to skip, by a stream's first packet.
fn codec(packet: &[u8]) -> Option<(u64, u64)> {
    if packet.starts_with(b"OpusHead") {
        return Some((48_000, u64::from(le16(packet, 10)?)));
    }
    let rate = if packet.starts_with(b"\x01vorbis") {
        le32(packet, 12)?
    } else if packet.starts_with(b"Speex   ") {
        le32(packet, 36)?
    } else if packet.starts_with(b"\x7fFLAC") {
        super::flac::stream_info(packet.get(17..)?)?.0
    } else {
        return None;
    };
    (rate > 0).then_some((u64::from(rate), 0))
}
