//! FLAC: the samples that its first block counts.

use super::bits::{be32, be64};
use super::walk::{Span, Step, Walk};

#[derive(Debug, Default)]
pub(super) struct Flac {
    info: Option<(u32, u64)>,
}

/// Mark, block header, the block's own 34 bytes.
const HEAD: usize = 4 + 4 + 34;

impl Walk for Flac {
    fn step(&mut self, ahead: &[u8]) -> Step {
        if ahead.len() < HEAD {
            return Step::Need(HEAD);
        }
        self.info = ahead.get(8..).and_then(stream_info);
        Step::Stop
    }

    fn end(&mut self, _: &[u8], _: u64) -> Span {
        match self.info {
            Some((rate, samples)) if rate > 0 => Span::of(samples, u64::from(rate)),
            _ => Span::Nothing,
        }
    }
}

/// Sample rate and number of samples (0: not known) in a STREAMINFO block.
pub(super) fn stream_info(block: &[u8]) -> Option<(u32, u64)> {
    let rate = be32(block, 10)? >> 12;
    let samples = be64(block, 10)? & 0xf_ffff_ffff;
    Some((rate, samples))
}
