//! Names of functions that providers accept, and the hash that makes them unique.

/// Maximum length of a function name at providers, in bytes.
pub const MAX_FUNCTION_NAME_BYTES: usize = 64;
/// Length in bytes of the hash at the end of a replacement, with the `_` before it.
const HASH_BYTES: usize = 17;

/// Offset basis of FNV-1a, the initial value for [`fnv1a_update`].
pub const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// Extends a 64-bit FNV-1a hash by more bytes. The hash is the same in all builds and on all machines, as retries and
/// prefix caches require. It need not resist an attacker.
#[must_use]
pub fn fnv1a_update(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Returns true for a byte that providers accept in a function name.
#[must_use]
pub const fn is_function_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Returns the replacement for a function name that providers do not accept: the end of the name, with `_` for each
/// character that is not accepted, and a hash of the whole name. The end is used because it has the name of the tool.
/// Equal names get equal replacements.
#[must_use]
pub fn replace_function_name(name: &str) -> String {
    let accepted = |character: char| match u8::try_from(character) {
        Ok(byte) if is_function_name_byte(byte) => character,
        _ => '_',
    };
    let excess = name.chars().count().saturating_sub(MAX_FUNCTION_NAME_BYTES - HASH_BYTES);
    let end: String = name.chars().skip(excess).map(accepted).collect();
    let hash = fnv1a_update(FNV_OFFSET_BASIS, name.as_bytes());
    format!("{}_{hash:016x}", end.trim_start_matches(['-', '_']))
}
