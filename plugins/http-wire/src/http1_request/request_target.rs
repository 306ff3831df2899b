//! Request target, in one of the forms of RFC 9112 §3.2.

use super::{ByteSpan, HeadError, is_host, span_bytes};

/// Byte ranges of path, query and authority of a target in the head.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RequestTarget {
    pub(super) path: ByteSpan,
    pub(super) query: Option<ByteSpan>,
    pub(super) authority: Option<ByteSpan>,
}

impl RequestTarget {
    /// Parses a target that starts at offset `from` of the head; `connect` is true for the method CONNECT.
    ///
    /// # Errors
    /// Returns an error if the target has none of the forms, or an invalid character.
    pub(super) fn parse(target: &[u8], from: usize, connect: bool) -> Result<Self, HeadError> {
        if !target.iter().all(|byte| byte.is_ascii_graphic() && *byte != b'#') {
            return Err(HeadError::Malformed("its target holds a character that has to be written as %XX"));
        }
        let (authority, path) = match target.first() {
            Some(b'/') => (None, from),
            _ if connect || target == b"*" => (None, from),
            _ => {
                let start = scheme_length(target).ok_or(HeadError::Malformed("its target is not a path"))?;
                let rest = target.get(start..).unwrap_or_default();
                let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
                let authority = rest.get(..end).unwrap_or_default();
                if authority.is_empty() || !is_host(authority) {
                    return Err(HeadError::Malformed("its target names no host"));
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
    pub(super) fn check_host_field_matches(
        &self,
        bytes: &[u8],
        host: Option<ByteSpan>,
    ) -> Result<(), HeadError> {
        match (self.authority, host) {
            (Some(named), Some(host)) if span_bytes(bytes, named) != span_bytes(bytes, host) => {
                Err(HeadError::Malformed("its target and its Host differ"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the length of an HTTP scheme with its `://`; `None` for other schemes.
fn scheme_length(target: &[u8]) -> Option<usize> {
    let is =
        |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    [&b"http://"[..], b"https://"].into_iter().find(|scheme| is(scheme)).map(<[u8]>::len)
}
