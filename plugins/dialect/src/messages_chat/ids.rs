//! Names and ids that a chat provider takes, and the way back.
//!
//! Tool call ids go through as they are: models see their own format again.
//! Only where a provider insists on nine letters or digits are others hashed,
//! the same id always to the same nine, so that call and result still meet.
//! Tool names over 64 characters are cut and marked with a hash.

use crate::json_cursor;
use penstock_wire::json;
use std::borrow::Cow;

/// The longest tool name that chat providers take.
pub(crate) const NAME_LIMIT: usize = 64;

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Where [`fnv1a_more`] begins.
pub(crate) const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, 64 bits, of more bytes: stable across builds and machines, which
/// retries and prefix caches need; nothing here needs to resist an adversary.
pub(crate) fn fnv1a_more(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn fnv1a(bytes: &[u8]) -> u64 {
    fnv1a_more(FNV_START, bytes)
}

/// The id (inside of a JSON string) as providers of the messages dialect take it: letters, digits, `_` and `-`. The
/// same id always becomes the same, so that call and result still meet.
pub(crate) fn plain(id: &[u8]) -> Cow<'_, [u8]> {
    if is_plain(id) {
        return Cow::Borrowed(id);
    }
    let said = decoded(id);
    // Two ids that differ stay two.
    let (one, other) = (fnv1a(&said), fnv1a_more(fnv1a(b"id"), &said));
    Cow::Owned(format!("call_{one:016x}{other:016x}").into_bytes())
}

/// Whether an id needs no other spelling there.
pub(crate) fn is_plain(id: &[u8]) -> bool {
    !id.is_empty() && id.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// What an id says, however it is escaped.
fn decoded(id: &[u8]) -> Cow<'_, [u8]> {
    match json::unescape_lossy(id) {
        Some(Cow::Owned(said)) => Cow::Owned(said.into_bytes()),
        _ => Cow::Borrowed(id),
    }
}

/// The id (inside of a JSON string) as a provider of nine-character ids takes it.
pub(crate) fn short(id: &[u8]) -> Cow<'_, [u8]> {
    if id.len() == 9 && id.iter().all(u8::is_ascii_alphanumeric) {
        return Cow::Borrowed(id);
    }
    let mut left = fnv1a(&decoded(id));
    let digits = (0..9).map(|_| {
        let at = usize::try_from(left % 62).unwrap_or_default();
        left /= 62;
        LETTERS.get(at).copied().unwrap_or(b'0')
    });
    Cow::Owned(digits.collect())
}

/// The tool name (inside of a JSON string) as chat providers take it:
/// 55 characters, `_` and eight hex digits of its hash where it is too long.
pub(crate) fn name(name: &[u8]) -> Cow<'_, [u8]> {
    if name.len() <= NAME_LIMIT {
        return Cow::Borrowed(name);
    }
    let mut cut: Vec<u8> = name
        .iter()
        .take(NAME_LIMIT - 9)
        .map(|byte| if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') { *byte } else { b'_' })
        .collect();
    cut.extend_from_slice(format!("_{:08x}", fnv1a(name) >> 32).as_bytes());
    Cow::Owned(cut)
}

/// Cut tool names and what they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names(Vec<(String, String)>);

impl Names {
    /// From the names that tools declare, each the inside of a JSON string.
    pub(crate) fn of<'a>(declared: impl Iterator<Item = &'a [u8]>) -> Self {
        let long = declared.filter(|declared| declared.len() > NAME_LIMIT);
        Self(
            long.filter_map(|long| {
                let quoted = [b"\"", long, b"\""].concat();
                let cut = String::from_utf8(name(long).into_owned()).ok()?;
                Some((cut, json_cursor::parse_string(&quoted)?.into_owned()))
            })
            .collect(),
        )
    }

    /// The name that the client declared.
    pub(crate) fn restore<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.iter().find(|(cut, _)| cut == name).map_or(name, |(_, full)| full)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]

    use super::*;

    #[test]
    fn an_id_of_nine_letters_stays_and_others_hash_alike_each_time() {
        assert_eq!(short(b"aB3456789"), &b"aB3456789"[..]);
        let hashed = short(b"toolu_01AbCdEf").into_owned();
        assert!(hashed.len() == 9 && hashed.iter().all(u8::is_ascii_alphanumeric));
        assert_eq!(short(b"toolu_01AbCdEf"), hashed);
        assert_ne!(short(b"toolu_01AbCdEg"), hashed);
    }

    #[test]
    fn an_id_of_other_characters_becomes_one_that_is_the_same_each_time() {
        for id in ["toolu_01AbC-d", "call_1"] {
            assert_eq!(plain(id.as_bytes()), id.as_bytes());
        }
        let odd: [&[u8]; 4] =
            [b"functions.get_weather:0", b"functions.get_weather:1", "caf\u{e9}".as_bytes(), b"a b"];
        let mapped = odd.map(|id| plain(id).into_owned());
        assert!(mapped.iter().all(|id| is_plain(id) && id.len() <= 64));
        assert!(mapped.iter().enumerate().all(|(at, id)| !mapped[..at].contains(id)));
        assert_eq!(plain(br"functions.g\u0065t_weather:0"), mapped[0]);
        assert_eq!(short(br"functions.g\u0065t_weather:0"), short(odd[0]));
        assert_eq!(plain(b""), plain(b""));
    }

    #[test]
    fn a_long_name_is_cut_to_64_and_restored() {
        let long = format!("mcp__{}", "x".repeat(80));
        let cut = String::from_utf8(name(long.as_bytes()).into_owned()).unwrap_or_default();
        assert_eq!(cut.len(), NAME_LIMIT);
        let names = Names::of([&b"short"[..], long.as_bytes()].into_iter());
        assert_eq!(names.restore(&cut), long);
        assert_eq!(names.restore("short"), "short");
    }
}
