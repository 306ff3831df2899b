//! WAV: bytes of data divided by the bytes of a sample, as in decoders. For compressed files, the sample count of the
//! `fact` chunk, as far as the bytes allow. The byte rate of the header is used only without these.

use super::bits::{le16, le32, le64};
use super::walk::{Floor, Span, Step, Walk};

/// Sizes of data whose length was unknown when the header was written.
const OPEN_ENDED: [u32; 2] = [0, u32::MAX];

#[derive(Debug, Default)]
pub(super) struct Wav {
    coding: Coding,
    channels: u16,
    sample_rate: u32,
    /// Bytes per second, from the format chunk.
    byte_rate: u32,
    /// Bytes of one sample of all channels; 0 if the header lacks it.
    block: u32,
    /// Number of samples, from the fact chunk.
    samples: u64,
    /// Length of the data if it needs more than 32 bits.
    long: Option<u64>,
    data: u64,
    state: State,
}

/// Encoding of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Coding {
    /// Separate values: PCM, floats, A-law and µ-law.
    Plain,
    /// Four bits per sample: ADPCM.
    Nibbles,
    /// Other encoding.
    #[default]
    Other,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Chunks,
    /// The last skipped bytes are the data.
    Data,
    /// Chunks after the data; true if the last one is data.
    Behind {
        data: bool,
    },
    /// Bytes after the data that are no chunk.
    Rest,
}

impl Wav {
    fn format(&mut self, chunk: &[u8]) -> Option<()> {
        let tag = le16(chunk, 8)?;
        self.channels = le16(chunk, 10)?;
        self.sample_rate = le32(chunk, 12)?;
        self.byte_rate = le32(chunk, 16)?;
        self.coding = match tag {
            // The last tag names the actual encoding in its extension.
            1 | 3 | 6 | 7 | 0xfffe => Coding::Plain,
            2 | 0x11 => Coding::Nibbles,
            _ => Coding::Other,
        };
        // Decoders use one or the other: the smaller one gives the longer duration.
        let stated = u32::from(le16(chunk, 20)?);
        let counted = u32::from(self.channels) * u32::from(le16(chunk, 22)?.div_ceil(8));
        self.block = if stated == 0 || counted == 0 { stated.max(counted) } else { stated.min(counted) };
        Some(())
    }

    /// Parses a chunk before the data.
    fn chunk(&mut self, name: &[u8], size: u32, ahead: &[u8]) -> Step {
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
                // A padding byte makes odd data even.
                let padding = if self.data < u64::from(u32::MAX) { self.data % 2 } else { 0 };
                return Step::Pass(self.data.saturating_add(8 + padding));
            }
            _ => {}
        }
        over(size)
    }

    /// Parses the bytes after the data: chunks have no audio, anything else is more data.
    fn behind(&mut self, ahead: &[u8]) -> Step {
        if !ahead.iter().take(4).all(|byte| matches!(byte, b' '..=b'~')) {
            self.state = State::Rest;
            return Step::Pass(u64::MAX);
        }
        let Some(size) = le32(ahead, 4) else { return Step::Need(8) };
        let data = ahead.starts_with(b"data");
        if data {
            self.data = self.data.saturating_add(u64::from(size));
        }
        self.state = State::Behind { data };
        over(size)
    }

    /// Returns the duration by the bytes of the data.
    fn counted(&self, data: u64) -> Span {
        let rate = u64::from(self.sample_rate);
        match self.coding {
            Coding::Plain => Span::of(data, rate.saturating_mul(u64::from(self.block))),
            Coding::Nibbles => {
                Span::of(data.saturating_mul(2), rate.saturating_mul(u64::from(self.channels)))
            }
            Coding::Other => Span::of(data, u64::from(self.byte_rate)),
        }
    }
}

/// Skips a chunk and its padding.
fn over(size: u32) -> Step {
    let size = u64::from(size);
    Step::Pass(8 + size + size % 2)
}

impl Walk for Wav {
    fn floor(&self) -> Floor {
        Floor::of(if self.coding == Coding::Other { Floor::LOSSY } else { Floor::PLAIN })
    }

    fn step(&mut self, ahead: &[u8]) -> Step {
        match self.state {
            State::Head => {
                self.state = State::Chunks;
                return Step::Pass(12);
            }
            State::Chunks => {}
            State::Data | State::Behind { .. } => return self.behind(ahead),
            State::Rest => return Step::Stop,
        }
        let (Some(name), Some(size)) = (ahead.get(..4), le32(ahead, 4)) else { return Step::Need(8) };
        let body = match name {
            b"fmt " | b"ds64" => 24,
            b"fact" => 12,
            _ => 8,
        };
        if ahead.len() < body {
            return Step::Need(body);
        }
        self.chunk(name, size, ahead)
    }

    fn end(&mut self, _: &[u8], missing: u64) -> Span {
        let data = match self.state {
            State::Head | State::Chunks => 0,
            State::Data | State::Behind { data: true } => self.data.saturating_sub(missing),
            State::Behind { data: false } => self.data,
            State::Rest => self.data.saturating_add(u64::MAX - missing),
        };
        if data == 0 {
            return Span::Nothing;
        }
        let counted = self.counted(data);
        let stated = Span::of(self.samples, u64::from(self.sample_rate));
        // The sample count of a truncated file is that of the complete file.
        let whole = missing == 0 && self.state != State::Rest;
        match (self.coding, counted, stated) {
            (Coding::Other, _, Span::Ticks { .. }) if whole => stated,
            // Blocks begin with some bytes that are no samples: a sixteenth at most.
            (Coding::Nibbles, Span::Ticks { ticks, .. }, Span::Ticks { .. })
                if whole && self.samples >= ticks / u64::from(self.channels.max(1)) / 16 * 15 =>
            {
                stated
            }
            _ => counted,
        }
    }
}
