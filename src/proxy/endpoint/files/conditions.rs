//! Conditional requests: the header fields `If-Match` and `If-None-Match` (RFC 9110, section 13.1).

/// Result of the conditions of a request for contents that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionOutcome {
    /// Contents are sent.
    Met,
    /// Client has the contents already (304).
    NotModified,
    /// Contents are not those that the client expects (412).
    Failed,
}

/// Evaluates the conditions for contents with a strong ETag; an absent header field is empty.
pub fn evaluate_conditions(if_match: &[u8], if_none_match: &[u8], etag: &str) -> ConditionOutcome {
    // A weak tag never matches in `If-Match`, and matches in `If-None-Match` like a strong one.
    if !if_match.is_empty() && !tags(if_match).any(|tag| tag == b"*" || tag == etag.as_bytes()) {
        return ConditionOutcome::Failed;
    }
    let is_equal = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag) == etag.as_bytes();
    if tags(if_none_match).any(|tag| tag == b"*" || is_equal(tag)) {
        return ConditionOutcome::NotModified;
    }
    ConditionOutcome::Met
}

/// Iterates over the entries of a list of tags. A tag with a comma is cut, and then equals no ETag of a file.
fn tags(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_compared_as_the_standard_says() {
        use ConditionOutcome::{Failed, Met, NotModified};
        for (if_match, if_none_match, outcome) in [
            ("", "", Met),
            ("*", "", Met),
            ("\"a\"", "", Met),
            ("\"b\", \"a\"", "", Met),
            ("\"b\"", "", Failed),
            ("W/\"a\"", "", Failed),
            ("a", "", Failed),
            ("", "*", NotModified),
            ("", "\"a\"", NotModified),
            ("", "W/\"a\"", NotModified),
            ("", "\"b\" ,W/\"a\"", NotModified),
            ("", "\"b\"", Met),
            ("", "\"x,a\"", Met),
            ("\"a\"", "\"a\"", NotModified),
            ("\"b\"", "\"a\"", Failed),
        ] {
            let found = evaluate_conditions(if_match.as_bytes(), if_none_match.as_bytes(), "\"a\"");
            assert_eq!(found, outcome, "{if_match} {if_none_match}");
        }
    }
}
