//! Ids that a client gave its request: the trace context (W3C Trace Context, level 1) and the `x-request-id`. Both
//! are logged. Only the trace context is sent on to the provider. Malformed values are ignored, and lengths are
//! bounded.

/// Length in bytes of a `traceparent` of version 00.
const TRACEPARENT_BYTES: usize = 55;
/// Maximum length in bytes of a `tracestate` that is sent on. The standard asks for the support of at least this
/// length.
const MAX_TRACESTATE_BYTES: usize = 512;
/// Maximum members of a `tracestate`.
const MAX_TRACESTATE_MEMBERS: usize = 32;
/// Maximum characters of a client's `x-request-id` in the log.
const MAX_CLIENT_ID_CHARS: usize = 128;
/// Prefix of API keys. A client id that contains an API key is not logged.
const KEY_PREFIX: &str = "sk-svc-";

/// Ids of one request; at least one is present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// Value of `traceparent`, in version 00.
    pub parent: Option<Box<str>>,
    /// Value of `tracestate`; only set if `parent` is set.
    pub state: Option<Box<str>>,
    /// The client's `x-request-id`, without characters that must not be logged.
    pub client_id: Option<Box<str>>,
}

impl TraceContext {
    /// Reads the ids in a request's header fields; `None` if there are none. Several `tracestate` fields are combined
    /// in their order (W3C Trace Context §3.3); of several `traceparent` fields, none is valid.
    #[must_use]
    pub fn from_fields<'h>(fields: impl Iterator<Item = (&'h str, &'h [u8])>) -> Option<Box<Self>> {
        let (mut parents, mut states, mut client_id) = (Vec::new(), Vec::new(), None);
        for (name, value) in fields {
            match name {
                "traceparent" => parents.push(value),
                "tracestate" if !value.trim_ascii().is_empty() => states.push(value),
                "x-request-id" if client_id.is_none() => client_id = Some(value),
                _ => {}
            }
        }
        let parent = match parents[..] {
            [parent] => parse_traceparent(parent),
            _ => None,
        };
        let state = parent.as_ref().and_then(|_| match states[..] {
            [] => None,
            [state] => parse_tracestate(state),
            _ => parse_tracestate(&states.join(&b',')),
        });
        let client_id = client_id.and_then(clean_client_id);
        if parent.is_none() && client_id.is_none() {
            return None;
        }
        Some(Box::new(Self { parent, state, client_id }))
    }

    /// Returns the headers that are sent to the provider.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let parent = self.parent.as_deref().map(|value| ("traceparent", value));
        parent.into_iter().chain(self.state.as_deref().map(|value| ("tracestate", value)))
    }
}

/// Parses a `traceparent`: a version, 16 bytes of trace id, 8 bytes of parent id, and flags, in hexadecimal; `None` if
/// it is malformed. For a later version, only the fields of version 00 are read, and the value is sent on as version
/// 00.
fn parse_traceparent(value: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let (known, more) = text.split_at_checked(TRACEPARENT_BYTES)?;
    let mut parts = known.split('-');
    let mut hex = |length: usize| {
        let part = parts.next().filter(|part| part.len() == length)?;
        part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).then_some(part)
    };
    let (version, trace, span, flags) = (hex(2)?, hex(32)?, hex(16)?, hex(2)?);
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let ends = more.is_empty() || (version != "00" && more.starts_with('-'));
    if version == "ff" || is_zero(trace) || is_zero(span) || !ends || parts.next().is_some() {
        return None;
    }
    Some(format!("00-{trace}-{span}-{flags}").into())
}

/// Parses a `tracestate`: members `key=value` that are separated by commas. If one member is invalid, the whole value
/// is invalid; `None` if the value is invalid, empty, or over the limits of length and members.
fn parse_tracestate(value: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(value).ok()?.trim();
    if text.is_empty()
        || text.len() > MAX_TRACESTATE_BYTES
        || text.split(',').count() > MAX_TRACESTATE_MEMBERS
    {
        return None;
    }
    let is_key = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-*/@".contains(&byte);
    let is_value = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'=';
    let is_member = |member: &str| {
        let member = member.trim_matches([' ', '\t']);
        member.is_empty()
            || member.split_once('=').is_some_and(|(key, value)| {
                !key.is_empty() && !value.is_empty() && key.bytes().all(is_key) && value.bytes().all(is_value)
            })
    };
    text.split(',').all(is_member).then(|| text.into())
}

