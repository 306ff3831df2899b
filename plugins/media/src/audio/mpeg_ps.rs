//! MPEG program streams: the duration is that of the longest audio stream, whose frames are in packets. An end code
//! does not end the file, because decoders continue after it.

use super::bits::be16;
use super::container_parser::{
    AudioDuration, ContainerParser, ExcludedBytes, MinimumDuration, ParserDriver, ParserStep,
};
use super::mpeg::MpegParser;
use std::collections::BTreeMap;

/// Start codes: end of the stream, pack header, and packets without audio (map, padding, navigation data).
const END: u8 = 0xb9;
const PACK: u8 = 0xba;
const WITHOUT_AUDIO: [u8; 3] = [0xbc, 0xbe, 0xbf];

/// Parser of an MPEG program stream.
#[derive(Debug, Default)]
pub(super) struct ProgramStreamParser {
    /// Parser of the MPEG audio frames of each audio stream, by stream id.
    streams: BTreeMap<u8, ParserDriver>,
    excluded: ExcludedBytes,
}

impl ProgramStreamParser {
    /// Skips a packet that has no audio.
    fn exclude(&mut self, bytes: usize) -> ParserStep {
        self.excluded.begin_element(bytes as u64);
        ParserStep::Skip(bytes as u64)
    }
}

impl ContainerParser for ProgramStreamParser {
    fn minimum_duration(&self) -> MinimumDuration {
        MinimumDuration {
            excluded: self.excluded.sum(),
            max_byte_rate: MinimumDuration::MAX_LOSSY_BYTES_PER_SECOND,
        }
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        let Some(&[zero, none, one, id]) = input.first_chunk::<4>() else { return ParserStep::Need(4) };
        if (zero, none, one) != (0, 0, 1) || id < END {
            // Padding between packs, or lost sync: the parser searches the next start code.
            let rest = input.get(1..).unwrap_or_default();
            return ParserStep::Skip(memchr::memchr(0, rest).map_or(input.len(), |at| at + 1) as u64);
        }
        if id == END {
            return self.exclude(4);
        }
        if id == PACK {
            let Some(head) = input.get(..14) else { return ParserStep::Need(14) };
            let second = head.get(4).is_some_and(|byte| byte >> 6 == 1);
            let stuffing = head.get(13).map_or(0, |byte| usize::from(byte & 7));
            return self.exclude(if second { 14 + stuffing } else { 12 });
        }
        let private = id == 0xbd;
        let is_audio = (0xc0..=0xdf).contains(&id);
        let is_video = (0xe0..=0xef).contains(&id);
        if !(private || is_audio || is_video || WITHOUT_AUDIO.contains(&id)) {
            // System headers and unknown packets are not skipped by their length, because decoders ignore it.
            self.excluded.commit_pending_bytes();
            return ParserStep::Skip(4);
        }
        let Some(length) = be16(input, 4) else { return ParserStep::Need(6) };
        let whole = 6 + usize::from(length);
        if private {
            // Private data, which may be audio of another codec, counts as audio.
            self.excluded.commit_pending_bytes();
            return ParserStep::Skip(whole as u64);
        }
        if !is_audio {
            // A video packet may state the length 0; then only its head is skipped, and the bytes after it are
            // searched for start codes.
            return self.exclude(whole);
        }
        let Some(packet) = input.get(6..whole) else { return ParserStep::Need(whole) };
        let frames = || ParserDriver::new(Box::new(MpegParser::default()));
        self.streams.entry(id).or_insert_with(frames).push(payload(packet).unwrap_or_default());
        self.excluded.commit_pending_bytes();
        ParserStep::Skip(whole as u64)
    }

    fn end(&mut self, input: &[u8], missing: u64) -> AudioDuration {
        self.excluded.end_file(missing);
        // The last packet of the file is incomplete; its available bytes are parsed.
        if let Some(&[0, 0, 1, id]) = input.first_chunk::<4>()
            && let (Some(stream), Some(packet)) = (self.streams.get_mut(&id), input.get(6..))
        {
            stream.push(payload(packet).unwrap_or_default());
        }
        let lengths = std::mem::take(&mut self.streams).into_values().map(|frames| frames.end().duration);
        lengths.fold(AudioDuration::NoAudio, AudioDuration::longer)
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
