//! Compression of a block in the store. The lines of a block resemble each other, so it is compressed with LZ4 if
//! this makes it shorter. Otherwise the row is the plain text.
//!
//! ```text
//! row of a block = its text, which begins with `{`
//!                | 1, length of the text (4 bytes, little-endian), LZ4 block of the text
//! ```

use super::MAX_BLOCK_BYTES;
use crate::StoreError;

/// First byte of a compressed row; no line begins with it.
const COMPRESSED: u8 = 1;
/// Bytes before the LZ4 block: the marker and the length.
const HEADER_BYTES: usize = 5;

/// Encodes the text of a block as a row; a text over the size limit stays uncompressed, and the store refuses it.
pub(super) fn compress(text: &[u8]) -> Vec<u8> {
    let packed = if text.len() <= MAX_BLOCK_BYTES { try_compress(text) } else { None };
    packed.filter(|row| row.len() < text.len()).unwrap_or_else(|| text.to_vec())
}

fn try_compress(text: &[u8]) -> Option<Vec<u8>> {
    let mut row = vec![0; HEADER_BYTES + lz4_flex::block::get_maximum_output_size(text.len())];
    let (head, block) = row.split_first_chunk_mut::<HEADER_BYTES>()?;
    let [mark, length @ ..] = head;
    (*mark, *length) = (COMPRESSED, u32::try_from(text.len()).ok()?.to_le_bytes());
    let written = lz4_flex::block::compress_into(text, block).ok()?;
    row.truncate(HEADER_BYTES + written);
    Some(row)
}

/// Decodes the text of a block from its row.
///
/// # Errors
/// Returns `Corrupt` if the row cannot be decompressed.
pub fn decompress(row: Vec<u8>) -> Result<Vec<u8>, StoreError> {
    let Some((head, block)) =
        row.split_first_chunk::<HEADER_BYTES>().filter(|(head, _)| head[0] == COMPRESSED)
    else {
        return Ok(row);
    };
    let broken = || StoreError::corrupt("a compressed block of the ledger cannot be read");
    let [_, length @ ..] = *head;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| broken())?;
    if length > MAX_BLOCK_BYTES {
        return Err(broken());
    }
    let mut text = vec![0; length];
    match lz4_flex::block::decompress_into(block, &mut text) {
        Ok(written) if written == length => Ok(text),
        _ => Err(broken()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use std::fmt::Write;

    /// Returns lines similar to the lines of the ledger.
    fn lines(count: usize) -> Vec<u8> {
        let mut text = String::new();
        for n in 0..count {
            let name = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            writeln!(
                text,
                "{{\"seq\":{n},\"act\":\"reserve\",\"account\":\"acme\",\"request\":\"{name:x}\"}}"
            )
            .unwrap();
        }
        text.into_bytes()
    }

    #[test]
    fn compressed_rows_are_read_unchanged() {
        for count in 0..200 {
            let text = lines(count);
            assert_eq!(decompress(compress(&text)).unwrap(), text, "{count} lines");
        }
        let full = lines(2_000)[..MAX_BLOCK_BYTES].to_vec();
        assert_eq!(decompress(compress(&full)).unwrap(), full);
    }

    #[test]
    fn compression_halves_many_lines_and_never_grows_incompressible_ones() {
        let text = lines(60);
        assert!(compress(&text).len() * 2 < text.len(), "{} of {}", compress(&text).len(), text.len());
        for plain in [&b""[..], b"{}\n", b"{\"seq\":7}\n"] {
            assert_eq!(compress(plain), plain);
        }
    }

    #[test]
    fn a_row_that_was_never_packed_is_its_text() {
        let text = lines(40);
        assert_eq!(decompress(text.clone()).unwrap(), text);
    }

    #[test]
    fn a_broken_row_is_an_error_and_no_panic() {
        let good = compress(&lines(40));
        for cut in HEADER_BYTES..good.len() {
            assert!(decompress(good[..cut].to_vec()).is_err(), "{cut}");
        }
        for at in HEADER_BYTES..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // A damaged row may still decode to text of the same length. This damage is detected by the checksum
                // of the row.
                if let Ok(text) = decompress(bad) {
                    assert_eq!(text.len(), lines(40).len());
                }
            }
        }
        let mut long = good;
        long[1..HEADER_BYTES].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(decompress(long).is_err());
    }
}
