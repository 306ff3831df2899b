//! Readers of big-endian and little-endian integers. They return `None` if there are too few bytes.

fn array<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset.checked_add(N)?)?.try_into().ok()
}

/// Returns the big-endian `u16` at `offset`; `None` if there are too few bytes.
pub(super) fn be16(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_be_bytes)
}

/// Returns the big-endian `u32` at `offset`; `None` if there are too few bytes.
pub(super) fn be32(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_be_bytes)
}

/// Returns the big-endian `u64` at `offset`; `None` if there are too few bytes.
pub(super) fn be64(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_be_bytes)
}

/// Returns the little-endian `u16` at `offset`; `None` if there are too few bytes.
pub(super) fn le16(bytes: &[u8], offset: usize) -> Option<u16> {
    array(bytes, offset).map(u16::from_le_bytes)
}

/// Returns the little-endian `u32` at `offset`; `None` if there are too few bytes.
pub(super) fn le32(bytes: &[u8], offset: usize) -> Option<u32> {
    array(bytes, offset).map(u32::from_le_bytes)
}

/// Returns the little-endian `u64` at `offset`; `None` if there are too few bytes.
pub(super) fn le64(bytes: &[u8], offset: usize) -> Option<u64> {
    array(bytes, offset).map(u64::from_le_bytes)
}
