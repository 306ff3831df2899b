//! Request target, in one of the forms of RFC 9112 §3.2.

use super::{Span, Wrong, is_host, part};

/// Byte ranges of path, query and authority of a target in the head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Target {
    pub(super) path: Span,
    pub(super) query: Option<Span>,
    pub(super) authority: Option<Span>,
}

impl Target {
    /// Parses a target that starts at `from`.
    ///
    /// # Errors
    /// Returns an error if the target has none of the forms, or an invalid character.
    pub(super) fn read(target: &[u8], from: usize, connect: bool) -> Result<Self, Wrong> {
        if !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
            return Err(Wrong::Malformed("its target holds a character that has to be written as %XX"));
        }
        let (authority, path) = match target.first() {
            Some(b'/') => (None, from),
            _ if connect || target == b"*" => (None, from),
            _ => {
                let start = scheme(target).ok_or(Wrong::Malformed("its target is not a path"))?;
                let rest = target.get(start..).unwrap_or_default();
                let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
                let authority = rest.get(..end).unwrap_or_default();
                if authority.is_empty() || !is_host(authority) {
                    return Err(Wrong::Malformed("its target names no host"));
                }
                (Some((from + start, from + start + end)), from + start + end)
            }
        };
        let (end, rest) = (from + target.len(), target.get(path - from..).unwrap_or_default());
        let query = memchr::memchr(b'?', rest).map(|at| (path + at + 1, end));
        let path = (path, query.map_or(end, |(from, _)| from - 1));
        Ok(Self { path, query, authority })
    }

    /// Checks that the host in the target equals the one in the `Host` field.
    ///
    /// # Errors
    /// Returns an error if they differ.
    pub(super) fn agrees(&self, bytes: &[u8], host: Option<Span>) -> Result<(), Wrong> {
        match (self.authority, host) {
            (Some(named), Some(host)) if part(bytes, named) != part(bytes, host) => {
                Err(Wrong::Malformed("its target and its Host differ"))
            }
            _ => Ok(()),
        }
    }
}

/// Length of an HTTP scheme with its `://`; `None` for other schemes.
fn scheme(target: &[u8]) -> Option<usize> {
    let is =
        |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    [&b"http://"[..], b"https://"].into_iter().find(|scheme| is(scheme)).map(<[u8]>::len)
}
