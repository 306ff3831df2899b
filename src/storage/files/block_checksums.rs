//! File format of a complete file, by which damaged bytes are detected before they are served: `contents | a CRC32C
//! per 64 KiB block | footer`. The record of the file has the checksum of the table of these CRCs. If the file is
//! replaced by another one, this checksum does not match.

use penstock_object_storage::RandomAccessObject;
use std::io::{Error, ErrorKind, Result};

/// Size of a block with its own checksum, in bytes.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Start of the footer. It is followed by the length of the contents (8 bytes), the block size (4) and the checksum of
/// the table (4), all little-endian.
const MAGIC: &[u8; 8] = b"penstkF1";
/// Size of the footer, in bytes.
const FOOTER_SIZE: usize = 24;

/// Checksums of the blocks of a file, computed while the file is written, or from a growing file with
/// [`BlockChecksums::compute`].
#[derive(Debug, Default)]
pub struct BlockChecksums {
    done: Vec<u32>,
    /// Checksum of the incomplete block.
    partial: u32,
    length: u64,
}

impl BlockChecksums {
    /// Adds the next bytes of the file to the checksums.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let filled = usize::try_from(self.length % BLOCK_BYTES as u64).unwrap_or(0);
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK_BYTES - filled));
            self.partial = crc32c::crc32c_append(self.partial, now);
            self.length += now.len() as u64;
            if filled + now.len() == BLOCK_BYTES {
                self.done.push(std::mem::take(&mut self.partial));
            }
            bytes = later;
        }
    }

    fn checksums(&self) -> impl Iterator<Item = u32> {
        let open = (!self.length.is_multiple_of(BLOCK_BYTES as u64)).then_some(self.partial);
        self.done.iter().copied().chain(open)
    }

    /// Returns the checksum of the table in its current state.
    #[must_use]
    pub fn table_checksum(&self) -> u32 {
        self.checksums().fold(0, |crc, block| crc32c::crc32c_append(crc, &block.to_le_bytes()))
    }

    /// Computes the checksums of a growing file, which has no table yet, from its first `bytes` bytes. Also passes
    /// these bytes to `on_piece`, in pieces and in order.
    ///
    /// # Errors
    /// Returns `InvalidData` if the file is shorter, or if `table_checksum` is given and differs from the CRC32C over
    /// the block checksums; and any I/O error.
    pub fn compute(
        file: &dyn RandomAccessObject,
        bytes: u64,
        table_checksum: Option<u32>,
        mut on_piece: impl FnMut(&[u8]),
    ) -> Result<Self> {
        let mut checksums = Self::default();
        let mut piece = vec![0; 4 * BLOCK_BYTES];
        while checksums.length < bytes {
            let left = usize::try_from(bytes - checksums.length).unwrap_or(usize::MAX);
            let size = left.min(piece.len());
            let piece = piece.get_mut(..size).ok_or_else(damaged_error)?;
            file.read_exact_at(piece, checksums.length).map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => damaged_error(),
                _ => error,
            })?;
            checksums.push(piece);
            on_piece(piece);
        }
        if table_checksum.is_none_or(|expected| expected == checksums.table_checksum()) {
            Ok(checksums)
        } else {
            Err(damaged_error())
        }
    }

    /// Returns the checksums of all blocks, the incomplete one included.
    #[must_use]
    pub fn into_table(self) -> Vec<u32> {
        self.checksums().collect()
    }

    /// Returns the table and the footer, which have to be appended to the contents, and the checksum of the table.
    #[must_use]
    pub fn into_table_and_footer(self) -> (Vec<u8>, u32) {
        let mut tail: Vec<u8> = self.checksums().flat_map(u32::to_le_bytes).collect();
        let table_checksum = crc32c::crc32c(&tail);
        tail.extend_from_slice(MAGIC);
        tail.extend_from_slice(&self.length.to_le_bytes());
        tail.extend_from_slice(&u32::try_from(BLOCK_BYTES).unwrap_or(u32::MAX).to_le_bytes());
        tail.extend_from_slice(&table_checksum.to_le_bytes());
        (tail, table_checksum)
    }
}

/// Reads the table of checksums of a file with contents of `bytes` bytes; `table_checksum` is the checksum of the
/// table.
///
/// # Errors
/// Returns `InvalidData` if the length of the file, the checksum of the table or the start of the footer differs; and
/// any I/O error.
pub fn read_table(file: &dyn RandomAccessObject, bytes: u64, table_checksum: u32) -> Result<Vec<u32>> {
    let blocks = usize::try_from(bytes.div_ceil(BLOCK_BYTES as u64)).map_err(|_| damaged_error())?;
    let mut tail = vec![0; blocks * 4 + FOOTER_SIZE];
    if file.length()? != bytes + tail.len() as u64 {
        return Err(damaged_error());
    }
    file.read_exact_at(&mut tail, bytes)?;
    let (table, footer) = tail.split_at(blocks * 4);
    if crc32c::crc32c(table) != table_checksum || !footer.starts_with(MAGIC) {
        return Err(damaged_error());
    }
    let (checksums, _) = table.as_chunks::<4>();
    Ok(checksums.iter().map(|checksum| u32::from_le_bytes(*checksum)).collect())
}

/// Returns the error for stored bytes that are damaged: they differ from those that were written.
#[must_use]
pub fn damaged_error() -> Error {
    Error::from(ErrorKind::InvalidData)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    fn sealed(contents: &[u8], cut: usize) -> (File, u32) {
        let mut sums = BlockChecksums::default();
        contents.chunks(cut).for_each(|piece| sums.push(piece));
        let (tail, sum) = sums.into_table_and_footer();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).and_then(|()| file.write_all(&tail)).unwrap();
        (file, sum)
    }

    #[test]
    fn a_table_is_the_same_however_the_bytes_were_cut() {
        for length in [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 3 * BLOCK_BYTES] {
            let contents: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            let (file, sum) = sealed(&contents, BLOCK_BYTES * 7);
            assert_eq!(sealed(&contents, 1_000).1, sum);
            let expected: Vec<u32> = contents.chunks(BLOCK_BYTES).map(crc32c::crc32c).collect();
            assert_eq!(read_table(&file, length as u64, sum).unwrap(), expected);
        }
    }

    #[test]
    fn another_file_or_another_length_is_found_out() {
        let (file, sum) = sealed(b"contents", 3);
        assert!(read_table(&file, 8, sum).is_ok());
        assert!(read_table(&file, 7, sum).is_err() && read_table(&file, 8, sum ^ 1).is_err());
        file.write_all_at(b"x", 12).unwrap();
        assert!(read_table(&file, 8, sum).is_err(), "the footer");
        let (file, sum) = sealed(b"contents", 3);
        file.set_len(20).unwrap();
        assert!(read_table(&file, 8, sum).is_err());
    }
}