/// Returns an id without characters that could break a log line; `None` if nothing is left, or if it may contain a key.
fn clean_client_id(value: &[u8]) -> Option<Box<str>> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(byte);
    let text: String =
        value.iter().copied().filter(is_plain).take(MAX_CLIENT_ID_CHARS).map(char::from).collect();
    (!text.is_empty() && !text.contains(KEY_PREFIX)).then(|| text.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_well_formed_or_not_there() {
        assert_eq!(parse_traceparent(GOOD.as_bytes()).as_deref(), Some(GOOD));
        assert_eq!(parse_traceparent(format!(" {GOOD} ").as_bytes()).as_deref(), Some(GOOD));
        let later = GOOD.replacen("00", "cc", 1);
        assert_eq!(parse_traceparent(later.as_bytes()).as_deref(), Some(GOOD));
        assert_eq!(
            parse_traceparent(format!("{later}-what-the-future-holds").as_bytes()).as_deref(),
            Some(GOOD)
        );
        for malformed in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}0"),
            &format!("{GOOD}-01"),
            &format!("{later}x"),
            &GOOD.replacen("00", "ff", 1),
            &GOOD.to_uppercase(),
            &GOOD.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &GOOD.replace('-', "_"),
            "00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01",
            "é0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        ] {
            assert_eq!(parse_traceparent(malformed.as_bytes()), None, "{malformed}");
        }
        assert_eq!(parse_traceparent(b"\xff"), None);
    }

    #[test]
    fn tracestates_are_combined_and_of_several_parents_none_is_valid() {
        let read = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
            TraceContext::from_fields(fields).map(|context| (context.parent, context.state))
        };
        let parent = ("traceparent", GOOD);
        let ids = |state: Option<&str>| Some((Some(GOOD.into()), state.map(Box::from)));
        assert_eq!(read(&[parent]), ids(None));
        assert_eq!(read(&[("tracestate", "a=1"), parent, ("tracestate", "b=2")]), ids(Some("a=1,b=2")));
        assert_eq!(read(&[parent, ("tracestate", ""), ("tracestate", "b=2")]), ids(Some("b=2")));
        assert_eq!(read(&[parent, ("tracestate", "a=1"), ("tracestate", "b")]), ids(None));
        assert_eq!(read(&[parent, parent, ("tracestate", "a=1")]), None);
        assert_eq!(read(&[parent, ("traceparent", ""), ("x-request-id", "a")]), Some((None, None)));
        assert_eq!(read(&[("tracestate", "a=1")]), None);
    }

    #[test]
    fn a_tracestate_is_well_formed_and_bounded() {
        for good in ["rojo=00f067aa0ba902b7", "rojo=1,congo=t61rcWkgMzE", "a@b=x y , c=d", "a=1,,b=2"] {
            assert_eq!(parse_tracestate(good.as_bytes()).as_deref(), Some(good));
        }
        let members = |count: usize| vec!["a=1"; count].join(",");
        assert!(parse_tracestate(members(MAX_TRACESTATE_MEMBERS).as_bytes()).is_some());
        assert!(parse_tracestate(members(MAX_TRACESTATE_MEMBERS + 1).as_bytes()).is_none());
        let long = |length: usize| format!("a={}", "x".repeat(length - 2));
        assert!(parse_tracestate(long(MAX_TRACESTATE_BYTES).as_bytes()).is_some());
        assert!(parse_tracestate(long(MAX_TRACESTATE_BYTES + 1).as_bytes()).is_none());
        for malformed in ["", " ", "rojo", "=1", "a=", "A=1", "a=b=c", "a=é", "a=1,b", "a=\u{7f}"] {
            assert_eq!(parse_tracestate(malformed.as_bytes()), None, "{malformed}");
        }
    }

    #[test]
    fn a_clients_id_is_cleaned_and_cut() {
        assert_eq!(clean_client_id(b"req-7/a:b").as_deref(), Some("req-7/a:b"));
        assert_eq!(clean_client_id(b"a \"b\"\\\n\x1b[0m{c}\xff").as_deref(), Some("ab0mc"));
        assert_eq!(clean_client_id(&[b'x'; MAX_CLIENT_ID_CHARS + 1]).unwrap().len(), MAX_CLIENT_ID_CHARS);
        assert_eq!(clean_client_id(&[b'x'; MAX_CLIENT_ID_CHARS]).unwrap().len(), MAX_CLIENT_ID_CHARS);
        assert_eq!(clean_client_id(b" \n"), None);
        assert_eq!(clean_client_id(b"sk-svc-abcdefgh"), None);
        assert_eq!(clean_client_id(b"sk-\"svc-abcdefgh"), None);
    }
}
