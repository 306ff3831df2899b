//! Bitmap of the lines of a batch that have their result, so that a restart need not scan the output file.

/// Bitmap of the batch lines that have a result, with a bit for each line; 50,000 lines take 6,250 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompletionBitmap {
    bits: Vec<u8>,
}

impl CompletionBitmap {
    /// Creates a bitmap for this many lines, with no bit set.
    #[must_use]
    pub fn with_line_count(lines: u32) -> Self {
        Self { bits: vec![0; lines.div_ceil(8) as usize] }
    }

    /// Creates a bitmap from its stored bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bits: bytes.to_vec() }
    }

    /// Returns the bitmap as bytes, for the store.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bits
    }

    /// Returns true if the line (from 0) has its result.
    #[must_use]
    pub fn is_line_finished(&self, line: u32) -> bool {
        self.bits.get(line as usize / 8).is_some_and(|byte| byte & (1 << (line % 8)) != 0)
    }

    /// Marks a line as finished; returns false if it was finished before or is out of range.
    pub fn mark_finished(&mut self, line: u32) -> bool {
        let Some(byte) = self.bits.get_mut(line as usize / 8) else { return false };
        let bit = 1 << (line % 8);
        let fresh = *byte & bit == 0;
        *byte |= bit;
        fresh
    }

    /// Returns the number of finished lines.
    #[must_use]
    pub fn finished_count(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_done_once() {
        let mut done = CompletionBitmap::with_line_count(50_000);
        assert_eq!(done.bytes().len(), 6_250);
        assert!(
            done.mark_finished(0)
                && done.mark_finished(7)
                && done.mark_finished(8)
                && done.mark_finished(49_999)
        );
        assert!(!done.mark_finished(7), "it had its result");
        assert!(!done.mark_finished(50_000), "there is no such line");
        assert!(done.is_line_finished(8) && !done.is_line_finished(9) && !done.is_line_finished(70_000));
        assert_eq!(done.finished_count(), 4);
        assert_eq!(CompletionBitmap::from_bytes(done.bytes()), done);
    }
}
