//! Comparison of blocks of 16 or 64 bytes.

use wide::{bytemuck, i8x16, u8x16};

/// Block of 64 bytes in four vectors.
pub(crate) type BlockVectors = [u8x16; 4];

/// Quotation mark in each lane.
pub(crate) const QUOTE_VECTOR: u8x16 = u8x16::new([b'"'; 16]);
/// Backslash in each lane.
pub(crate) const BACKSLASH_VECTOR: u8x16 = u8x16::new([b'\\'; 16]);
/// Last control character, 0x1f, in each lane.
pub(crate) const LAST_CONTROL_VECTOR: u8x16 = u8x16::new([0x1f; 16]);

/// Returns the 64 bytes of a block as four vectors of 16 bytes.
#[inline]
pub(crate) fn load_vectors(block: &[u8; 64]) -> BlockVectors {
    match block.as_chunks::<16>() {
        ([a, b, c, d], []) => [u8x16::new(*a), u8x16::new(*b), u8x16::new(*c), u8x16::new(*d)],
        // Unreachable: a block of 64 bytes always splits into four times 16 bytes.
        _ => [QUOTE_VECTOR; 4],
    }
}

/// Returns true if a block has a byte that must be escaped in a string: a quote, a backslash or a control character.
#[inline]
pub(crate) fn has_must_escape_bytes(quarters: BlockVectors) -> bool {
    // The four vectors are written out, because a closure over an array is not always inlined.
    let [a, b, c, d] = quarters;
    (must_escape_lanes(a) | must_escape_lanes(b) | must_escape_lanes(c) | must_escape_lanes(d)).any()
}

/// Returns the vector mask of the quotes, backslashes and control characters.
#[inline]
pub(crate) fn must_escape_lanes(bytes: u8x16) -> u8x16 {
    bytes.simd_eq(QUOTE_VECTOR)
        | bytes.simd_eq(BACKSLASH_VECTOR)
        | bytes.min(LAST_CONTROL_VECTOR).simd_eq(bytes)
}

/// Returns a mask of 64 bits, one for each byte of a block: set where `is` returns a true lane.
#[inline]
pub(crate) fn lane_mask(quarters: BlockVectors, is: impl Fn(u8x16) -> u8x16) -> u64 {
    let [a, b, c, d] = quarters;
    let bits = |bytes| u64::from(is(bytes).to_bitmask());
    bits(a) | bits(b) << 16 | bits(c) << 32 | bits(d) << 48
}

/// Returns true if all bytes of a block are letters, digits, `+` or `/`.
#[inline]
pub(crate) fn is_base64(block: &[u8; 64]) -> bool {
    let [a, b, c, d] = load_vectors(block);
    (base64_bytes(a) & base64_bytes(b) & base64_bytes(c) & base64_bytes(d)).all()
}

/// Returns the vector mask of the letters, digits, `+` and `/`. Each range of characters is shifted so that it begins
/// at -128, the least signed value. One comparison then finds the whole range.
#[inline]
fn base64_bytes(bytes: u8x16) -> i8x16 {
    let each = |byte: u8| i8x16::new([byte.cast_signed(); 16]);
    // The vector is cast as a whole. A `map` over its bytes would cost a function call for each vector if the
    // compiler does not inline it.
    let bytes: i8x16 = bytemuck::cast(bytes);
    let letters = ((bytes | each(0x20)) + each(0x80 - b'a')).simd_lt(each(0x80 + 26));
    // The range of the digits begins at `/`, the character before `0`, so that one comparison finds both.
    let digits = (bytes + each(0x80 - b'/')).simd_lt(each(0x80 + 11));
    letters | digits | bytes.simd_eq(each(b'+'))
}

#[cfg(test)]
mod tests {
    use super::is_base64;

    #[test]
    fn each_byte_at_each_place_of_a_block_is_judged() {
        for at in 0..64 {
            for byte in 0..=255_u8 {
                let mut block = [b'A'; 64];
                block.iter_mut().skip(at).take(1).for_each(|slot| *slot = byte);
                let expected = byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
                assert_eq!(is_base64(&block), expected, "{byte} at {at}");
            }
        }
    }
}
