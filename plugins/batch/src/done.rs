//! Bitmap of the lines of a batch that have their result, so that a restart need not scan the output file.

/// Bitmap with a bit for each line; 50,000 lines take 6,250 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    bits: Vec<u8>,
}

impl Done {
    /// Creates a bitmap for this many lines, with no bit set.
    #[must_use]
    pub fn none(lines: u32) -> Self {
        Self { bits: vec![0; lines.div_ceil(8) as usize] }
    }

    /// Creates a bitmap from its stored bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self { bits: bytes.to_vec() }
    }

    /// Returns the bytes to store.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bits
    }

    /// Returns true if the line (from 0) has its result.
    #[must_use]
    pub fn has(&self, line: u32) -> bool {
        self.bits.get(line as usize / 8).is_some_and(|byte| byte & (1 << (line % 8)) != 0)
    }

    /// Marks a line as finished; returns false if it was finished before or is out of range.
    pub fn add(&mut self, line: u32) -> bool {
        let Some(byte) = self.bits.get_mut(line as usize / 8) else { return false };
        let bit = 1 << (line % 8);
        let fresh = *byte & bit == 0;
        *byte |= bit;
        fresh
    }

    /// Returns the number of finished lines.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.bits.iter().map(|byte| byte.count_ones()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_done_once() {
        let mut done = Done::none(50_000);
        assert_eq!(done.bytes().len(), 6_250);
        assert!(done.add(0) && done.add(7) && done.add(8) && done.add(49_999));
        assert!(!done.add(7), "it had its result");
        assert!(!done.add(50_000), "there is no such line");
        assert!(done.has(8) && !done.has(9) && !done.has(70_000));
        assert_eq!(done.count(), 4);
        assert_eq!(Done::of(done.bytes()), done);
    }
}
