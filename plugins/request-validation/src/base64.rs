//! Validation of base64 without decoding: alphabet, padding and length, at memory speed.

/// Validator of base64 that arrives in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Base64Validator {
    characters: usize,
    padding: usize,
    broken: bool,
}

impl Base64Validator {
    /// Validates the next piece.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        let padding = piece.iter().rev().take_while(|byte| **byte == b'=').count();
        let letters = piece.get(..piece.len() - padding).unwrap_or_default();
        // After the first padding character, only padding may follow.
        self.broken |= self.padding > 0 && !letters.is_empty();
        self.broken |= !is_alphabet(letters);
        self.characters += piece.len();
        self.padding += padding;
    }

    /// Counts the next `count` characters, which are not padding. The scan of the body has already checked that they
    /// are in the alphabet.
    pub(crate) fn count_prevalidated_characters(&mut self, count: usize) {
        self.broken |= self.padding > 0 && count > 0;
        self.characters += count;
    }

    /// Returns true if the data so far is base64 of at least one byte, in complete groups of four characters.
    pub(crate) const fn is_valid(&self) -> bool {
        !self.broken && self.padding <= 2 && self.characters > 0 && self.characters.is_multiple_of(4)
    }
}

/// Returns true if there are only letters, digits, `+` and `/`.
fn is_alphabet(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<64>();
    // The loop has no branches, so the compiler vectorizes it and checks sixteen bytes with one instruction.
    let foreign = |bytes: &[u8]| bytes.iter().fold(false, |foreign, byte| foreign | !is_base64_byte(*byte));
    !blocks.iter().any(|block| foreign(block)) && !foreign(rest)
}

#[inline]
fn is_base64_byte(byte: u8) -> bool {
    let letter = (byte | 0x20).wrapping_sub(b'a') < 26;
    let digit = byte.wrapping_sub(b'0') < 10;
    // The characters `+` (0x2b) and `/` (0x2f) differ in one bit, so one comparison finds both.
    letter | digit | ((byte & !0x04) == b'+')
}

#[cfg(test)]
mod tests;
