//! API keys that a request presents in its headers.

/// Returns the possible keys of a request, in the order in which to try them: that of `Authorization: Bearer …` (the
/// scheme in upper or lower case), then that of `x-api-key`. If a request sends both, try both: one valid key is
/// enough. Values that are empty, not text, or of another scheme are left out.
pub fn presented_keys<'h>(
    authorization: Option<&'h [u8]>,
    x_api_key: Option<&'h [u8]>,
) -> impl Iterator<Item = &'h str> {
    let bearer = authorization.and_then(text).and_then(bearer);
    let plain = x_api_key.and_then(text);
    bearer.into_iter().chain(plain)
}

fn bearer(value: &str) -> Option<&str> {
    let (scheme, key) = value.split_once([' ', '\t'])?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_ascii_start())
}

fn text(value: &[u8]) -> Option<&str> {
    str::from_utf8(value).ok().map(str::trim_ascii).filter(|text| !text.is_empty())
}
