//! WAV: the data chunk's bytes by the bytes of a second, or the samples that a
//! compressed file's `fact` chunk counts.

use super::bits::{le16, le32, le64};
use super::walk::{Span, Step, Walk};

/// Data whose length was not known when the head was written.
const OPEN_ENDED: [u32; 2] = [0, u32::MAX];

#[derive(Debug, Default)]
pub(super) struct Wav {
    /// Bytes of a second, as the format chunk says.
    byte_rate: u32,
    sample_rate: u32,
    /// Samples are stored one by one.
    plain: bool,
    /// Samples, as the fact chunk says.
    samples: u64,
    /// The data's length where it takes more than 32 bits.
    long: Option<u64>,
    data: u64,
    state: State,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Chunks,
    /// What was passed over last is the data.
    Data,
}

impl Wav {
    fn format(&mut self, chunk: &[u8]) -> Option<()> {
        let tag = le16(chunk, 8)?;
        self.sample_rate = le32(chunk, 12)?;
        self.byte_rate = le32(chunk, 16)?;
        // PCM, floats, and what says in its extension which of them.
        self.plain = matches!(tag, 1 | 3 | 0xfffe);
        Some(())
    }
}

impl Walk for Wav {
    fn step(&mut self, ahead: &[u8]) -> Step {
        if self.state == State::Head {
            self.state = State::Chunks;
            return Step::Pass(12);
        }
        if self.state == State::Data {
            // The data is what counts; tags behind it do not.
            return Step::Stop;
        }
        let (Some(name), Some(size)) = (ahead.get(..4), le32(ahead, 4)) else { return Step::Need(8) };
        let body = match name {
            b"fmt " => 24,
            b"ds64" => 24,
            b"fact" => 12,
            _ => 8,
        };
        if ahead.len() < body {
            return Step::Need(body);
        }
        match name {
            b"fmt " => drop(self.format(ahead)),
            b"ds64" => self.long = le64(ahead, 16),
            b"fact" => self.samples = le32(ahead, 8).map_or(0, u64::from),
            b"data" => {
                self.state = State::Data;
                self.data = match self.long {
                    Some(long) if long > 0 => long,
                    _ if OPEN_ENDED.contains(&size) => u64::MAX - 8,
                    _ => u64::from(size),
                };
                return Step::Pass(self.data.saturating_add(8));
            }
            _ => {}
        }
        let size = u64::from(size);
        Step::Pass(8 + size + size % 2)
    }

    fn end(&mut self, _: &[u8], missing: u64) -> Span {
        let data = if self.state == State::Data { self.data.saturating_sub(missing) } else { 0 };
        if data == 0 || self.byte_rate == 0 {
            return Span::Nothing;
        }
        if !self.plain && missing == 0 && self.samples > 0 && self.sample_rate > 0 {
            return Span::of(self.samples, u64::from(self.sample_rate));
        }
        Span::of(data, u64::from(self.byte_rate))
    }
}
