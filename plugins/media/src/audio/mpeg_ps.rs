//! MPEG program streams: the frames of the first audio stream in its packets.

use super::bits::be16;
use super::container_parser::{AudioDuration, ContainerParser, MinimumDuration, ParserDriver, ParserStep};
use super::mpeg::MpegParser;

/// Start codes of a pack header and of the end of the stream.
const PACK: u8 = 0xba;
const END: u8 = 0xb9;

#[derive(Debug)]
pub(super) struct ProgramStream {
    frames: ParserDriver,
    stream: Option<u8>,
}

impl Default for ProgramStream {
    fn default() -> Self {
        Self { frames: ParserDriver::new(Box::new(MpegParser::default())), stream: None }
    }
}

impl ContainerParser for ProgramStream {
    /// Returns no minimum by bytes: each frame is counted, and most bytes may be video.
    fn minimum(&self) -> MinimumDuration {
        MinimumDuration { bytes: Some(0), rate: MinimumDuration::LOSSY, millis: 0 }
    }

    fn step(&mut self, ahead: &[u8]) -> ParserStep {
        let Some(&[zero, none, one, id]) = ahead.first_chunk::<4>() else { return ParserStep::Need(4) };
        if (zero, none, one) != (0, 0, 1) {
            // Padding between packs; a lost start code is searched.
            let noise = ahead.iter().skip(1).position(|byte| *byte == 0).map_or(ahead.len(), |at| at + 1);
            return ParserStep::Skip(noise as u64);
        }
        if id == END {
            return ParserStep::Stop;
        }
        if id == PACK {
            let Some(head) = ahead.get(..14) else { return ParserStep::Need(14) };
            let second = head.get(4).is_some_and(|byte| byte >> 6 == 1);
            let stuffing = head.get(13).map_or(0, |byte| u64::from(byte & 7));
            return ParserStep::Skip(if second { 14 + stuffing } else { 12 });
        }
        let Some(length) = be16(ahead, 4) else { return ParserStep::Need(6) };
        let whole = 6 + usize::from(length);
        if !(0xc0..=0xdf).contains(&id) || self.stream.is_some_and(|stream| stream != id) {
            return ParserStep::Skip(whole as u64);
        }
        let Some(packet) = ahead.get(6..whole) else { return ParserStep::Need(whole) };
        self.stream = Some(id);
        self.frames.push(payload(packet).unwrap_or_default());
        ParserStep::Skip(whole as u64)
    }

    fn end(&mut self, _: &[u8], _: u64) -> AudioDuration {
        std::mem::replace(&mut self.frames, ParserDriver::new(Box::new(MpegParser::default()))).end().0
    }
}

/// Returns the payload of a packet, after timestamps and stuffing.
fn payload(packet: &[u8]) -> Option<&[u8]> {
    if packet.first()? >> 6 == 2 {
        let header = usize::from(*packet.get(2)?);
        return packet.get(3 + header..);
    }
    let mut at = packet.iter().take_while(|byte| **byte == 0xff).count();
    if packet.get(at)? >> 6 == 1 {
        at += 2;
    }
    at += match packet.get(at)? >> 4 {
        2 => 5,
        3 => 10,
        _ => 1,
    };
    packet.get(at..)
}
